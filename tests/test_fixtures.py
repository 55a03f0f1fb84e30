"""The example repositories: each `before` migrates to its reviewed `after`, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "fixtures"
REPOSITORIES = sorted(path.parent for path in ROOT.glob("*/before"))


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def migrate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "migrator", str(folder), "--torch-npu", "2.7.1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(params=REPOSITORIES, ids=lambda path: path.name)
def repository(request):
    return request.param


def copy(repository: Path, to: Path) -> Path:
    for name, data in tree(repository / "before").items():
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return to


def test_before_becomes_after(repository, tmp_path):
    work = copy(repository, tmp_path / "repo")
    done = migrate(work)
    assert done.returncode == 1, done.stderr
    assert tree(work) == tree(repository / "after")


def test_after_stays_as_it_is(repository):
    done = migrate(repository / "after", "--dry-run")
    assert done.stdout == ""


def test_the_diff_applies(repository, tmp_path):
    work = copy(repository, tmp_path / "repo")
    diff = subprocess.run(
        [sys.executable, "-m", "migrator", str(work), "--torch-npu", "2.7.1", "--dry-run"],
        capture_output=True,
        check=False,
    ).stdout
    assert tree(work) == tree(repository / "before"), "a dry run writes nothing"
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    subprocess.run(["git", "apply", "-"], input=diff, cwd=work, check=True)
    applied = {name: data for name, data in tree(work).items() if not name.startswith(".git/")}
    assert applied == tree(repository / "after")
