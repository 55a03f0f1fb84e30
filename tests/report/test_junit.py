"""JUnit XML: suites, cases, counts, and characters that XML does not allow."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from migrator.records import FileResult, Status
from migrator.report import render


def test_suites_and_counts(results, meta) -> None:
    root = ET.fromstring(render("junit", results, meta))
    assert root.attrib == {
        "name": "npu-migrate",
        "tests": "5",
        "failures": "3",
        "errors": "0",
        "skipped": "1",
    }
    counts = [(s.get("name"), s.get("tests"), s.get("failures"), s.get("skipped")) for s in root]
    assert counts == [
        ("src/train.py", "2", "2", "0"),
        ("src/data.py", "1", "0", "0"),
        ("src/old.py", "1", "1", "0"),
        ("src/blob.py", "1", "0", "1"),
    ]


def test_failure_names_place_and_remedy(results, meta) -> None:
    root = ET.fromstring(render("junit", results, replace(meta, root="repo")))
    case = root.find("testsuite/testcase")
    assert case is not None
    assert case.attrib == {
        "name": "NPU130 no-counterpart at 3:24",
        "classname": "src.train",
        "file": "repo/src/train.py",
        "line": "3",
    }
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "torch.npu has no nvtx", "type": "error"}
    assert failure.text is not None
    assert failure.text.splitlines()[0] == "repo/src/train.py:3:24: NPU130 [manual] torch.npu has no nvtx"
    assert failure.text.splitlines()[1].startswith("help: use torch.npu.mstx")


def test_clean_file_passes(meta, results) -> None:
    root = ET.fromstring(render("junit", results[1:2], meta))
    (case,) = root.iter("testcase")
    assert case.get("name") == "migration" and len(case) == 0


def test_file_whose_findings_were_all_fixed_passes_unless_nothing_was_written(results, meta) -> None:
    train = results[0]
    fixed = replace(train, diagnostics=tuple(d for d in train.diagnostics if d.fixed))
    assert ET.fromstring(render("junit", [fixed], meta)).get("failures") == "0"
    assert ET.fromstring(render("junit", [fixed], replace(meta, dry_run=True))).get("failures") == "3"


def test_failed_file_without_finding_is_an_error(meta) -> None:
    root = ET.fromstring(render("junit", [FileResult("a.py", Status.FAILED, error="lost")], meta))
    assert root.get("errors") == "1"
    error = root.find("testsuite/testcase/error")
    assert error is not None and error.get("message") == "lost"


def test_markup_and_control_characters(meta, finding) -> None:
    message = 'a < b && "c"\x00\x1b[0m\ufffe'
    result = FileResult("x<y>.py", Status.UNCHANGED, (finding("NPU130", 1, 1, message, remedy="]]>\x08"),))
    root = ET.fromstring(render("junit", [result], meta))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == 'a < b && "c"\\x00\\x1b[0m\\ufffe'
    assert failure.text.endswith("help: ]]>\\x08")
    assert root[0].get("name") == "x<y>.py"
