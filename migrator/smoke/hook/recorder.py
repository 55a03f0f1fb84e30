"""Records losses, gradients and parameters of a program that knows nothing of it."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .modules import Modules
from .operators import Operators, leave_out_traces
from .places import Places
from .settings import Settings
from .summaries import name_of, norm, sample, thinned
from .writer import Writer

DETAILED_STEPS = 50
"""Optimizer steps that are recorded in full; after those every tenth is."""
MAX_PARAMETERS = 400
MAX_SAMPLE = 2000
"""Parameters of an optimizer, and elements of all of them, that a step records."""
MAX_FINAL = 50_000_000
"""Elements of all final parameters; larger sets are thinned."""

Named = list[tuple[str, Tensor]]


def install(settings: Settings) -> None:
    """Begin to record this process. To be called once, right after torch was imported."""
    recorder = _Recorder(settings)
    torch.autograd.backward = recorder.around_backward(torch.autograd.backward)
    _watch_autocast(recorder)
    register_optimizer_step_pre_hook(recorder.guarded(recorder.before_step))
    register_optimizer_step_post_hook(recorder.guarded(recorder.after_step))
    register_module_forward_pre_hook(recorder.guarded(recorder.modules.before))
    register_module_forward_hook(recorder.guarded(recorder.after_module))
    os.register_at_fork(after_in_child=recorder.stop)


class _Recorder:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._writer = Writer(settings.folder)
        self._is_on = True
        self._in_backward = False
        self._backwards = 0
        self._steps = 0
        self._optimizers: dict[int, tuple[Any, Named]] = {}
        self._rank: int | None = None
        self.narrowest: str | None = None
        """The dtype of the autocast regions entered since the latest backward pass."""
        self.modules = Modules(settings, self._writer)
        self._places = Places(settings.root)
        self._operators = Operators(self._writer, self._places) if settings.operators else None
        if self._operators is not None:
            self._operators.__enter__()
            leave_out_traces()

    # --- what the program runs into ---------------------------------------------------------------------------

    def guarded(self, record: Callable[..., None]) -> Callable[..., None]:
        """The function with whatever goes wrong in it told in the recording: the program must go on."""

        def run(*args: Any) -> None:
            if not self._is_on:
                return
            try:
                with self._apart():
                    record(*args)
            except Exception as error:
                self._is_on = False
                self._writer.write("failure", message=f"{type(error).__name__}: {error}")

        return run

    def around_backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        """torch.autograd.backward that records what it starts from."""
        record = self.guarded(self._record_loss)

        @functools.wraps(backward)
        def recorded(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._in_backward or not self._is_on:  # within one of another: activation checkpoints
                return backward(tensors, *args, **kwargs)
            limit = self._settings.max_steps
            if limit and self._backwards >= limit:
                raise SystemExit(0)
            if self._operators is not None:
                self._operators.backward_line = self._places.current()
            record(tensors)
            self._in_backward = True
            try:
                backward(tensors, *args, **kwargs)
            finally:
                self._in_backward = False
                self._backwards += 1
                self.modules.step = self._backwards

        return recorded

    def before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Record the gradients with which an optimizer is going to step."""
        named = self._named_parameters(optimizer)
        if not self._is_detailed():
            return
        gradients = [(name, parameter.grad) for name, parameter in named if parameter.grad is not None]
        norms = {name: norm(gradient) for name, gradient in gradients[:MAX_PARAMETERS]}
        each = max(1, MAX_SAMPLE // max(len(gradients), 1))
        self._writer.write(
            "gradients",
            step=self._steps,
            backward=self._backwards - 1,
            dtype=name_of(gradients[0][1].dtype) if gradients else None,
            norms=norms,
            sample=[value for _, gradient in gradients[:MAX_PARAMETERS] for value in sample(gradient, each)],
        )

    def after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Record a sample of the parameters that an optimizer has changed."""
        named = self._named_parameters(optimizer)
        if self._is_detailed():
            each = max(1, MAX_SAMPLE // max(len(named), 1))
            self._writer.write(
                "parameters",
                step=self._steps,
                backward=self._backwards - 1,
                dtype=name_of(named[0][1].dtype) if named else None,
                samples={name: sample(parameter, each) for name, parameter in named[:MAX_PARAMETERS]},
                sizes={name: parameter.numel() for name, parameter in named[:MAX_PARAMETERS]},
            )
        self._steps += 1

    def after_module(self, module: Any, inputs: Any, output: Any) -> None:
        """Record what a module returned, in the first steps."""
        if self._backwards < self._settings.module_steps:
            self.modules.after(module, inputs, output)

    def stop(self) -> None:
        """Record nothing any more: a forked child (a worker of a data loader) has nothing to tell."""
        self._is_on = False
        if self._operators is not None:
            self._operators.paused = True

    # --- how it is recorded -----------------------------------------------------------------------------------

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Our own operators are not the program's."""
        operators = self._operators
        before = operators is not None and operators.paused
        if operators is not None:
            operators.paused = True
        try:
            with torch.no_grad():
                yield
        finally:
            if operators is not None:
                operators.paused = before

    def _is_detailed(self) -> bool:
        return self._steps < DETAILED_STEPS or self._steps % 10 == 0

    def _record_loss(self, tensors: Any) -> None:
        self._record_rank()
        for tensor in [tensors] if isinstance(tensors, Tensor) else list(tensors):
            self._writer.write(
                "loss",
                step=self._backwards,
                value=float(tensor.detach().cpu()) if tensor.numel() == 1 else norm(tensor),
                dtype=self.narrowest or name_of(tensor.dtype),
                device=str(tensor.device),
            )
        self.narrowest = None

    def _record_rank(self) -> None:
        distributed = torch.distributed
        if self._rank is None and distributed.is_available() and distributed.is_initialized():
            self._rank = distributed.get_rank()
            self._writer.write("rank", value=self._rank)

    def _named_parameters(self, optimizer: Any) -> Named:
        """An optimizer's parameters with their names."""
        known = self._optimizers.get(id(optimizer))
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if known is not None and len(known[1]) == len(parameters):
            return known[1]
        if not self._optimizers:
            # After torch_npu has registered its own, which run later then and shut the device down.
            atexit.register(self._finish)
            util.Finalize(None, self._finish, exitpriority=100)  # forked ranks have no atexit
        names = self.modules.parameter_names()
        prefix = f"optimizer{len(self._optimizers)}."
        named = [(names.get(id(item), f"{prefix}{index}"), item) for index, item in enumerate(parameters)]
        self._optimizers[id(optimizer)] = optimizer, named
        return named

    def _finish(self) -> None:
        """Save the final parameters."""
        if not self._is_on:
            return
        self._is_on = False
        named = [pair for _, parameters in self._optimizers.values() for pair in parameters]
        total = sum(parameter.numel() for _, parameter in named)
        limit = MAX_FINAL if total <= MAX_FINAL else MAX_FINAL // len(named)
        try:
            with self._apart():
                torch.save({name: thinned(item, limit) for name, item in named}, self._writer.stem.with_suffix(".pt"))
        except Exception as error:
            self._writer.write("failure", message=f"the final parameters: {type(error).__name__}: {error}")


def _watch_autocast(recorder: _Recorder) -> None:
    """Tell the recorder which dtype autocast regions compute in."""
    autocast = torch.amp.autocast_mode.autocast
    enter = autocast.__enter__

    @functools.wraps(enter)
    def watched(self: Any) -> Any:
        if getattr(self, "_enabled", False):
            dtype = getattr(self, "fast_dtype", None)
            recorder.narrowest = name_of(dtype) if dtype is not None else recorder.narrowest
        return enter(self)

    autocast.__enter__ = watched
