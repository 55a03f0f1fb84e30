"""Environment variables around torch_npu: which are real, and what they do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from migrator.api._store import load


class EnvStatus(str, Enum):
    """What a variable name that circulates really is."""

    REAL = "real"
    OPTION = "option"
    """A key of ``torch.npu.set_option``, not an environment variable."""
    DEPRECATED = "deprecated"
    CANN = "cann"
    """Belongs to CANN or its container runtime; torch_npu itself does not act on it."""
    FAKE = "fake"
    """No wheel acts on the name; ``meaning`` tells what to use instead."""


@dataclass(frozen=True)
class EnvVar:
    """One environment variable (or a name that is taken for one)."""

    name: str
    status: EnvStatus
    default: str | None
    since: str | None
    """First wheel that names it; None: no torch_npu wheel does."""
    meaning: str


def env(name: str) -> EnvVar | None:
    """The variable of that name; None: nothing is known about it."""
    raw = load("env.json")["variables"].get(name)
    if raw is None:
        return None
    return EnvVar(name, EnvStatus(raw["status"]), raw.get("default"), raw.get("since"), raw["meaning"])
