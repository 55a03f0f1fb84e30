"""Builds stand-ins for the CANN libraries that an installed torch_npu links against.

The libraries hold csrc/runtime.c plus a generated definition of every other CANN symbol that the
wheel leaves undefined. They are built once per wheel, into the user's cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .elf import read_library
from .errors import EmulatorError
from .requirements import Wheel, require_compiler

_RUNTIME = Path(__file__).parent / "csrc" / "runtime.c"
_MAIN = "libascendcl.so"
# Libraries that the wheel opens by name at run time instead of linking against them.
_OPENED = frozenset({"libhccl.so", "libopapi.so", "libascend_hal.so", "libmsprofiler.so"})
_SYSTEM = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so|lib(torch|c10)")
_CANN_SYMBOL = re.compile(r"acl|rt[A-Z]|Hccl|Msprof|_ZNK?(2ge|3atb)")
# Functions that the wheel looks up by name, without linking against them; the operators (aclnn...) stay away.
_LOOKED_UP = re.compile(rb"\0((?:acl(?!nn)|Hccl)[A-Za-z0-9]{4,60})(?=\0)")
# Bookkeeping that may succeed without doing anything. All else fails by name: a launch that returned
# success would leave its result full of whatever was in memory.
_HARMLESS = re.compile(
    r"aclAppLog|Msprof|HcclSetConfig"
    r"|acl(Create|Destroy|Get|Set)|aclop(Create|Destroy|Set|Start|Stop)|aclmdl(Init|Set|Finalize)Dump"
    r"|aclrt(Set|Reset|Synchronize|StreamWait|DeviceEnable|Free|Unmap|Release)"
    r"|acltdt(Create|Destroy|Get)|_ZNK?2ge(?!7Session)"
)


def cache_dir() -> Path:
    """The folder for everything that this package builds: $NPU_MIGRATE_CACHE or the XDG cache folder."""
    chosen = os.environ.get("NPU_MIGRATE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "npu-migrate"


def library_dir(wheel: Wheel) -> Path:
    """Where the stand-ins for this wheel are, or will be."""
    digest = hashlib.sha256()
    for source in (_RUNTIME, Path(__file__)):
        digest.update(source.read_bytes())
    for library in _wheel_libraries(wheel):
        digest.update(f"{library.name}:{library.stat().st_size}".encode())
    return cache_dir() / "emulator" / f"torch_npu-{wheel.version}-{digest.hexdigest()[:16]}"


def ensure_libraries(wheel: Wheel) -> Path:
    """The folder with the stand-ins, built if need be. Several processes may call this at once.

    Raises EmulatorError when there is no compiler, it fails, or the cache cannot be written.
    """
    target = library_dir(wheel)
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    except OSError as error:
        raise EmulatorError(
            f"cannot write the emulator's libraries to {target.parent} ({error.strerror}): "
            "set NPU_MIGRATE_CACHE to a folder that you can write to"
        ) from error
    try:
        build_libraries(wheel, beside)
        beside.chmod(0o755)
        try:
            beside.rename(target)
        except OSError:
            if not target.is_dir():  # another process may have been faster: its copy is the same
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def build_libraries(wheel: Wheel, target: Path) -> None:
    """Compile the stand-ins for this wheel into the folder `target`."""
    libraries = [read_library(path) for path in _wheel_libraries(wheel)]
    own = {path.name for path in _wheel_libraries(wheel)}
    defined = frozenset().union(*(library.defined for library in libraries))
    undefined = frozenset().union(*(library.undefined for library in libraries)) - defined
    needed = frozenset().union(*(library.needed for library in libraries)) - own
    runtime = _RUNTIME.read_text(encoding="utf-8")
    written = set(re.findall(r"^(?:\w+ )+\*?(\w+)\([^;]*?\) ?\{", runtime, re.MULTILINE))
    source = target / "runtime.c"
    missing = {name for name in undefined if _CANN_SYMBOL.match(name)} | _looked_up(wheel)
    definitions = "".join(_definition(name) for name in sorted(missing - written))
    source.write_text(f"{runtime}\n{definitions}", encoding="utf-8")
    compiler = require_compiler()
    _compile(compiler, target / _MAIN, [str(source)])
    empty = target / "empty.c"
    empty.touch()
    for name in sorted(needed | _OPENED):
        if name != _MAIN and not _SYSTEM.match(name):
            # Linked to the main one, so that dlsym on any of them finds every function.
            _compile(compiler, target / name, [str(empty), "-Wl,--no-as-needed", f"-L{target}", "-lascendcl"])


def load_libraries(folder: Path) -> None:
    """Load the stand-ins, so that loading the wheel finds them by their SONAME without a search path."""
    main = folder / _MAIN
    for path in [main, *sorted(set(folder.glob("lib*.so")) - {main})]:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _wheel_libraries(wheel: Wheel) -> list[Path]:
    patterns = ("_C*.so", "lib/*.so", "dynamo/torchair/core/*.so")
    return sorted(path for pattern in patterns for path in wheel.folder.glob(pattern))


def _looked_up(wheel: Wheel) -> set[str]:
    """The functions that the wheel looks up and that may do nothing; it reports the others as missing."""
    names = _LOOKED_UP.findall((wheel.folder / "lib" / "libtorch_npu.so").read_bytes())
    return {name for name in map(bytes.decode, names) if _HARMLESS.match(name)}


def _definition(name: str) -> str:
    if _HARMLESS.match(name):
        return f"long {name}() {{ return 0; }}\n"
    return f'long {name}() {{ return emulator_unavailable("{name}"); }}\n'


def _compile(compiler: list[str], library: Path, arguments: list[str]) -> None:
    command = [*compiler, "-O1", "-w", "-std=gnu11", "-fPIC", "-shared", "-o", str(library)]
    command += [f"-Wl,-soname,{library.name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulatorError(
            f"building {library.name} for the emulated NPU failed. Check that the C compiler and the C library's "
            f"headers are installed.\n$ {' '.join(command)}\n{done.stderr.strip()}"
        )
