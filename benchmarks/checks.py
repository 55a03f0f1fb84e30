"""One tree through the tool: copy it, preview, rewrite, run again, and compare with what was promised.

The kinds of violation are explained in corpus.py.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import oracle
from alignment import normalize

WORDS = re.compile(  # a file without any of them has no reason to change; the last two mean CUDA by default
    rb"cuda|cudnn|nccl|nvtx|nvidia|gpu|tf32|apex|xformers|flash_attn|triton|autocast|fork_rng", re.IGNORECASE
)
TIMEOUT = 1800  # seconds for one run of the tool
GIT = ("git", "-c", "user.name=corpus", "-c", "user.email=corpus@localhost", "-c", "commit.gpgsign=false")


class Unusable(Exception):
    """The benchmark cannot run; the message says what to do."""


class Violation(NamedTuple):
    """A check that does not hold; `line` is of the original file, 0 for a whole file."""

    kind: str
    path: str
    line: int
    detail: str


@dataclass
class Result:
    """What one tree gave: the counts of the table, and the violations."""

    name: str
    files: int = 0
    candidates: int = 0
    lines: int = 0
    changed: int = 0
    fixed: int = 0
    remaining: int = 0
    failed: int = 0
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def add(self, kind: str, path: str, detail: str, line: int = 0) -> None:
        self.violations.append(Violation(kind, path, line, detail))

    def count(self, *kinds: str) -> int:
        return sum(violation.kind.split(":")[0] in kinds for violation in self.violations)


def check_tree(name: str, source: Path, tool: Sequence[str]) -> Result:
    """Migrate a copy of one tree and check the outcome; `source` stays as it is."""
    result = Result(name)
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        work, clean = Path(folder, "work"), Path(folder, "clean")
        make_repository(source, work)
        shutil.copytree(work, clean, symlinks=True)
        before = snapshot(work)

        preview = run(tool, str(work), "--dry-run", "--format", "json")
        diff = run(tool, str(work), "--dry-run")
        if snapshot(work) != before:
            result.add("dry-run", "", "--dry-run wrote to the tree")
        written = run(tool, str(work))
        after = snapshot(work)
        commit(work)
        again = run(tool, str(work))

        report = check_report(result, preview, before)
        for step, outcome in (
            ("preview", preview),
            ("diff", diff),
            ("write", written),
            ("second run", again),
        ):
            check_run(result, step, outcome)
        check_same(result, "second-run", after, snapshot(work))
        check_same(result, "patch", after, apply_patch(result, clean, diff.output))
    count(result, before, after, written.seconds)
    check_files(result, report, before, after)
    return result


def count(result: Result, before: dict[str, Entry], after: dict[str, Entry], seconds: float) -> None:
    sources = [entry.data for path, entry in before.items() if is_python(path, entry)]
    result.files = len(sources)
    result.lines = sum(data.count(b"\n") for data in sources)
    result.candidates = sum(WORDS.search(data) is not None for data in sources)
    result.changed = sum(after.get(path) != entry for path, entry in before.items())
    result.seconds = seconds


def check_run(result: Result, step: str, outcome: Run) -> None:
    """0 and 1 are the exit codes of success; 2 is right when a file is broken Python."""
    if "Traceback (most recent call last)" in outcome.errors or outcome.code not in (0, 1, 2):
        result.add("run", "", f"{step}: exit {outcome.code}: {outcome.errors.strip()[-400:]}")
    elif outcome.code == 2 and not result.failed:
        result.add("run", "", f"{step}: exit 2 without a failed file: {outcome.errors.strip()[-400:]}")


def check_report(result: Result, preview: Run, before: dict[str, Entry]) -> dict[str, dict[str, Any]]:
    """The records of the JSON report by path; takes over its totals and judges its failures."""
    try:
        document = json.loads(preview.output)
        records = {record["path"]: record for record in document["files"]}
        result.fixed, result.remaining = document["summary"]["fixed"], document["summary"]["remaining"]
        diagnostics = [d for record in records.values() for d in record["diagnostics"]]
        fixed = sum(diagnostic["fixed"] for diagnostic in diagnostics)
    except (ValueError, KeyError, TypeError) as error:
        result.add("run", "", f"not the JSON contract: {error!r}; {preview.errors.strip()[-400:]}")
        return {}
    if (fixed, len(diagnostics) - fixed) != (result.fixed, result.remaining):
        result.add("run", "", f"the summary counts {result.fixed} fixed, the files {fixed}")
    for path, record in records.items():
        if record["status"] == "failed":
            result.failed += 1
            if path not in before or parses(before[path].data):
                result.add("failed", path, record["error"] or "no reason given")
    return records


def check_same(result: Result, kind: str, expected: dict[str, Entry], found: dict[str, Entry]) -> None:
    for path in sorted(expected.keys() | found.keys()):
        if expected.get(path) != found.get(path):
            what = "missing" if path not in found else "added" if path not in expected else "differs"
            line = first_difference(expected[path].data, found[path].data) if what == "differs" else 0
            result.add(kind, path, what, line)


def first_difference(a: bytes, b: bytes) -> int:
    pairs = zip(a.split(b"\n"), b.split(b"\n"), strict=False)
    return next((line for line, (x, y) in enumerate(pairs, 1) if x != y), 0)


def apply_patch(result: Result, repository: Path, diff: bytes) -> dict[str, Entry]:
    """The tree after `git apply` of the diff; git refuses an empty patch."""
    if diff.strip():
        command = ["git", "apply", "--whitespace=nowarn", "-"]
        done = subprocess.run(command, cwd=repository, input=diff, capture_output=True)
        if done.returncode:
            result.add("patch", "", done.stderr.decode("utf-8", "replace").strip()[-400:])
    return snapshot(repository)


def check_files(
    result: Result,
    report: dict[str, dict[str, Any]],
    before: dict[str, Entry],
    after: dict[str, Entry],
) -> None:
    for path in sorted(after.keys() - before.keys()):
        result.add("unrelated", path, "a new file")
    for path, entry in sorted(before.items()):
        record = report.get(path, {"status": "unchanged", "diagnostics": []})
        now = after.get(path)
        if now is None:
            result.add("unrelated", path, "the file is gone")
            continue
        if (now != entry) != (record["status"] == "changed"):
            result.add(
                "run",
                path,
                f"reported as {record['status']}, but the file did{'' if now != entry else ' not'} change",
            )
        if now != entry:
            check_bytes(result, path, entry, now)
        if is_python(path, entry) and WORDS.search(entry.data) and parses(entry.data):
            check_python(result, path, entry.data, now.data, record["diagnostics"])


def only_sets_compile_mode(old: bytes, new: bytes) -> bool:
    """Whether a program's entry point, which need not name a device itself, only got its compile mode."""
    def text(data: bytes) -> list[str]:
        return data.decode("utf-8", "surrogateescape").splitlines()

    added = [line for line in difflib.ndiff(text(old), text(new)) if line[:1] in "+-"]
    return all(line.startswith("+") and ("set_compile_mode" in line or "import torch_npu" in line) for line in added)


def check_bytes(result: Result, path: str, old: Entry, new: Entry) -> None:
    if not WORDS.search(old.data) and not only_sets_compile_mode(old.data, new.data):
        result.add("unrelated", path, "the file has no word of CUDA")
    if old.mode != new.mode:
        result.add("bytes", path, f"mode {old.mode:o} became {new.mode:o}")
    for what, mark in (
        ("byte-order mark", byte_order_mark),
        ("newlines", newlines),
        ("last newline", last_newline),
    ):
        if not mark(new.data) <= mark(old.data):
            result.add("bytes", path, f"{what} changed")


def byte_order_mark(data: bytes) -> set[bytes]:
    return {data[:3] if data.startswith(b"\xef\xbb\xbf") else b""}


def newlines(data: bytes) -> set[bytes]:
    """The kinds of newline in a file; one without any may get either."""
    return set(re.findall(rb"\r\n|\r|\n", data)) or {b"\r\n", b"\r", b"\n"}


def last_newline(data: bytes) -> set[bool]:
    return {data.endswith((b"\n", b"\r"))}


def check_python(result: Result, path: str, old: bytes, new: bytes, diagnostics: list[dict[str, Any]]) -> None:
    if new != old and not parses(new):
        result.add("syntax", path, "the result does not parse")
        return
    before, after = decode(old), decode(new)
    reported = [(d["line"], d["end_line"]) for d in diagnostics if not d["fixed"]]
    for line, reference in oracle.silent_misses(before, after, reported):
        result.add(f"silent:{reference.kind}", path, reference.text, line)
    if new != old:
        for edit in oracle.protected_edits(before, after):
            result.add(f"edit:{edit.kind}", path, edit.text.splitlines()[0][:100], edit.line)


# --------------------------------------------------------------------------------------------------- trees


def make_repository(source: Path, target: Path) -> None:
    """A copy of a tree as a git repository with everything committed."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    git(target, "init", "--quiet")
    git(target, "config", "core.autocrlf", "false")
    commit(target)


def commit(repository: Path) -> None:
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "corpus")


def git(repository: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=repository, check=True, capture_output=True)


class Entry(NamedTuple):
    mode: int
    data: bytes


def snapshot(root: Path) -> dict[str, Entry]:
    """Mode and content of each file below `root` by posix path; a link's content is its target."""
    entries = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            data = bytes(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes()
            entries[path.relative_to(root).as_posix()] = Entry(mode, data)
    return entries


def is_python(path: str, entry: Entry) -> bool:
    return path.endswith((".py", ".pyi")) and stat.S_ISREG(entry.mode)


def decode(data: bytes) -> str:
    """Python source as text; SyntaxError for an unknown encoding cookie, ValueError for undecodable bytes."""
    encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
    return data.decode(encoding)


def parses(data: bytes) -> bool:
    try:
        oracle.parse(normalize(decode(data)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


# -------------------------------------------------------------------------------------------------- the tool


class Run(NamedTuple):
    code: int
    output: bytes
    errors: str
    seconds: float


def run(tool: Sequence[str], *arguments: str) -> Run:
    start = time.perf_counter()
    try:
        done = subprocess.run([*tool, *arguments], capture_output=True, timeout=TIMEOUT)
    except FileNotFoundError as error:
        raise Unusable(f"cannot run {tool[0]}: install it (pip install -e .) or name it with --tool") from error
    except subprocess.TimeoutExpired:
        return Run(124, b"", f"no result after {TIMEOUT} s", TIMEOUT)
    errors = done.stderr.decode("utf-8", "replace")
    return Run(done.returncode, done.stdout, errors, time.perf_counter() - start)
