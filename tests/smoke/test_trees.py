from __future__ import annotations

from pathlib import Path

import pytest

from migrator.smoke import failures, trees
from migrator.smoke.migration import Migration, plan

OVERRIDES = {"unsafe": False, "select": (), "ignore": (), "torch_npu": "2.13.0", "soc": None}


def test_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "BIG_FOLDER", 1000)
    tree = tmp_path / "tree"
    for name in (".git/HEAD", ".venv/pyvenv.cfg", "a/code.py", "data/images/1.bin", "small/x.txt", "big_code/m.py"):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * (900 if name.endswith("x.txt") else 1100))
    (tree / "inner").symlink_to("a")
    (tree / "absolute").symlink_to(tree / "small")
    (tree / "outer").symlink_to(tmp_path)
    (tree / "nowhere").symlink_to("gone")
    copy = trees.copy_tree(tree, tmp_path / "copy")
    assert {path.name for path in copy.root.iterdir()} == {path.name for path in tree.iterdir()} - {".git", ".venv"}
    assert copy.linked == [Path("data")]
    assert (copy.root / "data").readlink() == tree / "data"
    assert not (copy.root / "small").is_symlink()
    assert (copy.root / "inner").resolve() == copy.root / "a"
    assert (copy.root / "absolute").resolve() == copy.root / "small"
    assert (copy.root / "outer").resolve() == tmp_path
    assert (copy.root / "nowhere").is_symlink()
    assert copy.touched() == []
    (copy.root / "data" / "new.bin").write_text("written through the link")
    (copy.root / "a" / "code.py").write_text("changed")
    assert copy.touched() == [tree / "data" / "new.bin"]
    assert (tree / "a" / "code.py").read_text() == "x" * 1100


@pytest.mark.parametrize(
    ("argument", "translated"),
    [
        ("cuda", "npu"),
        ("cuda:1", "npu:1"),
        ("--device=cuda", "--device=npu"),
        ("model.device=cuda:0", "model.device=npu:0"),
        ("--cuda", "--cuda"),
        ("--cuda=1", "--cuda=1"),
        ("nccl", "hccl"),
        ("runs/cuda", "runs/cuda"),
        ("barracuda", "barracuda"),
        ("/repo/train.py", "/copy/train.py"),
        ("--config=/repo/a.yaml", "--config=/copy/a.yaml"),
        ("/repository/train.py", "/repository/train.py"),
    ],
)
def test_translated_command(argument: str, translated: str) -> None:
    words = {"cuda": "npu", "nccl": "hccl"}
    assert trees.translated([argument], words, Path("/repo"), Path("/copy")) == (translated,)


@pytest.fixture
def migrated(tmp_path: Path) -> tuple[Path, Migration]:
    """A migrated file whose lines have moved by one."""
    (tmp_path / "train.py").write_text(
        "import torch\n\nx = torch.ones(2).cuda()\ny = x + 1\n\ntorch.cuda.nvtx.mark('a')\n"
    )
    found = plan(tmp_path, OVERRIDES)
    found.write_to(tmp_path)
    return tmp_path, found


def output(root: Path, *frames: tuple[str, int], error: str = "ValueError: no", prefix: str = "") -> str:
    shown = [line for file, number in frames for line in (f'  File "{root / file}", line {number}, in f', "    code()")]
    return "\n".join(prefix + line for line in ["Traceback (most recent call last):", *shown, error]) + "\n"


def test_line_of_the_original(migrated: tuple[Path, Migration]) -> None:
    root, migration = migrated
    text = output(root, ("train.py", 4), ("/usr/lib/torch.py", 7))
    [found] = failures.find(text, root, migration, migrated=True)
    assert (found.error, found.path, found.line, found.original) == ("ValueError: no", "train.py", 4, 3)
    assert found.code == "x = torch.ones(2).npu()"
    assert [finding.fixed for finding in found.said] == [True]


def test_ranks_and_launchers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("code()\n")
    launcher = output(Path("/usr"), ("run.py", 1), error="ChildFailedError: ")
    ranks = [output(tmp_path, ("a.py", 1), error="KeyError: 'x'", prefix=f"[rank{rank}]: ") for rank in (0, 1)]
    text = "noise\n" + ranks[0] + ranks[1] + launcher
    [found] = failures.find(text, tmp_path)
    assert (found.error, found.path, found.line) == ("KeyError: 'x'", "a.py", 1)
    [only] = failures.find(launcher, tmp_path)
    assert only.path is None


def test_missing_package(tmp_path: Path) -> None:
    error = "ModuleNotFoundError: No module named 'yaml.loader'"
    [found] = failures.find(output(tmp_path, ("a.py", 1), error=error), tmp_path)
    assert found.missing_package == "yaml"


def test_no_traceback(tmp_path: Path) -> None:
    assert failures.find("Traceback (most recent call last):\nnonsense\n", tmp_path) == []
    assert failures.find("", tmp_path) == []
