from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

with pytest.MonkeyPatch.context() as patch:  # torch_npu may be installed where no NPU is
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    pytest.importorskip("torch")

from migrator.shapes.record import journal

Row = dict[str, str]


@pytest.fixture(autouse=True)
def fresh_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start every test with an empty journal that is written below ``tmp_path``."""
    for name in ("", "_OUT", "_STEPS"):
        monkeypatch.delenv(f"NPU_MIGRATE_SHAPES{name}", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    journal.__init__()
    yield
    journal.__init__()


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[], list[Row]]:
    """Return a function that reads the report."""

    def read() -> list[Row]:
        with (tmp_path / "npu_shapes" / "rank0.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    return read


@pytest.fixture
def line() -> Callable[[Any, str], int]:
    """Return a function that finds the line of a function or class where a text stands."""

    def find(code: Any, text: str) -> int:
        lines, first = inspect.getsourcelines(code)
        [number] = [first + i for i, source in enumerate(lines) if text in source]
        return number

    return find
