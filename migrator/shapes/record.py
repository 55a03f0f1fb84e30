"""What is remembered of watched loops: the shapes of each operator call, in bounded memory."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from .places import Place, Places

Shapes = tuple[Sequence[int], ...]

MAX_CALLS = 20_000  # operator calls kept in all: about 1 kB each, and 300 B more for each shape
MAX_CALLS_PER_SITE = 1024  # calls of one operator at one place within an iteration that are kept apart
MAX_SHAPES = 32  # shapes of a call that are told apart; its ranges cover the others too
MAX_RANKS = 4  # combinations of ranks in a range
DEFAULT_STEPS = 200  # batches recorded per loop
MAX_EPOCHS = 10  # epochs whose end is recorded even beyond that
SHOWN_TENSORS = 6


class Range:
    """The lowest and highest size seen in each dimension, per combination of ranks."""

    def __init__(self) -> None:
        self.bounds: dict[tuple[int, ...], tuple[list[list[int]], list[list[int]]]] = {}
        self.is_complete = True

    def add(self, shapes: Shapes) -> None:
        """Widen the range to cover the shapes of one call."""
        ranks = tuple([len(shape) for shape in shapes])
        known = self.bounds.get(ranks)
        if known is not None:
            for bound, choose in zip(known, (min, max), strict=True):
                for sizes, shape in zip(bound, shapes, strict=True):
                    sizes[:] = map(choose, sizes, shape)
        elif len(self.bounds) < MAX_RANKS:
            self.bounds[ranks] = [list(shape) for shape in shapes], [list(shape) for shape in shapes]
        else:
            self.is_complete = False

    def varying_dimensions(self) -> set[tuple[int, int]]:
        """Return (dimension, rank) of every dimension that has more than one size."""
        return {
            (dimension, len(low))
            for lows, highs in self.bounds.values()
            for low, high in zip(lows, highs, strict=True)
            for dimension in range(len(low))
            if low[dimension] != high[dimension]
        }

    def __str__(self) -> str:
        texts = [_range_text(lows, highs) for lows, highs in self.bounds.values()]
        return " | ".join(texts if self.is_complete else [*texts, "..."])


def _range_text(lows: list[list[int]], highs: list[list[int]]) -> str:
    texts = [
        "[" + ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)) + "]"
        for low, high in zip(lows, highs, strict=True)
    ]
    more = len(texts) - SHOWN_TENSORS
    return ", ".join(texts[:SHOWN_TENSORS] + ([f"and {more} more"] if more > 0 else []))


class Seen:
    """When a call had a certain shape."""

    __slots__ = ("batches", "epoch_ends", "first_batch", "first_iteration", "last_batch", "size")

    def __init__(self, iteration: int, batch: int, size: int) -> None:
        self.first_iteration = iteration
        self.first_batch = self.last_batch = batch
        self.batches = 1
        self.epoch_ends = 0  # how many of these batches were the last one of an epoch
        self.size = size  # sum of all dimensions, to compare the shapes of a call


class Call:
    """The n-th call of an operator at one place in each iteration: layers behind one line are kept apart."""

    __slots__ = ("count", "inputs", "outputs", "shapes", "untold")

    def __init__(self) -> None:
        self.shapes: dict[int, Seen] = {}  # by hash, the shapes themselves would take far more room
        self.inputs = Range()
        self.outputs = Range()
        self.count = 0
        self.untold = 0  # calls whose shapes were new beyond MAX_SHAPES


class Site:
    """One operator at one place."""

    def __init__(self, name: str, place: Place, device: str, iteration: int, sized_by_data: bool) -> None:
        self.name = name
        self.place = place
        self.device = device
        self.first_iteration = iteration
        self.sized_by_data = sized_by_data  # the size of the result depends on values
        self.calls: list[Call] = []
        self._iteration = iteration
        self._position = 0

    def next_call(self, iteration: int) -> Call | None:
        """Return the record of the coming call, None if there is no such record yet."""
        if iteration != self._iteration:
            self._iteration, self._position = iteration, 0
        if self._position == len(self.calls):
            return None
        self._position += 1
        return self.calls[self._position - 1]

    def add_call(self) -> Call:
        self.calls.append(Call())
        self._position += 1
        return self.calls[-1]


class Loop:
    """A watched loop: the sites met in its body and how far it has come, over all its epochs."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sites: dict[tuple[object, Place], Site] = {}
        self.steps = _steps()
        self.batch = 0
        self.iteration = 0
        self.is_recording = False
        self.is_saved = False
        self._epochs = 0

    def next_batch(self, is_last: bool) -> None:
        """Start an iteration with the next batch.

        After the first ``steps`` batches only the last ones of a few epochs are recorded, as they tend to be smaller.
        """
        self.batch += 1
        self.is_recording = self.batch <= self.steps or (is_last and self._epochs < MAX_EPOCHS)
        self.next_iteration()

    def next_iteration(self) -> None:
        self.iteration += 1

    def end_epoch(self) -> None:
        """Note that the latest batch was the last one of its epoch."""
        if not self.is_recording:
            return
        self._epochs += 1
        self.is_saved = False
        for site in self.sites.values():
            for call in site.calls:
                for seen in call.shapes.values():
                    seen.epoch_ends += seen.last_batch == self.batch


def _steps() -> int:
    text = os.environ.get("NPU_MIGRATE_SHAPES_STEPS", "")
    try:
        return int(text or DEFAULT_STEPS) or sys.maxsize
    except ValueError:
        say(f"NPU_MIGRATE_SHAPES_STEPS={text!r} is not a number of batches, taking {DEFAULT_STEPS}")
        return DEFAULT_STEPS


def say(message: str) -> None:
    print(f"npu-migrate shapes: {message}", file=sys.stderr, flush=True)


class Journal:
    """Everything that is recorded in this process."""

    def __init__(self) -> None:
        self.start_folder = Path.cwd()  # programs may go elsewhere later
        self.rank = int(rank) if (rank := os.environ.get("RANK", "")).isdigit() else 0
        self.places = Places()
        self.loops: dict[Place, Loop] = {}
        self.lost = 0  # operator calls beyond the limits
        self.failure = ""
        self._calls = 0
        self._lock = threading.Lock()  # autograd's threads record as well

    def loop(self, caller: FrameType) -> Loop:
        """Return the loop whose ``watch`` call stands in the given frame, the same one in every epoch."""
        place = self.places.of(caller)
        return self.loops.setdefault(place, Loop(place))

    def is_full(self) -> bool:
        return self._calls >= MAX_CALLS

    def record(self, loop: Loop, site: Site, inputs: Shapes, outputs: Shapes) -> None:
        """Add one operator call to its site."""
        with self._lock:
            call = site.next_call(loop.iteration)
            if call is None:
                if len(site.calls) >= MAX_CALLS_PER_SITE or self.is_full():
                    self.lost += 1
                    return
                self._calls += 1
                call = site.add_call()
            call.count += 1
            key = hash((inputs, outputs))
            seen = call.shapes.get(key)
            if seen is None:
                self._add_shape(loop, call, key, inputs, outputs)
            elif seen.last_batch != loop.batch:
                seen.last_batch = loop.batch
                seen.batches += 1

    def _add_shape(self, loop: Loop, call: Call, key: int, inputs: Shapes, outputs: Shapes) -> None:
        if len(call.shapes) < MAX_SHAPES:
            size = sum(map(sum, inputs + outputs))
            call.shapes[key] = Seen(loop.iteration, loop.batch, size)
        else:
            call.untold += 1
        call.inputs.add(inputs)
        call.outputs.add(outputs)
        loop.is_saved = False


journal = Journal()
