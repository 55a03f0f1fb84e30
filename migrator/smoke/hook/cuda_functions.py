"""The functions and classes of torch.cuda on a machine that only pretends to have CUDA devices."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

_MEMORY = 64 << 30
_CAPABILITY = (8, 0)
_NAME = "the CPU in place of a CUDA device"
_DO_NOTHING = (
    *("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "ipc_collect", "set_stream"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
    *("reset_accumulated_memory_stats", "set_per_process_memory_fraction"),
)
_CONSTANTS = {
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
    **dict.fromkeys(("memory_cached", "max_memory_cached", "current_device", "initial_seed", "utilization"), 0),
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
    "get_device_name": _NAME,
    "get_device_capability": _CAPABILITY,
    "mem_get_info": (_MEMORY, _MEMORY),
    "memory_summary": "",
}
_TYPES = ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")


def nothing() -> Callable[..., None]:
    """A new function that does nothing: torch._dynamo refuses one function under several names."""
    return constant(None)


def constant(value: Any) -> Callable[..., Any]:
    """A new function that always returns `value`."""

    def answer(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return answer


class Stream:
    """Everything on it is done at once."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_error: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once."""

    def wait_event(self, event: Any) -> None:
        """Return at once."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """Record an event now."""
        event = event or Event()
        event.record()
        return event


class Event:
    """A moment of this process."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._moment = time.perf_counter()

    def record(self, _stream: Any = None) -> None:
        """Take the time."""
        self._moment = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until another event."""
        return (end._moment - self._moment) * 1000

    def wait(self, _stream: Any = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """All work is done."""
        return True


def install(devices: int) -> None:
    """Replace what torch.cuda cannot do without CUDA; what is not known here still raises."""
    cuda = torch.cuda
    for name in _DO_NOTHING:
        setattr(cuda, name, nothing())
    for name, value in _CONSTANTS.items():
        setattr(cuda, name, constant(value))
    for name in _TYPES:
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    cuda.device_count = constant(devices)
    cuda.get_device_properties = lambda *_args: SimpleNamespace(
        name=_NAME, total_memory=_MEMORY, major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=1
    )
    cuda.memory_stats = lambda *_args: defaultdict(int)
    cuda.get_rng_state = lambda *_args: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()] * devices
    cuda.Stream, cuda.Event = Stream, Event
    current = Stream()
    cuda.current_stream = cuda.default_stream = lambda *_args: current
    cuda.stream = lambda stream: contextlib.nullcontext(stream)
    cuda.device = cuda.device_of = lambda *_args: contextlib.nullcontext()
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, nothing())
    cuda.nvtx.range = lambda *_args, **_kwargs: contextlib.nullcontext()
