"""What holds for every format."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from migrator.records import FileResult, Status
from migrator.report import FORMATS, render
from migrator.report.meta import printable


def test_formats() -> None:
    assert FORMATS == ("text", "json", "sarif", "junit", "csv", "html")


@pytest.mark.parametrize("loaded", ["jinja2", "rich", "xml.etree.ElementTree"])
def test_modules_load_when_asked_for(loaded: str) -> None:
    code = f"import sys, migrator.report; sys.exit({loaded!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_format_names_the_choices(results, meta) -> None:
    with pytest.raises(ValueError, match=r"'xml'.*text, json, sarif, junit, csv, html"):
        render("xml", results, meta)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dry_run", [False, True])
def test_ends_its_last_line_and_is_the_same_every_time(format: str, dry_run: bool, results, meta) -> None:
    meta = replace(meta, dry_run=dry_run)
    report = render(format, results, meta)
    assert report.endswith("\n") and not report.endswith("\n\n")
    assert render(format, results, meta) == report


@pytest.mark.parametrize("format", FORMATS)
def test_empty_run(format: str, meta) -> None:
    assert render(format, [], meta).endswith("\n")


@pytest.mark.parametrize("format", FORMATS)
def test_names_and_messages_that_are_no_text(format: str, meta, finding) -> None:
    awkward = FileResult(
        "bad\udcff \x1b[31m.py",
        Status.FAILED,
        (finding("NPU130", 99, 1, "text '\ud800\x00'", remedy="\udc80"),),
        b"\xff\x00",
        error="cannot read bad\udcff",
    )
    report = render(format, [awkward], replace(meta, target=replace(meta.target, reason="\udcfe")))
    report.encode("utf-8")
    if format in ("text", "junit", "html"):  # shown to people, or not allowed to hold control characters
        assert "\x1b" not in report and "\x00" not in report
    if format != "sarif":  # there it is a URI
        assert "bad\\\\xff" in report if format == "json" else "bad\\xff" in report


@pytest.mark.parametrize("format", FORMATS)
def test_finding_of_a_rule_that_is_not_listed(format: str, results, meta) -> None:
    assert "NPU130" in render(format, results, replace(meta, rules=()))


def test_printable_keeps_what_people_write() -> None:
    assert printable("训练\tdéjà\n🎉") == "训练\tdéjà\n🎉"
    assert printable("a\x1b[0m\u202eb\ufffe") == "a\\x1b[0m\\u202eb\\ufffe"
