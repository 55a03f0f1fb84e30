"""npu-migrate smoke on the command line: usage, messages, exit codes, the first line, JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from migrator.cli import main
from migrator.emulator import requirements
from migrator.emulator.requirements import Wheel

EMULATED = ("--device", "emulated")


def smoke(*arguments: str) -> int:
    return main(["smoke", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", "cpu"], "need a CMD to run"),
        (["--artifact", "x.pt", "--", "python"], "add --compare cpu"),
        (["--compare", "cpu", "--record", "x", "--", "python"], "leave out --record and --against"),
        (["--record", "x", "--against", "y", "--", "python"], "one at a time"),
        (["--device", "cpu", "--", "python"], "--device cpu is for --record and --against"),
        (["--migrate", "--compare", "cpu", "--original", ".", "--", "python"], "leave out --original"),
        (["--original", ".", "--", "python"], "add --compare cpu"),
    ],
)
def test_contradictions(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(str(tmp_path), *arguments) == 2
    assert message in capsys.readouterr().err


def test_record_does_not_overwrite_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").touch()
    assert smoke(str(tmp_path), "--record", str(tmp_path), "--", "python") == 2
    assert "holds other files; name a new one" in capsys.readouterr().err


def test_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("migrator.smoke.device.find_torch", lambda: None)
    assert smoke(str(tmp_path)) == 2
    assert capsys.readouterr().err.rstrip().endswith("-m pip install 'npu-migrate[smoke]'")


def test_no_torch_npu(
    emulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "find_torch_npu", lambda: None)
    assert smoke(str(tmp_path), *EMULATED) == 2
    message = capsys.readouterr().err
    assert "torch_npu is not installed" in message
    assert "pip install 'npu-migrate[smoke]'" in message


def test_wrong_pair(
    emulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "find_torch", lambda: Wheel("2.7.1+cpu", tmp_path))
    assert smoke(str(tmp_path), *EMULATED) == 2
    message = capsys.readouterr().err
    assert re.search(r"torch_npu 2\.13\.0 needs torch==2\.13\.0\S*, but torch 2\.7\.1\+cpu is installed", message)
    assert 'pip install "torch==2.13.0' in message


def test_no_npu(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(str(tmp_path), "--device", "npu") == 2
    message = capsys.readouterr().err
    assert "there is no NPU here" in message
    assert "--device emulated" in message


def test_command_not_found(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(str(tmp_path), *EMULATED, "--", "no-such-command") == 2
    assert capsys.readouterr().err.startswith("npu-migrate: command not found: no-such-command")


def test_unknown_rule(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(str(tmp_path), *EMULATED, "--migrate", "--ignore", "NPU9999") == 2
    assert "NPU9999" in capsys.readouterr().err


def test_compare_needs_the_original(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(str(tmp_path), *EMULATED, "--compare", "cpu", "--", "python", "-c", "1") == 2
    assert "name it: --original DIR" in capsys.readouterr().err


def test_time_limit(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "print('begun'); import time; time.sleep(600)"
    assert smoke(str(tmp_path), *EMULATED, "--timeout", "1", "--", "python", "-c", code) == 1
    first, second, *_ = lines = capsys.readouterr().out.splitlines()
    assert first.startswith("Device: emulated NPU (Ascend910B1), torch ")
    assert second == "An emulated run cannot vouch for kernel limits, precision, speed and real HCCL."
    assert "FAILED on the emulated NPU: time limit reached after 1 s" in lines
    assert "  | begun" in lines
    assert lines[-1] == "FAIL"


def test_missing_package_is_no_fault_of_the_code(
    emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke(str(tmp_path), *EMULATED, "--", "python", "-c", "import no_such_package") == 2
    assert "COULD NOT RUN: package no_such_package is missing" in capsys.readouterr().out


def test_json(emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ops.py").write_text(
        "import torch, torch_npu\nx = torch.ones(3, device='npu')\ntorch.digamma(x)\nx.double().cumsum(0)\n"
        "float('nan')\nraise SystemExit(5)\n"
    )
    assert smoke(str(tmp_path), *EMULATED, "--soc", "Ascend910B3", "--format", "json", "--", "python", "ops.py") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["verdict"] == "fail"
    assert document["device"]["kind"] == "emulated"
    assert document["device"]["name"] == "Ascend910B3"
    assert "precision" in document["device"]["cannot_vouch_for"]
    assert document["run"]["exit_code"] == 5
    found = {item["name"]: item for item in document["operators"]}
    assert found["digamma"]["verdict"] == "runs on the CPU"
    assert found["digamma"]["places"] == [["ops.py", 3]]
    assert found["_to_copy"]["verdict"] == "not supported"
    assert found["_to_copy"]["dtypes"] == ["float64"]
    assert found["_to_copy"]["places"] == [["ops.py", 4]]
