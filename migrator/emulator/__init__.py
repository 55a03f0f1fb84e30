"""Runs the real torch_npu on a machine without an NPU.

CANN's libraries are replaced by stand-ins that keep "device" memory on the host, and the NPU's
operators by the CPU's. A program needs no change: it is started with the variables of `environment`.

Importing this package is cheap and imports no torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import EmulatorError

__all__ = ["EmulatorError", "check", "environment"]

_SITE = Path(__file__).parent / "site"


def check() -> None:
    """Raise EmulatorError, saying what to install, unless the emulator can run with this interpreter.

    Builds the emulator's libraries if they are not in the cache yet (about two seconds).
    """
    from . import requirements, stubs

    requirements.require_platform()
    stubs.ensure_libraries(requirements.require_wheels())


def environment(*, devices: int = 1, shared_rng: bool = False, soc: str | None = None) -> dict[str, str]:
    """The environment variables with which a child process, and all of its children, see an NPU.

    The result is to be laid over os.environ; it extends the PYTHONPATH that is set there.

    devices: how many NPUs to emulate, 1 to 64.
    shared_rng: draw the device's random numbers from the CPU's stream, so that a run can be compared
        with the same run on the CPU.
    soc: the name of the chip, e.g. "Ascend910B1" (the default) or "Ascend310P3".

    Raises ValueError when the number of devices is out of range.
    """
    if not 1 <= devices <= 64:
        raise ValueError(f"the number of emulated devices must be 1 to 64, not {devices}")
    path = [str(_SITE)] + [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    variables = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "NPU_MIGRATE_EMULATOR_DEVICES": str(devices),
        "NPU_MIGRATE_EMULATOR_SHARED_RNG": str(int(shared_rng)),
        # The wheel would hand operators to a thread of its own; there is nothing to overlap with here.
        "TASK_QUEUE_ENABLE": "0",
    }
    if soc is not None:
        variables["NPU_MIGRATE_EMULATOR_SOC"] = soc
    return variables
