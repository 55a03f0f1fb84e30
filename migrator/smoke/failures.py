"""From the output of a failed run to the user's line, and to what the migrator had said about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.records import Diagnostic
from migrator.smoke.migration import Migration

MAX_FAILURES = 5
_START = "Traceback (most recent call last):"
_RANK = re.compile(r"^(\[rank\d+\]: ?|\[[\w-]+\d*\]:)")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.*))?$')
_ERROR = re.compile(r"^\s*([A-Za-z_][\w.]*)(?::\s*(.*))?$")
_MISSING = re.compile(r"No module named '([^']+)'")


@dataclass(frozen=True)
class Failure:
    """An exception that ended a process, and where in the user's tree it came from.

    path, line  of the innermost line in the tree that ran; None: none of its lines took part
    original    the line of the original file, where the tree was migrated on the way
    said        the migrator's findings at that line
    """

    error: str
    path: str | None = None
    line: int | None = None
    code: str | None = None
    original: int | None = None
    said: tuple[Diagnostic, ...] = ()

    @property
    def missing_package(self) -> str | None:
        """The package that could not be imported, if that was it."""
        found = _MISSING.search(self.error)
        return found[1].partition(".")[0] if found else None


def find(output: str, root: Path, migration: Migration | None = None, *, migrated: bool = False) -> list[Failure]:
    """The failures that the output of a run tells of, without repetitions, and only the user's if there are some.

    migration  what the migrator has to say about the tree; `migrated`: the tree is the result of it
    """
    found = dict.fromkeys(_failures(output.splitlines(), str(root.resolve()) + os.sep))
    own = [failure for failure in found if failure.path]
    return [_explained(failure, root, migration, migrated) for failure in (own or list(found))[:MAX_FAILURES]]


def _failures(lines: list[str], root: str) -> Iterator[Failure]:
    plain = [_RANK.sub("", line) for line in lines]
    starts = [number for number, line in enumerate(plain) if line.strip() == _START]
    for start in starts:
        failure = _failure(plain[start + 1 :], root, len(plain[start]) - len(plain[start].lstrip()))
        if failure is not None:
            yield failure


def _failure(lines: list[str], root: str, indent: int) -> Failure | None:
    place: tuple[str, int] | None = None
    frames = 0
    for line in lines:
        text = line[indent:]
        frame = _FRAME.match(text)
        if frame:
            frames += 1
            path = str(Path(frame[1]).absolute())
            if path.startswith(root):
                place = path[len(root) :], int(frame[2])
            continue
        if text[:1].isspace() or not text.strip():
            continue
        error = _ERROR.match(text)
        if error is None or not frames:
            return None
        return Failure(text.strip(), *(place or (None, None)))
    return None


def _explained(failure: Failure, root: Path, migration: Migration | None, migrated: bool) -> Failure:
    if failure.path is None or failure.line is None:
        return failure
    code = _code(root / failure.path, failure.line)
    if migration is None:
        return replace(failure, code=code)
    original = migration.line_before(failure.path, failure.line) if migrated else None
    said = tuple(migration.said_of(failure.path, original or failure.line))
    return replace(failure, code=code, original=original, said=said)


def _code(path: Path, line: int) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return lines[line - 1].strip() if line <= len(lines) else None
