"""CSV: one row a finding, as RFC 4180 quotes it."""

from __future__ import annotations

import csv
from io import StringIO

from migrator.records import FileResult, Status
from migrator.report import render

HEADER = "path,line,column,end_line,end_column,rule,name,severity,applicability,fixed,message,remedy"


def rows(report: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(report, newline=""), strict=True))


def test_rows(results, meta) -> None:
    report = render("csv", results, meta)
    lines = report.split("\r\n")
    assert lines[0] == HEADER
    assert lines[2] == ('src/train.py,7,29,7,35,NPU501,nccl-backend,error,safe,true,"""nccl"" becomes ""hccl""",')
    assert lines[-1] == "" and "\n" not in report.replace("\r\n", "")
    assert [(row["path"], row["rule"], row["fixed"]) for row in rows(report)] == [
        ("src/train.py", "NPU130", "false"),
        ("src/train.py", "NPU501", "true"),
        ("src/train.py", "NPU101", "true"),
        ("src/train.py", "NPU201", "false"),
        ("src/train.py", "NPU101", "true"),
        ("src/old.py", "NPU001", "false"),
    ]


def test_awkward_cells_come_back_as_they_were(meta, finding) -> None:
    message, remedy, path = 'one,\n"two"\r\nthree', "=SUM(A1)", 'a, "b".py'
    result = FileResult(path, Status.UNCHANGED, (finding("NPU130", 1, 1, message, remedy=remedy),))
    (row,) = rows(render("csv", [result], meta))
    assert (row["path"], row["message"], row["remedy"]) == (path, message, remedy)


def test_no_findings_leave_the_header(meta, results) -> None:
    assert render("csv", results[1:2], meta) == HEADER + "\r\n"
