"""The recording itself: a dispatch mode that is on while the body of a watched loop runs. Needs torch >= 2.1."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _python_dispatch as dispatch

from . import report
from .places import Nodes, Place
from .record import Loop, Shapes, Site, journal, say

T = TypeVar("T")

_NO_KERNEL = (
    "aten::empty",
    "aten::new_empty",
    "aten::lift_fresh",
    "aten::_unsafe_view",
    "prim::",
    "profiler::",
)

_next_node_number = torch._C._autograd._get_sequence_nr
_running_node = torch._C._current_autograd_node


def record_loop(iterable: Iterable[T], loop: Loop) -> Iterator[T]:
    """Yield the items of ``iterable``, recording what the calling thread runs between two of them."""
    recorder = _recorder()
    length = _length(iterable)
    index = 0
    items: list[T] = []  # holds an item until it is handed over, so that ``del batch`` frees its memory
    recorder.enter(loop)
    try:
        with recorder.paused():
            iterator = iter(iterable)
        while True:
            with recorder.paused():
                try:
                    items.append(next(iterator))
                except StopIteration:
                    loop.end_epoch()
                    return
                index += 1
                loop.next_batch(is_last=index == length)
            if loop.batch == loop.steps + 1:
                report.save(journal)
                if journal.rank == 0:
                    say(f"{report.location(loop.place)} goes on unwatched after {loop.steps} batches")
            yield items.pop()
    finally:
        recorder.leave(loop)
        if not recorder.loops:
            report.save(journal)


def _length(iterable: Iterable[Any]) -> int | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except Exception:  # a plain loop would not ask for it
        return None


class Recorder(dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Records what one thread, and the autograd threads that work for it, run in the innermost watched loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[Loop] = []
        self.steps_running = 0  # nested optimizer steps
        self._pauses = 0
        self._is_on = False
        self._thread = threading.get_ident()
        self._nodes: dict[int, Nodes] = {self._thread: Nodes()}
        self._silent: dict[Any, bool] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell torch.compile to go on as if this mode were not there; else it would compile nothing."""
        return True

    supports_higher_order_operators = True

    def enter(self, loop: Loop) -> None:
        self.loops.append(loop)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            journal.rank = torch.distributed.get_rank()

    def leave(self, loop: Loop) -> None:
        if loop in self.loops:  # not in a forked child
            self.loops.remove(loop)
        self.sync()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what runs inside: fetching a batch is the data loader's business, it may fork workers."""
        self._pauses += 1
        self.steps_running = 0  # an optimizer step that raised never told its end
        self.sync()
        try:
            yield
        finally:
            self._pauses -= 1
            self.sync()

    def sync(self) -> None:
        """Switch recording on or off as the loops, pauses and optimizer steps demand."""
        if threading.get_ident() != self._thread:  # the garbage collector ended a loop of another thread
            return
        is_in_loop = bool(self.loops) and self.loops[-1].is_recording
        wanted = is_in_loop and not self._pauses and not self.steps_running
        if wanted != self._is_on:
            self._is_on = wanted
            self._switch()

    def _switch(self) -> None:
        """Enter or leave the dispatch stack at its bottom, out of the way of the user's own ``with SomeMode():``.

        A loop, and this mode with it, need not begin and end in the order in which ``with`` blocks nest.
        """
        others = [
            mode
            for mode in dispatch._get_current_dispatch_mode_stack()
            if mode is not self and getattr(mode, "_mode_key", None) is None
        ]
        for _ in range(len(others) + (not self._is_on)):
            dispatch._pop_mode()
        for mode in [self, *others] if self._is_on else others:
            dispatch._push_mode(mode)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        try:
            self._record(func, args, result)
        except Exception as error:  # whatever goes wrong here, the user's training goes on
            journal.failure = journal.failure or f"{func}: {type(error).__name__}: {error}"
        return result

    def _record(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        if not self.loops:
            return
        silent = self._silent.get(func)
        if silent is None:
            silent = self._silent[func] = _is_silent(func)
        thread = threading.get_ident()
        nodes = self._nodes.get(thread)
        if nodes is None:
            nodes = self._nodes.setdefault(thread, Nodes())
        upcoming = _next_node_number()
        if silent and upcoming == nodes.upcoming:
            return
        place = self._place(nodes)
        nodes.made(upcoming, place)
        if silent:
            return
        loop = self.loops[-1]
        site = loop.sites.get((func, place))
        if site is None:
            if place is journal.places.overflow or journal.is_full():
                journal.lost += 1
                return
            site = self._add_site(loop, func, place, args, result)
        journal.record(loop, site, _shapes(args), _shapes((result,)))

    def _place(self, nodes: Nodes) -> Place:
        """Return the line to charge: for a backward operator that of its forward operator."""
        places = journal.places
        node = _running_node()
        frame = sys._getframe(2)
        if node is None:
            return places.of(frame)
        place = places.of(frame, until_engine=True)
        if place is places.engine:  # it runs in this thread, on nodes that were made in it
            return self._origin(nodes, node) or places.of(frame)
        if not place.frames:  # a thread of the engine's own, with no Python below
            return self._origin(self._nodes[self._thread], node) or place
        return place  # the user's code within backward: a hook, a custom Function, a recomputed forward

    def _origin(self, nodes: Nodes, node: Any) -> Place | None:
        made = nodes.place(node._sequence_nr())
        return made.backward() if made is not None else None

    def _add_site(self, loop: Loop, func: Any, place: Place, args: tuple[Any, ...], result: Any) -> Site:
        devices = {tensor.device.type for tensor in _tensors((*args, result))} - {"cpu"}
        device = devices.pop() if devices else "cpu"
        site = Site(func.name(), place, device, loop.iteration, _is_sized_by_data(func, args))
        return loop.sites.setdefault((func, place), site)


def _is_silent(func: Any) -> bool:
    """Say whether an operator runs no kernel whose shape matters: views, allocations, annotations."""
    return getattr(func, "is_view", False) or func.name().startswith(_NO_KERNEL)


def _is_sized_by_data(func: Any, args: tuple[Any, ...]) -> bool:
    if torch.Tag.dynamic_output_shape not in getattr(func, "tags", ()):
        return False
    is_index = func.name().startswith("aten::index")
    return not is_index or any(tensor.dtype in (torch.bool, torch.uint8) for tensor in _tensors(args[1:]))


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    tensors = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += [item for item in value if isinstance(item, torch.Tensor)]
    return tensors


def _shapes(values: Iterable[Any]) -> Shapes:
    return tuple([tensor.shape for tensor in _tensors(values)])


_threads = threading.local()


def _recorder() -> Recorder:
    """Return this thread's recorder."""
    recorder: Recorder | None = getattr(_threads, "recorder", None)
    if recorder is None:
        recorder = _threads.recorder = Recorder()
    return recorder


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("closure", args[1] if len(args) > 1 else None) is not None


def _step_begins(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recorder = _recorder()
    if recorder.loops and not _has_closure(args, kwargs):  # a closure runs the model
        recorder.steps_running += 1  # and without it only parameters are touched, which keep their shape
        recorder.sync()


def _step_ends(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recorder = _recorder()
    if recorder.loops:
        recorder.steps_running = max(0, recorder.steps_running - 1)
        recorder.loops[-1].next_iteration()
        recorder.sync()


def _after_fork() -> None:
    recorder = _recorder()  # a data loader's worker has nothing to report
    recorder.loops.clear()
    recorder.sync()


register_optimizer_step_pre_hook(_step_begins)
register_optimizer_step_post_hook(_step_ends)
os.register_at_fork(after_in_child=_after_fork)
util.Finalize(None, report.finish, args=(journal,), exitpriority=0)  # unlike atexit, runs in spawned ranks too
