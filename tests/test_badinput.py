"""Files as they are found in the wild, through the command line: one bad file costs nothing but itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from migrator.cli import main

ROOT = Path(__file__).parents[1]
CUDA = b"import torch\nx = torch.device('cuda')\n"
NPU = b"import torch\nimport torch_npu\nx = torch.device('npu')\n"
UNDECODABLE_NAME = os.fsdecode(b"caf\xe9.py")

# name → (bytes, the bytes after migration)
AWKWARD = {
    "empty.py": (b"", b""),
    "blank.py": (b"\n\n   \n", b"\n\n   \n"),
    "bom.py": (b"\xef\xbb\xbf" + CUDA, b"\xef\xbb\xbf" + NPU),
    "gbk.py": (
        "# -*- coding: gbk -*-\nimport torch\nx = torch.device('cuda')  # 设备\n".encode("gbk"),
        "# -*- coding: gbk -*-\nimport torch\nimport torch_npu\nx = torch.device('npu')  # 设备\n".encode("gbk"),
    ),
    "latin.py": (b"# coding: latin-1\n# caf\xe9\n" + CUDA, b"# coding: latin-1\n# caf\xe9\n" + NPU),
    "crlf.py": (CUDA.replace(b"\n", b"\r\n"), NPU.replace(b"\n", b"\r\n")),
    "mixed.py": (
        b"import torch\r\ny = 1\nx = torch.device('cuda')\r\nz = 2\r\n",
        b"import torch\r\nimport torch_npu\r\ny = 1\nx = torch.device('npu')\r\nz = 2\r\n",
    ),
    "cr.py": (CUDA.replace(b"\n", b"\r"), NPU.replace(b"\n", b"\r")),
    "formfeed.py": (
        b"import torch\n\x0c\nx = torch.device('cuda')\x0c # a\n\x0c\n",
        b"import torch\nimport torch_npu\n\x0c\nx = torch.device('npu')\x0c # a\n\x0c\n",
    ),
    "no_newline.py": (CUDA[:-1], NPU[:-1]),
    "blank_end.py": (CUDA + b"    ", NPU + b"    "),
    "tabs.py": (
        b"import torch\nif 1:\n\tx = torch.device('cuda')\t# a\n",
        b"import torch\nimport torch_npu\nif 1:\n\tx = torch.device('npu')\t# a\n",
    ),
    "with space.py": (CUDA, NPU),
    "new\nline.py": (CUDA, NPU),
    "设备.py": (CUDA, NPU),
    UNDECODABLE_NAME: (CUDA, NPU),
    "-dash.py": (CUDA, NPU),
}
# name → (bytes, the id of the diagnostic)
BROKEN = {
    "unparsable.py": (b"def cuda(:\n", "NPU001"),
    "python2.py": (b"print 'cuda'\n", "NPU001"),
    "raise2.py": (b"raise E, 'cuda'\n", "NPU001"),
    "undecodable.py": (b"x = 'caf\xe9'.cuda()\n", "NPU002"),
    "wrong_cookie.py": (b"# coding: ascii\nx.cuda()  # \xc3\xa9\n", "NPU002"),
    "unknown_cookie.py": (b"# coding: klingon\nx.cuda()\n", "NPU002"),
    "bom_and_cookie.py": (b"\xef\xbb\xbf# coding: latin-1\nx.cuda()\n", "NPU002"),
    "binary.py": (b"cuda\0\x01\xff", "NPU004"),
    "utf16.py": (b"\xff\xfe" + "x.cuda()\n".encode("utf-16-le") + b"cuda", "NPU004"),
    "enormous.py": (CUDA + b"# padding\n" * 1_000_000, "NPU004"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    return root


def fill(root: Path, files: dict[str, tuple[bytes, object]]) -> None:
    for name, (content, _) in files.items():
        (root / name).write_bytes(content)


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def report(root: Path, capsysbinary: pytest.CaptureFixture[bytes], *options: str) -> tuple[int, dict[str, dict]]:
    code = main([os.fspath(root), "--format", "json", *options])
    captured = capsysbinary.readouterr()
    assert b"Traceback" not in captured.err
    return code, {file["path"]: file for file in json.loads(captured.out)["files"]}


def test_awkward_files_are_migrated_byte_for_byte(tree: Path, capsysbinary) -> None:
    fill(tree, AWKWARD)
    assert main([os.fspath(tree), "-q"]) == 1
    assert contents(tree) == {name: after for name, (_, after) in AWKWARD.items()}
    assert main([os.fspath(tree), "-q"]) == 0, "a second run changes nothing"
    assert capsysbinary.readouterr() == (b"", b"")


def test_a_form_feed_in_front_of_code(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"import torch\ny = 1\n\x0cx = torch.device('cuda')\n")
    assert main([os.fspath(tree), "-q"]) == 1
    expected = b"import torch\nimport torch_npu\ny = 1\n\x0cx = torch.device('npu')\n"
    assert (tree / "a.py").read_bytes() == expected


def test_git_applies_the_diff_of_awkward_files(tree: Path, capsysbinary) -> None:
    fill(tree, AWKWARD)
    assert main([os.fspath(tree), "--dry-run", "-q"]) == 1
    assert contents(tree) == {name: before for name, (before, _) in AWKWARD.items()}
    patch = capsysbinary.readouterr().out
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"]
    subprocess.run(command, cwd=tree, input=patch, check=True)
    assert contents(tree) == {name: after for name, (_, after) in AWKWARD.items()}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files_as_arguments(tree: Path, capsysbinary, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tree, AWKWARD)
    monkeypatch.chdir(tree)
    assert main(["-q", "--", name]) == (AWKWARD[name][0] != AWKWARD[name][1])
    assert (tree / name).read_bytes() == AWKWARD[name][1]


def test_every_format_can_tell_odd_names(tree: Path, capsysbinary) -> None:
    fill(tree, AWKWARD)
    for format in ("text", "json", "sarif", "junit", "csv", "html"):
        assert main([os.fspath(tree), "--check", "--format", format, "--output", str(tree / "report.txt")]) == 1
        assert (tree / "report.txt").read_bytes().decode()


def test_broken_files_cost_only_themselves(tree: Path, capsysbinary) -> None:
    fill(tree, BROKEN)
    (tree / "good.py").write_bytes(CUDA)
    code, files = report(tree, capsysbinary)
    assert code == 2
    for name, (content, id) in BROKEN.items():
        assert [found["rule"] for found in files[name]["diagnostics"]] == [id], name
        assert files[name]["error"], name
        assert files[name]["status"] in ("failed", "skipped")
        assert (tree / name).read_bytes() == content
    assert files["good.py"]["status"] == "changed"
    assert (tree / "good.py").read_bytes() == NPU


def test_broken_files_without_cuda_are_nobody_s_business(tree: Path, capsysbinary) -> None:
    (tree / "python2.py").write_bytes(b"print 'hello'\n")
    (tree / "binary.py").write_bytes(b"\0\xff")
    (tree / "large.py").write_bytes(b"# padding\n" * 600_000)
    assert main([os.fspath(tree), "--check"]) == 0
    assert capsysbinary.readouterr() == (b"", b"")


def test_the_place_of_a_syntax_error_is_told(tree: Path, capsysbinary) -> None:
    (tree / "a.py").write_bytes(b"x.cuda()\n\nprint 'a'\n")
    _, files = report(tree, capsysbinary)
    assert files["a.py"]["diagnostics"][0]["line"] == 3


def test_an_unreadable_file(tree: Path, capsysbinary, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "good.py").write_bytes(CUDA)
    (tree / "secret.py").write_bytes(CUDA)
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:  # the tests may run as root, who can read everything
        if path.name == "secret.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    code, files = report(tree, capsysbinary)
    assert code == 2
    assert files["secret.py"]["error"] == "cannot be read: Permission denied"
    assert files["secret.py"]["diagnostics"][0]["rule"] == "NPU003"
    assert read(tree / "good.py") == NPU


def test_a_read_only_file_is_left_and_reported(tree: Path, capsysbinary) -> None:
    (tree / "good.py").write_bytes(CUDA)
    (tree / "locked.py").write_bytes(CUDA)
    (tree / "locked.py").chmod(0o444)
    code, files = report(tree, capsysbinary, "--dry-run")
    assert (code, files["locked.py"]["status"]) == (1, "changed"), "looking is allowed"
    code, files = report(tree, capsysbinary)
    assert code == 2
    assert files["locked.py"]["status"] == "failed"
    assert files["locked.py"]["diagnostics"][0]["rule"] == "NPU009"
    assert not any(found["fixed"] for found in files["locked.py"]["diagnostics"])
    assert contents(tree) == {"good.py": NPU, "locked.py": CUDA}
    assert (tree / "locked.py").stat().st_mode & 0o777 == 0o444


def test_the_mode_is_kept(tree: Path, capsysbinary) -> None:
    script = tree / "train"
    script.write_bytes(b"#!/usr/bin/env python\n" + CUDA)
    script.chmod(0o751)
    main([os.fspath(tree), "-q"])
    assert script.read_bytes() == b"#!/usr/bin/env python\n" + NPU
    assert script.stat().st_mode & 0o777 == 0o751


def test_links(tree: Path, tmp_path: Path, capsysbinary) -> None:
    (tmp_path / "outside.py").write_bytes(CUDA)
    (tree / "a.py").write_bytes(CUDA)
    (tree / "inside.py").symlink_to("a.py")
    (tree / "out.py").symlink_to(tmp_path / "outside.py")
    (tree / "loop").symlink_to(tree)
    (tree / "gone.py").symlink_to("nowhere.py")
    code, files = report(tree, capsysbinary)
    assert (code, list(files)) == (1, ["a.py"])
    assert (tree / "a.py").read_bytes() == NPU
    assert (tree / "inside.py").is_symlink()
    assert (tree / "out.py").is_symlink()
    assert (tmp_path / "outside.py").read_bytes() == CUDA


# --- rules that misbehave, signals ------------------------------------------------------------------------

RULE = '''"""Misbehaves on purpose."""
import os
import time
from pathlib import Path
from migrator.rule import MANUAL, Example, Rule

rule = Rule(id="XYZ001", name="misbehave", title="test", applicability=MANUAL, examples=[Example.unchanged("")])


@rule.on_string("misbehave")
def misbehave(match):
    what = match.value.removeprefix("misbehave: ")
    if what == "raise":
        raise ZeroDivisionError("on purpose")
    Path(__file__).with_name(f"pid-{os.getpid()}").touch()
    time.sleep(60)
'''


@pytest.fixture
def rules_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "misbehave.py").write_text(RULE)
    return folder


def test_a_rule_that_raises(tree: Path, rules_dir: Path, capsysbinary) -> None:
    (tree / "a.py").write_bytes(CUDA + b"y = 'misbehave: raise'\n")
    (tree / "b.py").write_bytes(CUDA)
    code, files = report(tree, capsysbinary, "--rules-dir", str(rules_dir))
    assert code == 2
    (found,) = files["a.py"]["diagnostics"]
    assert found["rule"] == "NPU005"
    assert "XYZ001" in found["message"]
    assert "ZeroDivisionError" in found["message"]
    assert contents(tree) == {"a.py": CUDA + b"y = 'misbehave: raise'\n", "b.py": NPU}


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    """The tool in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "migrator", *map(os.fspath, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_code_that_crashes_the_parser(tree: Path) -> None:
    nested = CUDA + b"y = " + b"(" * 5000 + b"1" + b")" * 5000 + b"\n"
    (tree / "a.py").write_bytes(CUDA)
    (tree / "nested.py").write_bytes(nested)
    out, _ = (process := start(tree, "--format", "json")).communicate()
    assert process.returncode == 2
    files = {file["path"]: file for file in json.loads(out)["files"]}
    assert files["nested.py"]["status"] == "failed"
    assert contents(tree) == {"a.py": NPU, "nested.py": nested}


@pytest.fixture
def busy(tree: Path, rules_dir: Path) -> Iterator[Callable[..., SimpleNamespace]]:
    """A run with a worker that is stuck in a rule."""
    (tree / "slow.py").write_bytes(CUDA + b"y = 'misbehave: sleep'\n")
    for number in range(30):
        (tree / f"f{number}.py").write_bytes(CUDA)
    before = contents(tree)
    running: list[subprocess.Popen[bytes]] = []

    def begin(*options: str) -> SimpleNamespace:
        process = start(tree, "--rules-dir", rules_dir, *options)
        running.append(process)
        deadline = time.monotonic() + 30
        while not (stuck := list(rules_dir.glob("pid-*"))):
            assert time.monotonic() < deadline, "the rule never ran"
            time.sleep(0.02)
        worker = int(stuck[0].name.removeprefix("pid-"))
        return SimpleNamespace(process=process, worker=worker, before=before)

    yield begin
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_ended(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


@needs_proc
@pytest.mark.parametrize("options", [(), ("--jobs", "1")])
def test_ctrl_c(tree: Path, busy, options: tuple[str, ...]) -> None:
    run = busy(*options)
    os.killpg(run.process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    out, err = run.process.communicate(timeout=20)
    assert run.process.returncode == 130
    assert out == b""
    # CPython itself may add a line about its threads when the signal meets it on its way out.
    assert "npu-migrate: interrupted; files that were not written yet are as they were" in err.decode().splitlines()
    assert has_ended(run.worker)
    assert contents(tree) == run.before, "nothing is written before all is known, and no temporary file is left"


@needs_proc
@pytest.mark.parametrize(("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_to_the_main_process_ends_the_workers(tree: Path, busy, signal_: signal.Signals, code: int) -> None:
    run = busy()
    run.process.send_signal(signal_)
    _, err = run.process.communicate(timeout=20)
    assert run.process.returncode == code
    assert b"Traceback" not in err
    assert has_ended(run.worker)
    assert contents(tree) == run.before


def test_ctrl_c_while_writing(tree: Path, capsysbinary, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tree / name).write_bytes(CUDA)
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if target.name == "b.py":
            os.kill(os.getpid(), signal.SIGINT)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    assert main([os.fspath(tree)]) == 130
    assert contents(tree) == {"a.py": NPU, "b.py": CUDA, "c.py": CUDA}
