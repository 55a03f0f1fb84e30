"""What the emulator says when something that it needs is missing."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from migrator.emulator import EmulatorError, check, requirements

TORCH_VERSION = "__version__ = '2.7.1'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Pretends that these versions of torch and torch-npu are installed; None means not at all."""

    def install(torch: str | None, torch_npu: str | None, cuda: str = "None", hip: str = "None") -> None:
        installed = {"torch": torch, "torch_npu": torch_npu}
        (tmp_path / "version.py").write_text(TORCH_VERSION.format(cuda=cuda, hip=hip))

        def find(distribution: str, package: str) -> requirements.Wheel | None:
            version = installed[package]
            return requirements.Wheel(version, tmp_path) if version else None

        monkeypatch.setattr(requirements, "find_wheel", find)
        monkeypatch.setattr(metadata, "requires", lambda name: ["numpy", "torch==2.7.1+cpu"])

    return install


def message() -> str:
    with pytest.raises(EmulatorError) as caught:
        requirements.require_wheels()
    return str(caught.value)


def test_matching_pair(wheels) -> None:
    wheels("2.7.1+cpu", "2.7.1.post2")
    assert requirements.require_wheels().version == "2.7.1.post2"


def test_no_torch_npu(wheels) -> None:
    wheels("2.7.1+cpu", None)
    assert "torch_npu is not installed" in message()
    assert "pip install" in message()


def test_no_torch(wheels) -> None:
    wheels(None, "2.7.1")
    assert "torch is not installed, and torch_npu 2.7.1 needs it" in message()
    assert '"torch==2.7.1"' in message()


def test_wrong_torch(wheels) -> None:
    wheels("2.8.0+cpu", "2.7.1")
    assert "torch_npu 2.7.1 needs torch==2.7.1, but torch 2.8.0+cpu is installed" in message()


@pytest.mark.parametrize(("build", "title"), [({"cuda": "'12.6'"}, "CUDA 12.6"), ({"hip": "'6.3'"}, "ROCm 6.3")])
def test_torch_for_another_accelerator(wheels, build: dict[str, str], title: str) -> None:
    wheels("2.7.1+cu126", "2.7.1", **build)
    assert f"is built for {title}, and torch_npu needs the CPU build" in message()
    assert "whl/cpu" in message()


def test_wheel_that_names_no_torch(wheels, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels("2.6.0+cpu", "2.7.1.post1")
    monkeypatch.setattr(metadata, "requires", lambda name: None)
    assert "needs torch==2.7.1, but torch 2.6.0+cpu" in message()


def test_other_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(EmulatorError, match="Linux only, and this is Darwin"):
        check()


def test_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EmulatorError, match=r"no torch_npu for riscv64.*x86_64, aarch64"):
        check()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(EmulatorError, match=r"apt install gcc.*dnf install gcc"):
        requirements.require_compiler()


def test_chosen_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "my-cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"{compiler} -m64")
    assert requirements.require_compiler() == [str(compiler), "-m64"]


def test_importing_is_cheap() -> None:
    code = "import sys, migrator.emulator; print([name for name in ('torch', 'packaging') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
