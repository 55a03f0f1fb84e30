"""The migration as a command of libcst.tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import libcst as cst
import pytest
from libcst.codemod import CodemodContext, SkipFile

from migrator.codemod import Migrate

ROOT = Path(__file__).parents[1]


def test_libcst_tool_makes_what_npu_migrate_makes(tmp_path: Path) -> None:
    tree = tmp_path / "gan"
    shutil.copytree(ROOT / "fixtures/gan/before", tree)
    command = ["-m", "libcst.tool", "codemod", "--no-format", "-x", "migrator.codemod.Migrate", "--torch-npu", "2.7.1"]
    done = subprocess.run(
        [sys.executable, *command, "."],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for after in (ROOT / "fixtures/gan/after").rglob("*.py"):
        assert (tree / after.relative_to(ROOT / "fixtures/gan/after")).read_text() == after.read_text()
    assert "line 38: NPU104 MetricBuffer.cuda is your own" in done.stdout + done.stderr


def transformed(path: Path, **options: object) -> tuple[str, list[str]]:
    context = CodemodContext(filename=str(path))
    module = Migrate(context, torch_npu="2.7.1", **options).transform_module(cst.parse_module(path.read_bytes()))
    return module.code, context.warnings


def test_options(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import torch\nx.cuda()\ny = torch.device('cuda')\n")
    assert "x.npu()" in transformed(path)[0]
    only = transformed(path, select=["device-string"])[0]
    assert "x.cuda()" in only and "'npu'" in only
    assert "'cuda'" in transformed(path, ignore=["NPU101"])[0]


def test_files_that_are_none_of_its_business_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    assert transformed(path) == ("x = 1\n", [])


def test_a_file_that_cannot_be_migrated_is_skipped(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.npu-migrate]\nrules-dir = ["own"]\n')
    (tmp_path / "own").mkdir()
    (tmp_path / "own/crash.py").write_text(
        '"""Crashes."""\nfrom migrator.rule import SAFE, Rule\n'
        'rule = Rule("OWN001", "crash", "crashes", SAFE, [])\n'
        '@rule.on_method("cuda")\ndef crash(match):\n    raise ValueError("oh")\n'
    )
    path = tmp_path / "a.py"
    path.write_text("x.cuda()\n")
    with pytest.raises(SkipFile, match=r"OWN001 \(crash\) raised ValueError at line 1: oh"):
        transformed(path, select=["OWN"])
