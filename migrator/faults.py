"""The tool's own diagnostics, NPU001–NPU099: what it could not read, parse, run or write."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.records import Applicability, Diagnostic, Severity
from migrator.source import Source


@dataclass(frozen=True)
class Fault:
    """One kind of trouble that the tool itself reports; the counterpart of a rule's metadata.

    doc     markdown: what happened, and what to do about it
    """

    id: str
    name: str
    title: str
    severity: Severity
    doc: str

    def at(self, message: str, line: int = 1, column: int = 1, remedy: str | None = None) -> Diagnostic:
        """This fault at a place (1-based) as a finding that no fix belongs to."""
        return Diagnostic(
            rule=self.id,
            name=self.name,
            severity=self.severity,
            message=message,
            line=line,
            column=column,
            end_line=line,
            end_column=column,
            applicability=Applicability.MANUAL,
            fixed=False,
            remedy=remedy,
        )


UNPARSABLE = Fault(
    "NPU001",
    "unparsable-file",
    "File is not valid Python 3",
    Severity.ERROR,
    "The parser rejects the file, so nothing in it was looked at or changed. Python 2 code is the usual "
    "reason: convert it first (`2to3`), or leave the file out with `--exclude`.",
)


def unparsable(source: Source, line: int, column: int) -> Diagnostic:
    """What is wrong with a text that does not parse: in Python's own words, else the place where LibCST stops."""
    said = source.complaint()
    if said is None:
        return UNPARSABLE.at("cannot parse: Python takes this, but LibCST does not", line, column, _LEAVE_OUT)
    if said.is_python_2:
        code = source.line_text(said.line).strip()
        remedy = "Convert the file first, for example with `2to3 -w`, or leave it out with --exclude."
        return UNPARSABLE.at(f"cannot parse: this is Python 2: {code}", said.line, said.column, remedy)
    return UNPARSABLE.at(f"cannot parse: {said.message}", said.line, said.column, _LEAVE_OUT)


_LEAVE_OUT = "Correct the file, or leave it out with --exclude."
UNDECODABLE = Fault(
    "NPU002",
    "undecodable-file",
    "File does not decode with its declared encoding",
    Severity.ERROR,
    "The bytes do not fit the encoding cookie (or UTF-8, which Python assumes without one). Python cannot "
    "run the file either. Declare the real encoding in the first line, for example `# -*- coding: gbk -*-`, "
    "or save the file as UTF-8.",
)
UNREADABLE = Fault(
    "NPU003",
    "unreadable-file",
    "File cannot be read",
    Severity.ERROR,
    "The operating system refused to read the file. Check its permissions, or leave it out with `--exclude`.",
)
NOT_SOURCE = Fault(
    "NPU004",
    "not-source",
    "File is binary or too large to be source code",
    Severity.ERROR,
    "The file mentions CUDA but holds NUL bytes or is larger than 5 MB, so it was skipped. Split a generated "
    "file into smaller ones, or leave it out with `--exclude`.",
)
RULE_CRASHED = Fault(
    "NPU005",
    "rule-crashed",
    "A rule raised an exception",
    Severity.ERROR,
    "A bug in the named rule. The file was left as it was. Switch the rule off with `--ignore` and report "
    "the bug; for a rule of your own the message names the exception.",
)
BROKEN_RESULT = Fault(
    "NPU006",
    "broken-result",
    "The migrated file would not parse",
    Severity.ERROR,
    "The fixes together would have made invalid Python, so the file was left as it was. This is a bug in a "
    "rule: please report it with the lines that the message names.",
)
INCOMPLETE_IGNORE = Fault(
    "NPU007",
    "incomplete-ignore",
    "Ignore comment without rule or reason",
    Severity.WARNING,
    "An ignore comment names the rules it silences and says why: "
    "`# npu-migrate: ignore[NPU101] runs on the CUDA host`. Without a rule it silences nothing.",
)
UNUSED_IGNORE = Fault(
    "NPU008",
    "unused-ignore",
    "Ignore comment that silences nothing",
    Severity.INFO,
    "No finding of that rule is at this place any more. Remove the comment, or correct the rule's id.",
)
UNWRITABLE = Fault(
    "NPU009",
    "unwritable-file",
    "File cannot be written",
    Severity.ERROR,
    "The file is read-only, or its folder takes no new file. It was left as it was; the other files were "
    "written. Give yourself write permission and run again.",
)
WORKER_DIED = Fault(
    "NPU010",
    "worker-died",
    "The process that worked on the file died",
    Severity.ERROR,
    "The worker process ended at this file: the operating system stopped it for lack of memory, or extremely "
    "nested code overran the parser. The file was left as it was, the others were done. Leave it out with "
    "`--exclude`.",
)
INVENTED_NAME = Fault(
    "NPU011",
    "invented-name",
    "A rule wrote a name that does not exist",
    Severity.ERROR,
    "The fix would have written a torch_npu name that the target version does not have, or one that is not "
    "imported there. It was withdrawn, and the code left as it was. For a built-in rule this is a bug: please "
    "report it. For a rule of your own, check the name with `npu-migrate api NAME`.",
)

ALL = (
    UNPARSABLE,
    UNDECODABLE,
    UNREADABLE,
    NOT_SOURCE,
    RULE_CRASHED,
    BROKEN_RESULT,
    INCOMPLETE_IGNORE,
    UNUSED_IGNORE,
    UNWRITABLE,
    WORKER_DIED,
    INVENTED_NAME,
)
