"""Migrates into a copy of the user's tree, and says what the migrator had to say about a line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from migrator import config, discover, registry
from migrator.job import Job
from migrator.records import Diagnostic, FileResult
from migrator.report import FORMATS
from migrator.target import Target, detect


@dataclass(frozen=True)
class Migration:
    """What became of the files of a tree; paths are relative to it."""

    results: tuple[FileResult, ...]
    target: Target

    @property
    def changed(self) -> int:
        """How many files were changed."""
        return sum(result.after is not None for result in self.results)

    def write_to(self, root: Path) -> None:
        """Make the changes in a copy of the tree. Raises OSError."""
        for result in self.results:
            if result.after is not None:
                (root / result.path).write_bytes(result.after)

    def line_before(self, path: str, line: int) -> int:
        """The line of the original file that a line of the migrated one comes from."""
        result = self._result(path)
        if result is None or result.before is None or result.after is None:
            return line
        return _line_map(result.before, result.after).get(line, line)

    def said_of(self, path: str, line: int) -> list[Diagnostic]:
        """The migrator's findings at a line of the original file, made good ones included."""
        result = self._result(path)
        found = result.diagnostics if result else ()
        return [finding for finding in found if finding.line <= line <= finding.end_line]

    def _result(self, path: str) -> FileResult | None:
        return next((result for result in self.results if result.path == path), None)


def target(path: Path, overrides: Mapping[str, Any]) -> Target:
    """The target of a migration with these `overrides`. Raises ConfigError and TargetError."""
    return _target(path, config.load(path, overrides, FORMATS), overrides)


def _target(path: Path, chosen: config.Config, overrides: Mapping[str, Any]) -> Target:
    return detect(path, cli=overrides["torch_npu"], config=chosen.torch_npu, soc=chosen.soc)


def plan(path: Path, overrides: Mapping[str, Any]) -> Migration:
    """What a migration of a file or folder would do; nothing is written.

    `overrides` has values for the fields of Config, as on the command line. Raises what a migration there raises.
    """
    chosen = config.load(path, overrides, FORMATS)
    found = discover.discover([path], chosen.exclude, chosen.root)
    job = Job(chosen, found, registry.load(chosen.rules_dir), _target(path, chosen, overrides))
    job.migrate()
    return Migration(tuple(job.results), job.target)


@cache
def _line_map(before: bytes, after: bytes) -> dict[int, int]:
    """Line after → line before; a new line leads to the one that it stands at."""
    old, new = before.splitlines(), after.splitlines()
    lines: dict[int, int] = {}
    for _, start, end, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for offset, line in enumerate(range(first, last)):
            lines[line + 1] = min(start + offset, max(end - 1, start)) + 1
    return lines
