"""Which device a run is on, and what that needs and cannot tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum

from migrator import emulator
from migrator.emulator.requirements import find_torch, find_torch_npu

PROBE_SECONDS = 300
DEFAULT_CHIP = "Ascend910B1"
_PROBE = """
import json, importlib
found = {}
for device in ("npu", "cuda"):
    try:
        import torch
        if device == "npu":
            importlib.import_module("torch_npu")
        module = getattr(torch, device)
        if module.is_available():
            found[device] = module.get_device_name(0), module.device_count()
    except Exception:
        pass
print("\\n" + json.dumps(found))
"""


class DeviceError(RuntimeError):
    """A run is not possible on the device that was asked for; the message says what to install or choose."""


class Kind(str, Enum):
    """Where code runs."""

    NPU = "npu"
    EMULATED = "emulated"
    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True)
class Device:
    """The devices that the processes of a run see.

    name   the chip, e.g. "Ascend910B1"
    torch  the version of torch; torch_npu is None where it is not used
    """

    kind: Kind
    name: str
    count: int
    torch: str
    torch_npu: str | None

    @property
    def title(self) -> str:
        """For people, e.g. "emulated NPU"."""
        return {Kind.NPU: "NPU", Kind.EMULATED: "emulated NPU", Kind.CUDA: "CUDA", Kind.CPU: "CPU"}[self.kind]

    @property
    def is_npu(self) -> bool:
        """Whether torch_npu runs on it."""
        return self.kind in (Kind.NPU, Kind.EMULATED)

    def variables(self, shared_rng: bool) -> dict[str, str]:
        """The environment variables with which a process sees this device."""
        if self.kind is not Kind.EMULATED:
            return {}
        return emulator.environment(devices=self.count, shared_rng=shared_rng, soc=self.name)


def choose(wanted: Kind | None, *, devices: int = 1, chip: str | None = None, records: bool = False) -> Device:
    """The device to run on; without a wish a real NPU if there is one, else the emulated one.

    records: take CUDA or the CPU, where there is no NPU, rather than emulate one.
    Raises DeviceError.
    """
    torch = find_torch()
    if torch is None:
        raise DeviceError(
            "torch is not installed in this Python environment, and the code runs in it: "
            f"{sys.executable} -m pip install 'npu-migrate[smoke]'"
        )
    if wanted is None or wanted in (Kind.NPU, Kind.CUDA):
        found = _probe()
        order = [wanted] if wanted else [Kind.NPU, *([Kind.CUDA] if records else [])]
        for kind in order:
            if kind.value in found:
                name, count = found[kind.value]
                return Device(kind, name, count, torch.version, _torch_npu() if kind is Kind.NPU else None)
        if wanted:
            module = "torch_npu" if wanted is Kind.NPU else "torch"
            raise DeviceError(
                f"there is no {wanted.value.upper()} here: torch.{wanted.value}.is_available() is not true after "
                f"`import {module}` in a fresh process; --device emulated runs on the emulated NPU"
            )
    if wanted is Kind.CPU or (wanted is None and records):
        return Device(Kind.CPU, "CPU", devices, torch.version, None)
    try:
        emulator.check()
        emulator.environment(devices=devices)
    except (emulator.EmulatorError, ValueError) as error:
        raise DeviceError(str(error)) from error
    return Device(Kind.EMULATED, chip or DEFAULT_CHIP, devices, torch.version, _torch_npu())


def _torch_npu() -> str | None:
    wheel = find_torch_npu()
    return wheel.version if wheel else None


def _probe() -> dict[str, tuple[str, int]]:
    """The accelerators that a fresh process sees: kind → (name, count)."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
        found: dict[str, tuple[str, int]] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, OSError, ValueError, IndexError):  # a driver may hang or crash
        return {}
    return found
