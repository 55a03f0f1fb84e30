"""What a rule says about a place: edits that answer it, or a report for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migrator.edits import Edit
from migrator.records import Applicability, Severity


@dataclass(frozen=True)
class Fix:
    """Edits that belong together: all are made or none.

    edits          character spans of the smallest pieces
    message        what changes and, where it is not plain, why
    remedy         what a person may still have to do
    applicability  None: the rule's own
    needs          modules that must have been imported where the new code runs; (): torch_npu, but only in a
                   file that imports torch (a device string elsewhere needs nothing); None: nothing at all
    node           where the finding is shown; None: the match's node
    again          whether other rules have to look at what it writes
    """

    edits: Sequence[Edit]
    message: str
    remedy: str | None = None
    applicability: Applicability | None = None
    severity: Severity | None = None
    needs: tuple[str, ...] | None = ("torch_npu",)
    node: Any = None
    again: bool = False


@dataclass(frozen=True)
class Report:
    """A finding that no edit answers.  Every report has a remedy: what to do instead."""

    message: str
    remedy: str
    severity: Severity | None = None
    node: Any = None


Outcome = Fix | Report | None | Sequence[Fix | Report]
