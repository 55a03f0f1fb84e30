from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.emulator import EmulatorError, check, environment

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def emulator() -> None:
    """Skip unless torch_npu can be emulated here."""
    pytest.importorskip("packaging")
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))


@pytest.fixture
def run(emulator: None, tmp_path: Path) -> Run:
    """Runs python with the arguments on emulated NPUs and returns the finished process."""

    def run(
        *arguments: str, devices: int = 1, shared_rng: bool = False, succeeds: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        emulated = environment(devices=devices, shared_rng=shared_rng)
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**inherited, "OMP_NUM_THREADS": "1", **emulated, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if succeeds:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
