"""Random numbers of the emulated NPU.

An NPU generator is a seed and an offset, and the offset moves with every operator that draws. Here
each such pair seeds a CPU generator afresh, so whatever the wheel does with seeds and states
(manual_seed, get_rng_state, set_rng_state, fork_rng, activation checkpoints) replays exactly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from .memory import CPU

SHARED = os.environ.get("NPU_MIGRATE_EMULATOR_SHARED_RNG") == "1"
_STEP = 4  # offsets are multiples of four


def draw(
    operator: Callable[..., Any],
    takes_generator: bool,
    generator: torch.Generator | None,
    device: torch.device,
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Call a random CPU operator with numbers of the NPU generator, or of the device's default one.

    args and kwargs may hold NPU generators, which are replaced. With SHARED, the device's default
    generator is the CPU's own.
    """
    if SHARED and (generator is None or generator is _default(device)):
        return operator(*(_without(args)), **dict(zip(kwargs, _without(kwargs.values()), strict=True)))
    seed = _advance(generator if generator is not None else _default(device))
    if not takes_generator:
        return _with_default_generator(seed, operator, args, kwargs)
    fresh = torch.Generator(device=CPU).manual_seed(seed)
    positional = [fresh if isinstance(value, torch.Generator) else value for value in args]
    named = {key: fresh if isinstance(value, torch.Generator) else value for key, value in kwargs.items()}
    if not any(value is fresh for value in positional):
        named["generator"] = fresh
    return operator(*positional, **named)


def _default(device: torch.device) -> torch.Generator:
    torch.npu.init()
    return torch.npu.default_generators[device.index]


def _advance(generator: torch.Generator) -> int:
    """A seed for this state of the generator, which moves on to its next state."""
    offset = generator.get_offset()
    generator.set_offset(offset + _STEP)
    return hash((generator.initial_seed(), offset)) & 0x7FFF_FFFF_FFFF_FFFF


def _with_default_generator(seed: int, operator: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    default = torch.default_generator
    state = default.get_state()
    default.manual_seed(seed)
    try:
        return operator(*args, **kwargs)
    finally:
        default.set_state(state)


def _without(values: Any) -> list[Any]:
    return [None if isinstance(value, torch.Generator) else value for value in values]
