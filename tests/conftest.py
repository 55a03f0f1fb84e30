"""What most tests need: migrate a text, alone or as one file of a small repository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from migrator import registry
from migrator.context import FileContext
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.records import Diagnostic, FileResult
from migrator.source import decode
from migrator.target import Target

TARGET = "2.7.1"


@dataclass(frozen=True)
class Outcome:
    """What became of a text."""

    text: str
    result: FileResult

    @property
    def left(self) -> list[Diagnostic]:
        """Findings for a person."""
        return [found for found in self.result.diagnostics if not found.fixed]

    @property
    def fixed(self) -> list[Diagnostic]:
        """Findings that were fixed."""
        return [found for found in self.result.diagnostics if found.fixed]

    def left_on(self, line: int) -> bool:
        """Whether a finding is left on a line."""
        return any(found.line <= line <= found.end_line for found in self.left)


@pytest.fixture
def migrated() -> Callable[..., Outcome]:
    """`migrated(code, target="2.7.1", path="train.py", unsafe=False, **other files)`: all default rules."""

    def run(
        code: str | bytes,
        target: str = TARGET,
        path: str = "train.py",
        unsafe: bool = False,
        select: tuple[str, ...] = (),
        files: dict[str, str] | None = None,
    ) -> Outcome:
        raw = code.encode() if isinstance(code, str) else code
        settings = Settings(Target(target, None, "test"), registry.load().select(select), unsafe)
        others = [(name, text.encode()) for name, text in (files or {}).items()]
        result = migrate(raw, path, settings, Project.scan([(path, raw), *others]))
        after = raw if result.after is None else result.after
        try:
            text = decode(after).text
        except ValueError:
            text = ""
        return Outcome(text, result)

    return run


@pytest.fixture
def context() -> Callable[..., FileContext]:
    """A parsed file, for tests of what the engine stands on."""

    def build(code: str, target: str = TARGET, path: str = "train.py", files: dict[str, str] | None = None) -> FileContext:
        others = [(name, text.encode()) for name, text in (files or {}).items()]
        project = Project.scan([(path, code.encode()), *others])
        return FileContext(decode(code.encode()), path, Target(target, None, "test"), project)

    return build
