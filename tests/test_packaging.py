"""The wheel: one top-level name, the rules inside it, and the commands that work from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def test_migrator_is_the_only_top_level_name(wheel):
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"migrator"}


def test_rules_data_and_types_are_inside(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    rules = {f"migrator/rules/{path.name}" for path in (ROOT / "rules").glob("*.py")}
    assert rules <= names
    assert "migrator/py.typed" in names
    data = [name for name in names if name.startswith("migrator/api/data/")]
    assert data and sum(zipfile.ZipFile(wheel).getinfo(name).file_size for name in data) <= 1_000_000


def test_works_from_the_wheel_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "a.py").write_text("import torch\nx = y.cuda()\n")
    done = subprocess.run(
        [sys.executable, "-m", "migrator", "a.py", "--dry-run"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "+x = y.npu()" in done.stdout


def test_docs_are_up_to_date():
    from migrator import catalogue, faults, registry

    assert (ROOT / "docs" / "rules.md").read_text() == catalogue.markdown(registry.load().rules, faults.ALL), (
        "run `make docs`"
    )
