"""The state of model parallelism with one process."""

from __future__ import annotations

_initialized = False


def initialize_model_parallel(size: int) -> None:
    """Begin; more than one process is not served."""
    global _initialized
    if size != 1:
        raise NotImplementedError("only one process")
    _initialized = True


def model_parallel_is_initialized() -> bool:
    """Whether it has begun."""
    return _initialized


def get_model_parallel_rank() -> int:
    """The number of this process."""
    return 0


def get_model_parallel_world_size() -> int:
    """The number of processes."""
    return 1
