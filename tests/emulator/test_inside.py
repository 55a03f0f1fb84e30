"""Runs the tests of the folder npu/ in one process on two emulated NPUs, and reports them file by file."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from migrator.emulator import environment

FOLDER = Path(__file__).parent / "npu"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))


@pytest.fixture(scope="session")
def outcomes(emulator: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """For each file the failures of its tests, as text; a file without tests is missing."""
    report = tmp_path_factory.mktemp("inside") / "report.xml"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(FOLDER), "-q", "-p", "no:cacheprovider", f"--junitxml={report}"],
        env={**os.environ, **environment(devices=2), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if not report.is_file():
        pytest.fail(f"the tests did not run:\n{run.stdout}\n{run.stderr}")
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failures = found.setdefault(case.get("classname", "").rpartition(".")[2], [])
        for problem in [*case.iter("failure"), *case.iter("error")]:
            failures.append(f"{case.get('name')}:\n{problem.text}")
    return found


@pytest.mark.parametrize("name", FILES)
def test_on_emulated_npu(name: str, outcomes: dict[str, list[str]]) -> None:
    assert name in outcomes, f"{name} was not run"
    assert not outcomes[name], "\n\n".join(outcomes[name])
