"""JUnit XML, which CI systems show as test results: a suite for each file, a failing case for each finding.

A finding is a failure while it is in the file: those that were fixed are gone, those that a dry run would fix
are not.  A file with nothing left is one passing case.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from migrator.records import Diagnostic, FileResult, Status
from migrator.report.meta import ReportMeta, printable, unexplained_error


def render(results: Sequence[FileResult], meta: ReportMeta) -> str:
    root = ET.Element("testsuites", name="npu-migrate")
    for result in results:
        root.append(_suite(result, meta))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(result: FileResult, meta: ReportMeta) -> ET.Element:
    suite = ET.Element("testsuite", name=printable(result.path))
    file = printable(meta.located(result.path))
    # CI systems split class names at dots into packages, as Java has them.
    classname = posixpath.splitext(printable(result.path))[0].replace("/", ".")
    pending = meta.pending(result)
    for d in pending:
        name = f"{d.rule} {d.name} at {d.line}:{d.column}"
        case = ET.SubElement(suite, "testcase", name=name, classname=classname, file=file, line=str(d.line))
        _trouble(case, "failure", printable(d.message), d.severity.value, _details(file, d))
    error = unexplained_error(result)
    if error or not pending:
        case = ET.SubElement(suite, "testcase", name="migration", classname=classname, file=file)
        if result.status is Status.SKIPPED:
            ET.SubElement(case, "skipped", message=printable(error or "skipped"))
        elif result.status is Status.FAILED:
            _trouble(case, "error", printable(error or "failed"), "error", file)
    suite.set("tests", str(len(suite)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    return suite


def _trouble(case: ET.Element, tag: str, message: str, type_: str, text: str) -> None:
    ET.SubElement(case, tag, message=message, type=type_).text = text


def _details(file: str, d: Diagnostic) -> str:
    lines = [f"{file}:{d.line}:{d.column}: {d.rule} [{d.applicability.value}] {d.message}"]
    if d.remedy:
        lines.append(f"help: {d.remedy}")
    return printable("\n".join(lines))
