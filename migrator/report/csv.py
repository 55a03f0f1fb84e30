"""CSV: one row for each finding, for spreadsheets and data frames (RFC 4180: CRLF, quotes doubled).

Cells hold what was found, unaltered: a message or path that starts with "=" is not defused for programs that
would take it for a formula.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from migrator.records import FileResult
from migrator.report.meta import ReportMeta, encodable, in_order

COLUMNS = (
    "path",
    "line",
    "column",
    "end_line",
    "end_column",
    "rule",
    "name",
    "severity",
    "applicability",
    "fixed",
    "message",
    "remedy",
)


def render(results: Sequence[FileResult], meta: ReportMeta) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for result in results:
        for d in in_order(result.diagnostics):
            writer.writerow(
                (
                    encodable(result.path),
                    d.line,
                    d.column,
                    d.end_line,
                    d.end_column,
                    d.rule,
                    d.name,
                    d.severity.value,
                    d.applicability.value,
                    "true" if d.fixed else "false",
                    encodable(d.message),
                    encodable(d.remedy or ""),
                )
            )
    return text.getvalue()
