"""Which operators run on the NPU, with which dtypes, and at which line of the user's code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .places import Places
from .summaries import name_of
from .writer import Writer

MAX_KINDS = 20_000
"""Different (operator, dtypes, line) that are told apart; what comes later is not recorded."""


class Operators(TorchDispatchMode):  # type: ignore[misc]
    """Records each operator once per line and combination of dtypes."""

    def __init__(self, writer: Writer, places: Places) -> None:
        super().__init__()
        self._writer = writer
        self._places = places
        self._seen: set[Any] = set()
        self.backward_line: tuple[str, int] | None = None
        """Where the latest backward pass was started: its operators may run in a thread without Python frames."""
        self.paused = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell torch.compile to go on as if this mode were not there."""
        return True

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args = _with_tensors(func, args)
        result = func(*args, **(kwargs or {}))
        if not self.paused and len(self._seen) < MAX_KINDS:
            self._note(func, args, (kwargs or {}).get("dtype"), result)
        return result

    def _note(self, func: Any, args: tuple[Any, ...], wanted: torch.dtype | None, result: Any) -> None:
        dtypes = {tensor.dtype for tensor in _tensors((*args, result)) if tensor.device.type == "npu"}
        if not dtypes:
            return
        if wanted is not None:  # the device may give another one: float32 for float64
            dtypes.add(wanted)
        place = self._places.current() or self.backward_line
        key = (func, place, frozenset(dtypes))
        if key in self._seen:
            return
        self._seen.add(key)
        names = sorted(name_of(dtype) for dtype in dtypes)
        file, line = place or (None, None)
        self._writer.write("operator", name=func.name(), dtypes=names, file=file, line=line)


def leave_out_traces() -> None:
    """Have no mode active while torch.jit traces: it would lose track of the tensors."""
    for name in ("trace", "trace_module", "_get_trace_graph"):  # the last is what torch.onnx calls
        setattr(torch.jit, name, _without_modes(getattr(torch.jit, name)))


def _without_modes(trace: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(trace)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return trace(*args, **kwargs)

    return run


def _with_tensors(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with tensors for numbers that the operator does not take.

    PyTorch hands a tensor that came from a number (the constants of TorchScript are such) over as that number.
    """
    places = [place for place in _tensor_places(func) if place < len(args) and isinstance(args[place], (int, float))]
    if not places:
        return args
    wanted = list(args)
    for place in places:
        dtype = torch.float64 if isinstance(args[place], float) else None
        wanted[place] = torch.tensor(args[place], dtype=dtype, device="cpu")
    return tuple(wanted)


@functools.cache
def _tensor_places(func: Any) -> tuple[int, ...]:
    """Where an operator wants tensors and takes no numbers."""
    schema = getattr(func, "_schema", None)  # higher-order operators have none
    if schema is None or torch._C._should_allow_numbers_as_tensors(schema.name.partition("::")[2]):
        return ()
    return tuple(place for place, argument in enumerate(schema.arguments) if argument.type.kind() == "TensorType")


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found
