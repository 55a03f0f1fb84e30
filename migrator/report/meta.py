"""What every report needs to know besides the results, and the few questions that all of them ask."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from migrator.records import Applicability, Diagnostic, FileResult, Severity, Status

SEVERITIES = tuple(Severity)
"""Worst first."""


class TargetInfo(Protocol):
    """The part of `migrator.target.Target` that reports show."""

    @property
    def torch_npu(self) -> str: ...
    @property
    def soc(self) -> str | None: ...
    @property
    def reason(self) -> str: ...


class RuleInfo(Protocol):
    """What rules and the tool's own faults have in common.

    Rules also have `docs` (a link), `tags` and `applicability`; reports show them where they exist.
    """

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def doc(self) -> str: ...


@dataclass(frozen=True)
class ReportMeta:
    """The run that the results come from.

    rules     the rules that were selected and the tool's own faults
    dry_run   nothing was written: "fixed" findings are still in the files
    root      the directory that the results' paths are relative to, as the user named it ("." by default)
    paths     the PATH arguments
    unread    files of other kinds than Python that name CUDA, as they are reached from where the user stands
    requirements  those that name torch, and lack the torch_npu that the code now imports
    """

    tool_version: str
    target: TargetInfo
    rules: Sequence[RuleInfo]
    dry_run: bool
    root: str = "."
    paths: Sequence[str] = (".",)
    unread: Sequence[str] = ()
    requirements: Sequence[str] = ()

    def titles(self) -> dict[str, str]:
        """Rule id → one line on what the rule is about."""
        return {rule.id: rule.title for rule in self.rules}

    def located(self, path: str) -> str:
        """A result's path as it is reached from where the user stands (posix)."""
        return posixpath.normpath(posixpath.join(PurePath(self.root).as_posix(), path))

    def pending(self, result: FileResult) -> list[Diagnostic]:
        """The findings that the file on disk still has after the run, by line; all of them in a dry run."""
        return [d for d in in_order(result.diagnostics) if self.dry_run or not d.fixed]


@dataclass(frozen=True)
class Totals:
    """The figures of a run; the fields are the `summary` of the JSON report."""

    files: int
    changed: int
    failed: int
    skipped: int
    fixed: int
    remaining: int

    @classmethod
    def of(cls, results: Sequence[FileResult]) -> Totals:
        statuses = [result.status for result in results]
        return cls(
            files=len(results),
            changed=statuses.count(Status.CHANGED),
            failed=statuses.count(Status.FAILED),
            skipped=statuses.count(Status.SKIPPED),
            fixed=sum(result.fixed for result in results),
            remaining=sum(result.remaining for result in results),
        )


@dataclass
class RuleCount:
    """How often one rule was fixed and how often it is left, over all files; `severity` is the worst seen."""

    rule: str
    name: str
    severity: Severity
    fixed: int = 0
    remaining: int = 0


def by_rule(results: Sequence[FileResult]) -> list[RuleCount]:
    """One count for each rule with a finding, by rule id."""
    counts: dict[str, RuleCount] = {}
    for result in results:
        for d in result.diagnostics:
            count = counts.setdefault(d.rule, RuleCount(d.rule, d.name, d.severity))
            count.severity = min(count.severity, d.severity, key=SEVERITIES.index)
            if d.fixed:
                count.fixed += 1
            else:
                count.remaining += 1
    return [counts[rule] for rule in sorted(counts)]


def unsafe_left(results: Sequence[FileResult]) -> int:
    """How many findings have a fix that was not applied because it is unsafe."""
    left = [d for result in results for d in result.diagnostics if not d.fixed]
    return sum(d.applicability is Applicability.UNSAFE for d in left)


def in_order(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda d: (d.line, d.column, d.rule, d.message))


def unexplained_error(result: FileResult) -> str | None:
    """The file's error, unless one of its findings says the same."""
    error = result.error
    if error and not any(error in d.message or d.message in error for d in result.diagnostics):
        return error
    return None


_SURROGATE = re.compile("[\ud800-\udfff]")
# Control characters but tab and line feed, what XML forbids, and the marks that reorder text on the screen.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def encodable(text: str) -> str:
    r"""`text` with what UTF-8 cannot hold spelled out: a byte of an undecodable file name becomes \xff."""
    return _SURROGATE.sub(_spelled, text)


def printable(text: str) -> str:
    r"""`encodable` text in which control characters, too, are spelled out: an escape becomes \x1b."""
    return _INVISIBLE.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
