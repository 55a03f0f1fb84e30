"""Building the stand-ins of CANN's libraries."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from migrator.emulator import EmulatorError, requirements, stubs
from migrator.emulator.elf import read_library


@pytest.fixture
def wheel(emulator: None) -> requirements.Wheel:
    return requirements.require_wheels()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "emulator"


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NPU_MIGRATE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stubs.cache_dir() == tmp_path / "npu-migrate"
    monkeypatch.setenv("NPU_MIGRATE_CACHE", str(tmp_path / "elsewhere"))
    assert stubs.cache_dir() == tmp_path / "elsewhere"


def test_several_processes_build_at_once(wheel: requirements.Wheel, cache: Path) -> None:
    code = "from migrator.emulator import check; check()"
    root = str(Path(stubs.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}

    def build(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )

    with ThreadPoolExecutor(3) as pool:
        for done in pool.map(build, range(3)):
            assert done.returncode == 0, done.stderr
    assert [path.name for path in cache.iterdir()] == [stubs.library_dir(wheel).name]


def test_every_symbol_of_the_wheel_is_defined(wheel: requirements.Wheel, cache: Path) -> None:
    folder = stubs.ensure_libraries(wheel)
    own = read_library(folder / "libascendcl.so").defined
    wanted = read_library(wheel.folder / "lib" / "libtorch_npu.so").undefined
    cann = {name for name in wanted if name.startswith(("acl", "Hccl", "rt"))}
    assert len(cann) > 50
    assert cann <= own


def test_launches_fail_and_say_so(wheel: requirements.Wheel, cache: Path) -> None:
    library = ctypes.CDLL(str(stubs.ensure_libraries(wheel) / "libascendcl.so"))
    library.aclGetRecentErrMsg.restype = ctypes.c_char_p
    assert library.rtKernelLaunch() != 0
    assert library.aclGetRecentErrMsg() == b"the emulated NPU does not implement rtKernelLaunch"
    assert library.aclopCompileAndExecute(b"Add") != 0
    assert library.aclGetRecentErrMsg() == b"the emulated NPU does not implement Add"


def test_libraries_are_built_once(wheel: requirements.Wheel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stubs.ensure_libraries(wheel)
    monkeypatch.setenv("PATH", "")
    assert stubs.ensure_libraries(wheel) == folder


def test_failing_compiler(wheel: requirements.Wheel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(EmulatorError, match=r"building libascendcl.so .*failed[\s\S]*\$ false"):
        stubs.ensure_libraries(wheel)
    assert not list(cache.iterdir())


def test_unwritable_cache(wheel: requirements.Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NPU_MIGRATE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EmulatorError, match="set NPU_MIGRATE_CACHE"):
        stubs.ensure_libraries(wheel)


def test_not_a_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ValueError, match="not a 64-bit"):
        read_library(tmp_path / "text.so")


@pytest.mark.parametrize(
    ("installed", "visible", "count"),
    [
        ("4", None, 4),
        ("4", "0,2", 2),
        ("4", "2,1", 0),
        ("4", "0,9,1", 1),
        ("4", "0, 1", 1),
        ("4", "", 0),
        ("nonsense", None, 1),
    ],
)
def test_visible_devices(
    wheel: requirements.Wheel,
    monkeypatch: pytest.MonkeyPatch,
    installed: str,
    visible: str | None,
    count: int,
) -> None:
    library = ctypes.CDLL(str(stubs.ensure_libraries(wheel) / "libascendcl.so"))
    monkeypatch.setenv("NPU_MIGRATE_EMULATOR_DEVICES", installed)
    if visible is None:
        monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
    found = ctypes.c_uint32(99)
    assert library.aclrtGetDeviceCount(ctypes.byref(found)) == 0
    assert found.value == count
