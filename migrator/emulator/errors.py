"""The one error that the emulator's machinery raises."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """The emulator cannot run here; the message says why and what to do about it."""
