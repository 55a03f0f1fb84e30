"""SARIF: the shape the standard asks for, what is a result, where it is, and that its fingerprint lasts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest

from migrator.records import FileResult, Status
from migrator.report import render

SCHEMA = json.loads((Path(__file__).parent / "sarif-subset.json").read_text(encoding="utf-8"))


def run_of(results, meta) -> dict[str, Any]:
    log = json.loads(render("sarif", results, meta))
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(SCHEMA, format_checker=checker).validate(log)
    (run,) = log["runs"]
    return run


def uri_of(path: str, meta, finding) -> str:
    result = FileResult(path, Status.UNCHANGED, (finding("NPU130", 1, 1, "m"),), b"x\n")
    (item,) = run_of([result], meta)["results"]
    return item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def test_results_are_what_is_left(results, meta) -> None:
    run = run_of(results, meta)
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("NPU130", "error"),
        ("NPU201", "note"),
        ("NPU001", "error"),
    ]
    first = run["results"][0]
    assert first["message"]["text"].startswith("torch.npu has no nvtx\nuse torch.npu.mstx")
    assert first["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 3,
        "startColumn": 24,
        "endLine": 3,
        "endColumn": 30,
    }
    assert run["columnKind"] == "unicodeCodePoints"


def test_dry_run_has_what_would_be_fixed_too(results, meta) -> None:
    run = run_of(results, replace(meta, dry_run=True))
    found = [r["ruleId"] for r in run["results"]]
    assert found == ["NPU130", "NPU501", "NPU101", "NPU201", "NPU101", "NPU001"]
    assert [r["level"] for r in run["results"] if r["ruleId"] == "NPU101"] == ["warning", "warning"]


def test_rules_are_those_of_the_run(results, meta) -> None:
    run = run_of(results, meta)
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in meta.rules]
    for item in run["results"]:
        assert driver["rules"][item["ruleIndex"]]["id"] == item["ruleId"]
    rule = next(rule for rule in driver["rules"] if rule["id"] == "NPU201")
    assert rule == {
        "id": "NPU201",
        "name": "fused-adamw",
        "shortDescription": {"text": "torch.optim.AdamW has a fused NPU version"},
        "help": {"text": rule["help"]["text"], "markdown": rule["help"]["text"]},
        "helpUri": "https://example.org/fused-adamw",
        "properties": {"tags": ["tune"]},
    }
    assert "Why and *how*." in rule["help"]["markdown"]


def test_rule_that_is_not_listed_has_no_index(results, meta) -> None:
    assert "ruleIndex" not in run_of(results, replace(meta, rules=()))["results"][0]


def test_errors_without_a_finding_are_notifications(results, meta) -> None:
    (invocation,) = run_of(results, meta)["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [(n["level"], n["message"]["text"]) for n in invocation["toolExecutionNotifications"]] == [
        ("note", "holds NUL bytes")
    ]
    (clean,) = run_of(results[:2], meta)["invocations"]
    assert clean == {"executionSuccessful": True, "toolExecutionNotifications": []}


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("src/train.py", "src/train.py"),
        ("a b/100%#?.py", "a%20b/100%25%23%3F.py"),
        ("a:b.py", "a%3Ab.py"),
        ("模.py", "%E6%A8%A1.py"),
        ("bad\udcff.py", "bad%FF.py"),
    ],
)
def test_uri_is_percent_encoded(path: str, uri: str, meta, finding) -> None:
    assert uri_of(path, meta, finding) == uri
    assert unquote_to_bytes(uri) == path.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("root", "uri"),
    [
        (".", "a.py"),
        ("./src/", "src/a.py"),
        ("../other", "../other/a.py"),
        ("C:/repo", "file:///C%3A/repo/a.py"),
        ("/home/me/my repo", "file:///home/me/my%20repo/a.py"),
    ],
)
def test_uri_starts_where_the_user_stands(root: str, uri: str, meta, finding) -> None:
    assert uri_of("a.py", replace(meta, root=root), finding) == uri


def test_fingerprint_survives_shifts_and_tells_twins_apart(meta, finding) -> None:
    def prints(before: bytes, *lines: int, path: str = "a.py", rule: str = "NPU130") -> list[str]:
        found = tuple(finding(rule, line, 1, "m") for line in lines)
        run = run_of([FileResult(path, Status.UNCHANGED, found, before)], meta)
        return [value for r in run["results"] for value in r["partialFingerprints"].values()]

    base = prints(b"f()\nf()\ng()\n", 1, 2, 3)
    assert len(set(base)) == 3
    assert prints(b"import os\r\n\r\nif x:\r\n    f()\r\n    f()\r\ng()\r\n", 4, 5, 6) == base
    assert prints(b"f(1)\nf()\ng()\n", 1, 2, 3)[0] not in base
    assert not set(prints(b"f()\nf()\ng()\n", 1, 2, 3, path="b.py")) & set(base)
    assert not set(prints(b"f()\nf()\ng()\n", 1, 2, 3, rule="NPU110")) & set(base)


def test_finding_behind_the_last_line(meta, finding) -> None:
    result = FileResult("a.py", Status.FAILED, (finding("NPU130", 9, 1, "m"),), None, error="gone")
    assert len(run_of([result], meta)["results"]) == 1
