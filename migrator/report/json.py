"""JSON: the documented, versioned contract for other programs (docs/json.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from migrator.records import Diagnostic, FileResult
from migrator.report.meta import ReportMeta, Totals, encodable, in_order

VERSION = 1
"""Of the contract; raised when a key goes away or changes its meaning, not when one is added."""


def render(results: Sequence[FileResult], meta: ReportMeta) -> str:
    document = {
        "version": VERSION,
        "tool": {"name": "npu-migrate", "version": meta.tool_version},
        "target": {"torch_npu": meta.target.torch_npu, "soc": meta.target.soc},
        "files": [_file(result) for result in results],
        "summary": asdict(Totals.of(results)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _file(result: FileResult) -> dict[str, Any]:
    return {
        "path": encodable(result.path),
        "status": result.status.value,
        "error": result.error and encodable(result.error),
        "diagnostics": [_diagnostic(d) for d in in_order(result.diagnostics)],
    }


def _diagnostic(d: Diagnostic) -> dict[str, Any]:
    return {
        "rule": d.rule,
        "name": d.name,
        "severity": d.severity.value,
        "message": encodable(d.message),
        "line": d.line,
        "column": d.column,
        "end_line": d.end_line,
        "end_column": d.end_column,
        "applicability": d.applicability.value,
        "fixed": d.fixed,
        "remedy": d.remedy and encodable(d.remedy),
    }
