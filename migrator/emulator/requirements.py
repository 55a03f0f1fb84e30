"""What the emulator needs from this machine and interpreter, and what to install when it is missing.

Nothing here imports torch: the answers come from package metadata, so that asking is cheap and safe.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from .errors import EmulatorError

MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Wheel:
    """An installed package: its version and the folder that holds it."""

    version: str
    folder: Path

    @property
    def release(self) -> str:
        """The version without its build, e.g. 2.13.0 of 2.13.0+cpu."""
        return Version(self.version).public


def find_wheel(distribution: str, package: str) -> Wheel | None:
    """The installed distribution, or None."""
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Wheel(version, Path(spec.origin).parent)


def find_torch() -> Wheel | None:
    """The installed torch, or None."""
    return find_wheel("torch", "torch")


def find_torch_npu() -> Wheel | None:
    """The installed torch_npu, or None."""
    return find_wheel("torch-npu", "torch_npu")


def find_compiler() -> list[str] | None:
    """The command of the C compiler: $CC, cc, gcc or clang; None when there is none."""
    chosen = shlex.split(os.environ.get("CC", ""))
    for command in (chosen, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return None


def require_platform() -> None:
    """Raise EmulatorError unless this is Linux on a machine for which torch_npu has wheels."""
    if sys.platform != "linux":
        raise EmulatorError(
            f"the emulated NPU runs on Linux only, and this is {platform.system()}: "
            "use a Linux machine, a container or WSL"
        )
    if platform.machine() not in MACHINES:
        raise EmulatorError(
            f"there is no torch_npu for {platform.machine()}: use a machine that is one of {', '.join(MACHINES)}"
        )


def require_wheels() -> Wheel:
    """The installed torch_npu; EmulatorError unless it and a CPU build of its torch are installed."""
    wheel = find_torch_npu()
    if wheel is None:
        raise EmulatorError(
            "torch_npu is not installed in this Python environment: "
            f"{sys.executable} -m pip install 'npu-migrate[smoke]'"
        )
    wanted = _torch_requirement(wheel)
    remedy = (
        f'{sys.executable} -m pip install "torch{wanted.specifier}" --index-url https://download.pytorch.org/whl/cpu'
    )
    torch = find_torch()
    if torch is None:
        raise EmulatorError(f"torch is not installed, and torch_npu {wheel.version} needs it: {remedy}")
    if not wanted.specifier.contains(torch.release, prereleases=True):
        raise EmulatorError(
            f"torch_npu {wheel.version} needs torch{wanted.specifier}, but torch {torch.version} is installed: {remedy}"
        )
    accelerator = _accelerator(torch)
    if accelerator is not None:
        raise EmulatorError(
            f"torch {torch.version} is built for {accelerator}, and torch_npu needs the CPU build: {remedy}"
        )
    return wheel


def require_compiler() -> list[str]:
    """The command of the C compiler; EmulatorError when there is none."""
    compiler = find_compiler()
    if compiler is None:
        raise EmulatorError(
            "the emulated NPU builds a small C library on first use, and there is no C compiler: install one "
            "(Debian, Ubuntu: apt install gcc libc6-dev; RHEL, Fedora, openEuler: dnf install gcc glibc-devel), "
            "or set CC"
        )
    return compiler


def _torch_requirement(wheel: Wheel) -> Requirement:
    for line in metadata.requires("torch-npu") or ():
        requirement = Requirement(line)
        if requirement.name == "torch" and requirement.specifier:
            # A pin on torch==X+cpu is a pin on X: which build it is gets its own message.
            return Requirement(re.sub(r"\+\w+", "", f"torch{requirement.specifier}"))
    release = ".".join(str(part) for part in Version(wheel.version).release[:3])
    return Requirement(f"torch=={release}")


def _accelerator(torch: Wheel) -> str | None:
    """What torch's build is for besides the CPU, e.g. "CUDA 12.6"; None for the CPU build."""
    text = (torch.folder / "version.py").read_text(encoding="utf-8")
    for variable, title in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        built = re.search(rf"^{variable}\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
        if built:
            return f"{title} {built[1]}"
    return None
