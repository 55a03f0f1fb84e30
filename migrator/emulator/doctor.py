"""python -m migrator.emulator --doctor: what the emulator found on this machine."""

from __future__ import annotations

import platform
import sys

from . import check, requirements, stubs
from .errors import EmulatorError


def report() -> int:
    """Print the findings; return 0 when the emulator can run here, and 1 when it cannot."""
    torch, torch_npu = requirements.find_torch(), requirements.find_torch_npu()
    compiler = requirements.find_compiler()
    rows = {
        "platform": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_version()} ({sys.executable})",
        "torch": _describe(torch),
        "torch_npu": _describe(torch_npu),
        "C compiler": " ".join(compiler) if compiler else "none",
        "cache": str(stubs.cache_dir()),
    }
    if torch_npu is not None:
        libraries = stubs.library_dir(torch_npu)
        rows["libraries"] = f"{libraries} ({'built' if libraries.is_dir() else 'not built yet'})"
    for name, value in rows.items():
        print(f"{name:11} {value}")
    try:
        check()
    except EmulatorError as error:
        print(f"The emulated NPU cannot run here: {error}")
        return 1
    print("The emulated NPU can run here.")
    return 0


def _describe(wheel: requirements.Wheel | None) -> str:
    return f"{wheel.version} ({wheel.folder})" if wheel else "not installed"
