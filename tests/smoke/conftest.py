from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.emulator import EmulatorError, check
from migrator.smoke import session
from migrator.smoke.device import Kind
from migrator.smoke.request import Report, Request

Check = Callable[..., Report]


@pytest.fixture(scope="session")
def emulator() -> None:
    """Skip unless torch_npu can be emulated here."""
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smoke(emulator: None) -> Check:
    """`smoke(path, "python", "train.py", compare="cpu", ...)`: the report of a check on the emulated NPU."""

    def run(path: Path, *command: str, **options: Any) -> Report:
        options = {"device": Kind.EMULATED, "timeout": 300, **options}
        return session.check(Request(path=path, command=command, **options), lambda message: None)

    return run
