"""The JSON contract: keys, order and values; a change here is a change for every program that reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from migrator.records import FileResult, Status
from migrator.report import render

DOC = Path(__file__).parents[2] / "docs" / "json.md"


def test_document(results, meta) -> None:
    document = json.loads(render("json", results, replace(meta, target=replace(meta.target, soc="Ascend910B1"))))
    files = document.pop("files")
    assert document == {
        "version": 1,
        "tool": {"name": "npu-migrate", "version": "0.1.0"},
        "target": {"torch_npu": "2.7.1", "soc": "Ascend910B1"},
        "summary": {"files": 4, "changed": 1, "failed": 1, "skipped": 1, "fixed": 3, "remaining": 3},
    }
    assert [(f["path"], f["status"], f["error"]) for f in files] == [
        ("src/train.py", "changed", None),
        ("src/data.py", "unchanged", None),
        ("src/old.py", "failed", "line 2: expected an expression"),
        ("src/blob.py", "skipped", "holds NUL bytes"),
    ]
    assert [set(f) for f in files] == [{"path", "status", "error", "diagnostics"}] * 4
    assert files[0]["diagnostics"][1:3] == [
        {
            "rule": "NPU501",
            "name": "nccl-backend",
            "severity": "error",
            "message": '"nccl" becomes "hccl"',
            "line": 7,
            "column": 29,
            "end_line": 7,
            "end_column": 35,
            "applicability": "safe",
            "fixed": True,
            "remedy": None,
        },
        {
            "rule": "NPU101",
            "name": "device-string",
            "severity": "warning",
            "message": '"cuda" becomes "npu"',
            "line": 8,
            "column": 12,
            "end_line": 8,
            "end_column": 18,
            "applicability": "safe",
            "fixed": True,
            "remedy": None,
        },
    ]


def test_key_order_is_that_of_the_contract(results, meta) -> None:
    document = json.loads(render("json", results, meta))
    assert list(document) == ["version", "tool", "target", "files", "summary"]
    assert list(document["files"][0]) == ["path", "status", "error", "diagnostics"]


def test_diagnostics_come_by_line(results, meta) -> None:
    document = json.loads(render("json", results, meta))
    assert [d["line"] for d in document["files"][0]["diagnostics"]] == [3, 7, 8, 9, 12]


def test_unknown_chip_and_no_findings(meta) -> None:
    document = json.loads(render("json", [FileResult("a.py", Status.UNCHANGED)], meta))
    assert document["target"]["soc"] is None
    assert document["files"] == [{"path": "a.py", "status": "unchanged", "error": None, "diagnostics": []}]


def test_undecodable_names_stay_valid_json_and_differ(meta) -> None:
    names = ["\udcff.py", "\udcfe.py", "模型.py"]
    report = render("json", [FileResult(name, Status.UNCHANGED) for name in names], meta)
    parsed = json.loads(report.encode("utf-8").decode("utf-8"))
    assert [f["path"] for f in parsed["files"]] == ["\\xff.py", "\\xfe.py", "模型.py"]
    assert "模型" in report


def test_documentation_names_every_key_and_value(results, meta) -> None:
    text = DOC.read_text(encoding="utf-8")

    def words(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(words, value.values()))
        return set().union(*map(words, value)) if isinstance(value, list) else set()

    missing = {key for key in words(json.loads(render("json", results, meta))) if f"`{key}`" not in text}
    assert not missing


def test_example_in_the_documentation_has_the_shape_of_a_report(results, meta) -> None:
    example = json.loads(DOC.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0])
    document = json.loads(render("json", results, meta))
    assert list(example) == list(document)
    assert list(example["summary"]) == list(document["summary"])
    assert list(example["files"][0]) == list(document["files"][0])
    shapes = {tuple(d) for f in (*example["files"], *document["files"]) for d in f["diagnostics"]}
    assert len(shapes) == 1
    diagnostics = [d for f in example["files"] for d in f["diagnostics"]]
    assert example["summary"] == {
        "files": len(example["files"]),
        **{s: sum(f["status"] == s for f in example["files"]) for s in ("changed", "failed", "skipped")},
        "fixed": sum(d["fixed"] for d in diagnostics),
        "remaining": sum(not d["fixed"] for d in diagnostics),
    }
