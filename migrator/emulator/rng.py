"""Random numbers of the emulated NPU.

An NPU generator is a seed and an offset, and the offset moves with every operator that draws. Here
each such pair seeds a CPU generator afresh, so whatever the wheel does with seeds and states
(manual_seed, get_rng_state, set_rng_state, fork_rng, activation checkpoints) replays exactly.

With shared numbers the device's default generator is the CPU's own, and every other NPU generator
draws what a CPU generator of its seed would draw: its offset then names the state of that CPU generator.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .memory import CPU

SHARED = os.environ.get("NPU_MIGRATE_EMULATOR_SHARED_RNG") == "1"
_STEP = 4  # offsets are multiples of four
# Where CPU generators stood, by the seed and offset of the NPU generators that they stood in for.
_states: dict[tuple[int, int], Tensor] = {}
_MAX_STATES = 4096  # of 5 kB each; states that a program restores are hardly older


def draw(
    operator: Callable[..., Any],
    takes_generator: bool,
    generator: torch.Generator | None,
    device: torch.device,
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Call a random CPU operator with numbers of the NPU generator, or of the device's default one.

    args and kwargs may hold NPU generators, which are replaced.
    """
    if SHARED and (generator is None or generator is _default(device)):
        return operator(*(_without(args)), **dict(zip(kwargs, _without(kwargs.values()), strict=True)))
    if generator is None:
        generator = _default(device)
    if not takes_generator:
        return _with_default_generator(_advance(generator), operator, args, kwargs)
    host = _host_generator(generator)
    positional = [host if isinstance(value, torch.Generator) else value for value in args]
    named = {key: host if isinstance(value, torch.Generator) else value for key, value in kwargs.items()}
    if not any(value is host for value in positional):
        named["generator"] = host
    result = operator(*positional, **named)
    if SHARED:
        _follow(generator, host)
    return result


def _host_generator(generator: torch.Generator) -> torch.Generator:
    """A CPU generator that draws the next numbers of an NPU generator."""
    host = torch.Generator(device=CPU)
    place = generator.initial_seed(), generator.get_offset()
    if SHARED and place in _states:
        return host.set_state(_states[place])
    if SHARED and place[1] == 0:
        return host.manual_seed(place[0])
    return host.manual_seed(_advance(generator))


def _follow(generator: torch.Generator, host: torch.Generator) -> None:
    """Move an NPU generator on to where its CPU generator stands now."""
    state = host.get_state()
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=7).digest()
    generator.set_offset(int.from_bytes(digest, "little") * _STEP)
    while len(_states) >= _MAX_STATES:
        del _states[next(iter(_states))]
    _states[generator.initial_seed(), generator.get_offset()] = state


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
