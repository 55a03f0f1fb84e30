"""SARIF 2.1.0, which code-scanning services and editors read.

Results are the findings that are in the files after the run: what was fixed is left out, what a dry run would
fix is not.  There are no SARIF `fixes`: a fix here is all of its edits or none (a call and its import), and
records keep whole files, not the edits of each finding.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from migrator.records import Diagnostic, FileResult, Severity, Status
from migrator.report.meta import ReportMeta, RuleInfo, encodable, unexplained_error

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_NEWLINE = re.compile(rb"\r\n|\r|\n")


def render(results: Sequence[FileResult], meta: ReportMeta) -> str:
    index = {rule.id: position for position, rule in enumerate(meta.rules)}
    driver = {
        "name": "npu-migrate",
        "version": meta.tool_version,
        "rules": [_rule(rule) for rule in meta.rules],
    }
    invocation = {
        "executionSuccessful": all(result.status is not Status.FAILED for result in results),
        "toolExecutionNotifications": list(_notifications(results, meta)),
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [item for result in results for item in _results(result, meta, index)],
        "properties": {
            "torch_npu": meta.target.torch_npu,
            "soc": meta.target.soc,
            "targetReason": encodable(meta.target.reason),
            "dryRun": meta.dry_run,
        },
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: RuleInfo) -> dict[str, Any]:
    doc = rule.doc.strip() or rule.title
    descriptor: dict[str, Any] = {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "help": {"text": doc, "markdown": doc},
    }
    link = getattr(rule, "docs", None)
    if link and re.match(r"https?://", link):
        descriptor["helpUri"] = link
    if tags := getattr(rule, "tags", ()):
        descriptor["properties"] = {"tags": list(tags)}
    return descriptor


def _results(result: FileResult, meta: ReportMeta, index: dict[str, int]) -> Iterator[dict[str, Any]]:
    lines = _NEWLINE.split(result.before or b"")
    seen: Counter[str] = Counter()
    for d in meta.pending(result):
        text = encodable(d.message)
        key = _fingerprint(d, result.path, lines[d.line - 1] if d.line <= len(lines) else b"")
        item: dict[str, Any] = {
            "ruleId": d.rule,
            "level": _LEVELS[d.severity],
            "message": {"text": f"{text}\n{encodable(d.remedy)}" if d.remedy else text},
            "locations": [_location(result.path, meta, d)],
            # Equal findings on equal lines are told apart by their order.
            "partialFingerprints": {"npuMigrateFinding/v1": f"{key}:{seen[key]}"},
            "properties": {"applicability": d.applicability.value},
        }
        if d.rule in index:
            item["ruleIndex"] = index[d.rule]
        seen[key] += 1
        yield item


def _fingerprint(d: Diagnostic, path: str, line: bytes) -> str:
    """The same for the same finding after lines above it came or went, or its line was indented anew."""
    parts = (d.rule, path, d.message)
    text = b"\0".join([*(part.encode("utf-8", "surrogatepass") for part in parts), b" ".join(line.split())])
    return hashlib.sha256(text).hexdigest()[:32]


def _notifications(results: Sequence[FileResult], meta: ReportMeta) -> Iterator[dict[str, Any]]:
    for result in results:
        if error := unexplained_error(result):
            yield {
                "level": "error" if result.status is Status.FAILED else "note",
                "message": {"text": encodable(error)},
                "locations": [_location(result.path, meta)],
            }


def _location(path: str, meta: ReportMeta, d: Diagnostic | None = None) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(meta.located(path))}}
    if d:
        physical["region"] = {
            "startLine": d.line,
            "startColumn": d.column,
            "endLine": d.end_line,
            "endColumn": d.end_column,
        }
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    """A relative path as a URI reference, an absolute one as a file URI; the bytes of a name are kept."""
    escaped = quote(path, safe="/", errors=sys.getfilesystemencodeerrors())
    if path.startswith("/"):
        return f"file://{escaped}"
    return f"file:///{escaped}" if re.match(r"[A-Za-z]:/", path) else escaped
