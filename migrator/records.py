"""The plain records that flow from the engine to every report: one `FileResult` per file, picklable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Applicability(str, Enum):
    """How far a fix may be trusted: applied by default, applied on request, or for a person to make."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MANUAL = "manual"


class Severity(str, Enum):
    """error: the converted code will not run; warning: it may behave differently; info: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Status(str, Enum):
    """What became of a file."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class Diagnostic:
    """One finding.  Lines and columns are 1-based, count characters, and refer to the file before the change.

    `fixed` says that the finding's fix was applied (or would be, in a dry run); a finding with a fix that
    was not applied keeps its `applicability` and has `fixed` False.
    """

    rule: str
    name: str
    severity: Severity
    message: str
    line: int
    column: int
    end_line: int
    end_column: int
    applicability: Applicability
    fixed: bool
    remedy: str | None = None


@dataclass(frozen=True)
class FileResult:
    """What the tool found in one file and what it would write.

    path    posix, relative to the PATH argument it was found under
    before  the file's bytes as read (None when it could not be read)
    after   the new bytes; None when nothing changes
    error   one sentence when status is FAILED or SKIPPED
    """

    path: str
    status: Status
    diagnostics: tuple[Diagnostic, ...] = ()
    before: bytes | None = None
    after: bytes | None = None
    error: str | None = None

    @property
    def remaining(self) -> int:
        """How many findings are left for a person."""
        return sum(not d.fixed for d in self.diagnostics)

    @property
    def fixed(self) -> int:
        """How many findings were fixed."""
        return sum(d.fixed for d in self.diagnostics)
