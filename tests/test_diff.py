from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import diff

AWKWARD = {
    "plain": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "no final newline": (b"a\nb", b"a\nB"),
    "final newline added": (b"a\nb", b"a\nb\n"),
    "final newline removed": (b"a\nb\n", b"a\nb"),
    "CRLF": (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
    "mixed newlines": (b"a\r\nb\nc\r\nd\n", b"a\r\nB\nc\nd\n"),
    "lone CR": (b"a\rb\rc\nd\n", b"a\rB\rc\nd\n"),
    "only CR": (b"a\rb\rc\r", b"a\rB\rc\r"),
    "form feed": (b"a\n\x0c\nb\n\x0cc\n", b"a\n\x0c\nB\n\x0cc\n"),
    "vertical tab and NEL": (b"a\x0b\x85b\nc\n", b"a\x0b\x85B\nc\n"),
    "BOM": (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfimport x\na\nb\n"),
    "latin-1": (b"# caf\xe9\na\n", b"# caf\xe9\nb\n"),
    "gbk": ("# 设备\na\n".encode("gbk"), "# 设备\nb\n".encode("gbk")),
    "whitespace last line": (b"a\nb\n    ", b"A\nb\n    "),
    "blank lines": (b"\n\n\na\n\n\n", b"\n\n\nb\n\n\n"),
    "to empty": (b"a\n", b""),
    "lines like headers": (b"-- a\n++ b\n@@ x\ndiff --git\n", b"-- A\n++ B\n@@ x\ndiff --git\n"),
    "two hunks": (b"a\n" + b"x\n" * 20 + b"b\n", b"A\n" + b"x\n" * 20 + b"B\n"),
    "trailing blanks": (b"a  \n\tb\t\n", b"a  \n\tB\t\n"),
}
NAMES = [
    "a.py",
    "with space.py",
    "new\nline.py",
    'quo"te.py',
    "back\\slash.py",
    "tab\t.py",
    "naïve 设备.py",
    "b/ a/x.py",
]


def git_apply(folder: Path, patch: bytes) -> None:
    """In a folder that is no repository, so that the user's git configuration of one does not matter."""
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(("before", "after"), AWKWARD.values(), ids=AWKWARD)
def test_git_applies_it_byte_for_byte(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "a.py").write_bytes(before)
    git_apply(tmp_path, diff.unified("a.py", before, after))
    assert (tmp_path / "a.py").read_bytes() == after


@pytest.mark.parametrize("name", NAMES)
def test_git_understands_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a\n")
    git_apply(tmp_path, diff.unified(name, b"a\n", b"b\n"))
    assert path.read_bytes() == b"b\n"


def test_git_understands_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = b"latin\xe9.py".decode("utf-8", "surrogateescape")
    (tmp_path / name).write_bytes(b"a\n")
    git_apply(tmp_path, diff.unified(name, b"a\n", b"b\n"))
    assert (tmp_path / name).read_bytes() == b"b\n"


def test_names_are_quoted_as_git_does(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a\n")
    git = [
        "git",
        "-C",
        tmp_path,
        "-c",
        "core.quotePath=true",
        "-c",
        "diff.noprefix=false",
        "-c",
        "diff.mnemonicPrefix=false",
    ]
    subprocess.run([*git, "add", "-A"], check=True)
    for name in NAMES:
        (tmp_path / name).write_bytes(b"b\n")
        shown = subprocess.run([*git, "diff", "--", name], capture_output=True, check=True).stdout
        without_index = b"".join(line for line in shown.splitlines(keepends=True) if not line.startswith(b"index "))
        assert diff.unified(name, b"a\n", b"b\n") == without_index


@pytest.mark.parametrize("content", [b"a\nb\n", b"a", b""])
def test_a_new_file(tmp_path: Path, content: bytes) -> None:
    git_apply(tmp_path, diff.unified("new.py", b"", content, new_file=True))
    assert (tmp_path / "new.py").read_bytes() == content


def test_several_files_in_one_patch(tmp_path: Path) -> None:
    patch = b""
    for name, (before, after) in AWKWARD.items():
        (tmp_path / name).write_bytes(before)
        patch += diff.unified(name, before, after)
    git_apply(tmp_path, patch)
    assert {name: (tmp_path / name).read_bytes() for name in AWKWARD} == {
        name: after for name, (_, after) in AWKWARD.items()
    }


def test_the_mode_is_not_mentioned(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(b"a\n")
    script.chmod(0o755)
    git_apply(tmp_path, diff.unified("a.py", b"a\n", b"b\n"))
    assert script.stat().st_mode & 0o777 == 0o755


def test_no_change_no_diff() -> None:
    assert diff.unified("a.py", b"same", b"same") == b""


def test_three_lines_of_context() -> None:
    before = b"".join(b"%d\n" % number for number in range(20))
    assert diff.unified("a", before, before.replace(b"10\n", b"ten\n")) == (
        b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


pieces = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\x0c", b" ", b"\xff", b"-", b"+"]), max_size=25)


@settings(max_examples=40, deadline=None)
@given(pieces.map(b"".join), pieces.map(b"".join))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.py").write_bytes(before)
    if patch := diff.unified("a.py", before, after):
        git_apply(folder, patch)
    # A patch that empties a file leaves it empty or takes it away.
    left = (folder / "a.py").read_bytes() if (folder / "a.py").exists() else b""
    assert left == after


def test_colours_tell_headers_from_lines_that_look_like_them() -> None:
    plain = diff.unified("a", b"-- x\nkept\n", b"++ y\nkept\n")
    lines = diff.colourise(plain).split(b"\n")
    assert lines[1] == b"\x1b[1m--- a/a\x1b[0m"
    assert lines[4] == b"\x1b[31m--- x\x1b[0m"
    assert lines[5] == b"\x1b[32m+++ y\x1b[0m"
    assert lines[6] == b" kept"
