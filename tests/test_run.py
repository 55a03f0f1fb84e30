from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from migrator import registry, run
from migrator.discover import Found, discover
from migrator.engine import Settings
from migrator.records import FileResult, Status
from migrator.target import Target

CUDA = "import torch\nx = torch.device('cuda')\n"
NPU = "import torch\nimport torch_npu\nx = torch.device('npu')\n"

# A rule that does to its worker what its argument says.
RULE = '''"""Misbehaves on purpose."""
import os
import signal
import time
from migrator.rule import MANUAL, Example, Rule

rule = Rule(id="XYZ001", name="misbehave", title="test", applicability=MANUAL, examples=[Example.unchanged("")])


@rule.on_string("misbehave")
def misbehave(match):
    if match.value == "misbehave: die":
        os.kill(os.getpid(), signal.SIGKILL)
    if match.value == "misbehave: raise":
        raise ZeroDivisionError("on purpose")
'''
DIE = CUDA + "y = 'misbehave: die'\n"
RAISE = CUDA + "y = 'misbehave: raise'\n"


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[Found], Settings]:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "misbehave.py").write_text(RULE)
    chosen = Settings(Target("2.7.1", None, "test"), registry.load([folder]).select(), False, (str(folder),))
    return lambda _: chosen


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., list[Found]]:
    def make(**contents: str | bytes) -> list[Found]:
        root = tmp_path / "root"
        for name, content in contents.items():
            path = root / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return discover([root]).files

    return make


def many(number: int, **others: str) -> dict[str, str]:
    return {f"f{index:03}": CUDA + f"# {index}\n" for index in range(number)} | others


def migrate(files: list[Found], settings: Callable[[Found], Settings], **options: object) -> dict[str, FileResult]:
    results = run.migrate_files(run.read_files(files, settings), **options)
    assert [result.path for result in results] == [file.display for file in files], "one result a file, in order"
    return {result.path: result for result in results}


def test_results_are_the_same_whatever_the_workers(tree, settings) -> None:
    files = tree(**many(30), plain="x = 1\n", broken="def (cuda\n")
    alone = migrate(files, settings, jobs=1)
    assert alone["f000.py"].after == NPU.encode() + b"# 0\n"
    assert alone["plain.py"].status is Status.UNCHANGED
    assert alone["broken.py"].status is Status.FAILED
    assert migrate(files, settings, jobs=2) == alone
    assert migrate(files[:3], settings) == {file.display: alone[file.display] for file in files[:3]}
    with ThreadPoolExecutor(2) as threads:
        assert migrate(files, settings, executor=threads) == alone
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        assert migrate(files, settings, executor=processes) == alone


def test_a_given_executor_stays_open(tree, settings) -> None:
    with ThreadPoolExecutor(1) as threads:
        migrate(tree(a=CUDA), settings, executor=threads)
        assert threads.submit(len, "abc").result() == 3


def test_progress_is_told(tree, settings) -> None:
    told: list[tuple[int, int]] = []
    migrate(tree(**many(3), plain="x\n"), settings, progress=lambda *figures: told.append(figures))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("number", [3, 40])
def test_a_worker_that_dies_costs_its_file_only(tree, settings, number: int) -> None:
    results = migrate(tree(**many(number, f001b=DIE, f002b=DIE)), settings, jobs=2)
    failed = {path: result for path, result in results.items() if result.status is Status.FAILED}
    assert sorted(failed) == ["f001b.py", "f002b.py"]
    assert all(result.diagnostics[0].rule == "NPU010" for result in failed.values())
    assert sum(result.status is Status.CHANGED for result in results.values()) == number
    assert not multiprocessing.active_children()


def test_a_rule_that_raises_costs_its_file_only(tree, settings) -> None:
    results = migrate(tree(a=CUDA, b=RAISE, c=CUDA), settings)
    assert [result.status for result in results.values()] == [Status.CHANGED, Status.FAILED, Status.CHANGED]
    (fault,) = results["b.py"].diagnostics
    assert fault.rule == "NPU005"
    assert "XYZ001" in fault.message
    assert "on purpose" in fault.message


def test_a_bug_in_the_engine_costs_its_file_only(tree, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate_one = run.engine.migrate

    def buggy(raw: bytes, path: str, *rest: object) -> FileResult:
        if path == "b.py":
            raise AssertionError("a bug")
        return migrate_one(raw, path, *rest)

    monkeypatch.setattr(run.engine, "migrate", buggy)
    results = migrate(tree(a=CUDA, b=CUDA, c=CUDA), settings, jobs=1)
    assert [result.status for result in results.values()] == [Status.CHANGED, Status.FAILED, Status.CHANGED]
    assert "internal error: AssertionError: a bug" in (results["b.py"].error or "")


class BrokenExecutor(Executor):
    def submit(self, function, /, *arguments, **keywords) -> Future:
        future: Future = Future()
        if any(item.display == "b.py" for item in arguments[0]):
            future.set_exception(RuntimeError("the node is gone"))
        else:
            future.set_result(function(*arguments, **keywords))
        return future


def test_an_executor_that_fails_costs_what_it_had(tree, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_CHUNK_BYTES", 1)
    results = migrate(tree(a=CUDA, b=CUDA, c=CUDA), settings, executor=BrokenExecutor())
    assert [result.status for result in results.values()] == [Status.CHANGED, Status.FAILED, Status.CHANGED]
    assert "the node is gone" in (results["b.py"].error or "")


def test_an_interrupted_run_leaves_no_workers(tree, settings) -> None:
    reading = run.read_files(tree(**many(30)), settings)
    answers = run.migrate_items(reading.items, reading.project, jobs=2)
    next(answers)
    assert multiprocessing.active_children()
    answers.close()
    assert not multiprocessing.active_children()


def test_facts_come_from_all_files(tree, settings) -> None:
    files = tree(
        batch="class Batch:\n    def cuda(self):\n        return self\n",
        use="import torch\nfrom batch import Batch\nBatch().cuda()\n",
    )
    assert migrate(files, settings)["use.py"].after is None


def test_imports_count_from_above_the_package(tree, settings) -> None:
    files = tree(
        **{
            "pkg/__init__": "",
            "pkg/amp": "from torch.cuda.amp import autocast\n",
            "pkg/use": "from pkg.amp import autocast\nwith autocast():\n    print('cuda')\n",
        }
    )
    inside = discover([files[0].root / "pkg"]).files
    reading = run.read_files(inside, settings)
    assert [item.module_path for item in reading.items] == ["pkg/amp.py", "pkg/use.py"]
    assert [item.display for item in reading.items] == ["amp.py", "use.py"]


# --- what is no source code -------------------------------------------------------------------------------


def test_an_unreadable_file(tree, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tree(a=CUDA, b=CUDA)
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "a.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    results = migrate(files, settings)
    assert [result.status for result in results.values()] == [Status.FAILED, Status.CHANGED]
    assert results["a.py"].error == "cannot be read: Permission denied"
    assert results["a.py"].diagnostics[0].rule == "NPU003"


def test_binary_and_enormous_files_are_skipped_if_they_matter(tree, settings) -> None:
    padding = "# padding\n" * 600_000
    results = migrate(
        tree(bin=b"cuda\0\0", quiet=b"\0\0", large=CUDA + padding, harmless="x = 1\n" + padding), settings
    )
    assert {path: result.status for path, result in results.items()} == {
        "bin.py": Status.SKIPPED,
        "harmless.py": Status.UNCHANGED,
        "large.py": Status.SKIPPED,
        "quiet.py": Status.UNCHANGED,
    }
    assert results["bin.py"].diagnostics[0].rule == "NPU004"
    assert "6.0 MB" in (results["large.py"].error or "")


# --- writing ----------------------------------------------------------------------------------------------


@pytest.fixture
def changed(tree, settings) -> Iterator[tuple[Found, FileResult]]:
    (file,) = tree(a=CUDA)
    return file, migrate([file], settings)["a.py"]


def test_write(changed) -> None:
    file, result = changed
    file.path.chmod(0o755)
    assert run.write(file, result) == result
    assert file.path.read_text() == NPU
    assert os.access(file.path, os.X_OK)


def test_write_refuses_a_read_only_file(changed) -> None:
    file, result = changed
    file.path.chmod(0o444)
    failed = run.write(file, result)
    assert (failed.status, failed.error) == (Status.FAILED, "cannot be written: the file is read-only")
    assert failed.diagnostics[0].rule == "NPU009"
    assert not any(found.fixed for found in failed.diagnostics)
    assert failed.after is None
    assert file.path.read_text() == CUDA


def test_write_does_not_overwrite_what_came_in_between(changed) -> None:
    file, result = changed
    file.path.write_text("theirs")
    failed = run.write(file, result)
    assert failed.status is Status.FAILED
    assert file.path.read_text() == "theirs"
