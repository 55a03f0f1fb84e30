from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.records import Applicability, Diagnostic, FileResult, Severity, Status
from migrator.suppress import Baseline, BaselineError, Suppressions


def covered(text: str, rule: str = "NPU101", name: str = "device-string") -> list[int]:
    """The lines on which a finding of the rule is silenced."""
    suppressions = Suppressions.parse(text)
    return [line for line in range(1, text.count("\n") + 2) if suppressions.covers(rule, name, line)]


def messages(text: str, used: tuple[tuple[str, str, int], ...] = (), **options: set[str]) -> list[tuple[str, int]]:
    return [(fault.rule, fault.line) for fault in Suppressions.parse(text).faults(used, **options)]


@pytest.mark.parametrize(
    "code",
    [
        "NPU101",
        "npu101",
        "device-string",
        "NPU999, device-string",
        " NPU101 ",
    ],
)
def test_a_comment_names_ids_or_names(code: str) -> None:
    assert covered(f"x = 1\ny = 2  # npu-migrate: ignore[{code}] why\nz = 3\n") == [2]


def test_other_rules_are_not_silenced() -> None:
    assert covered("x = 1  # npu-migrate: ignore[NPU102,cuda-api] why\n") == []


def test_a_comment_on_its_own_line_is_for_the_statement_below() -> None:
    text = "# npu-migrate: ignore[NPU101] why\nf(\n    1,\n)\nf(2)\n"
    assert covered(text) == [2, 3, 4]


def test_it_is_for_the_header_of_a_block_only() -> None:
    assert covered("# npu-migrate: ignore[NPU101] why\nif (\n  x\n):\n    y = 1\n") == [2, 3, 4]


def test_comments_above_a_statement_stack() -> None:
    text = "# npu-migrate: ignore[NPU102] why\n# npu-migrate: ignore[NPU101] why\n# and more\nx = 1\n"
    assert covered(text) == [4]
    assert covered(text, "NPU102", "cuda-api") == [4]


def test_a_blank_line_ends_its_reach() -> None:
    assert covered("# npu-migrate: ignore[NPU101] why\n\nx = 1\n") == [2]


def test_inside_brackets_it_is_for_the_next_line() -> None:
    assert covered("f(\n    # npu-migrate: ignore[NPU101] why\n    1,\n    2,\n)\n") == [3]


def test_the_end_of_an_inner_line_is_that_line() -> None:
    assert covered("f(\n    1,  # npu-migrate: ignore[NPU101] why\n    2,\n)\n") == [2]


def test_a_file_comment_is_for_every_line() -> None:
    assert covered("a = 1\n\n# npu-migrate: ignore-file[NPU101] vendored\nb = 1\n") == [1, 2, 3, 4, 5]


def test_a_string_is_no_comment() -> None:
    text = 'x = """\n# npu-migrate: ignore-file[NPU101] no\n"""\ny = "# npu-migrate: ignore[NPU101] no"\n'
    assert covered(text) == []
    assert messages(text) == []


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_lines_end_as_python_says(newline: str) -> None:
    text = newline.join(["a = 1", "b = '\x0c'", "c = 1  # npu-migrate: ignore[NPU101] why", ""])
    assert Suppressions.parse(text).covers("NPU101", "device-string", 3)


def test_source_that_does_not_tokenize_is_read_by_line() -> None:
    text = "f((\nprint 'a'  # npu-migrate: ignore[NPU101] why\n'''\n"
    assert covered(text) == [2]


def test_a_missing_reason_is_reported_but_works() -> None:
    text = "x = 1  # npu-migrate: ignore[NPU101]\n"
    assert covered(text) == [1]
    assert messages(text, (("NPU101", "device-string", 1),)) == [("NPU007", 1)]


@pytest.mark.parametrize("rest", ["", ":", " - ", "  # noqa", " : # type: ignore"])
def test_what_is_no_reason(rest: str) -> None:
    assert ("NPU007", 1) in messages(f"x = 1  # npu-migrate: ignore[NPU101]{rest}\n")


@pytest.mark.parametrize("rest", [" runs on the host", ": host only", " - host only # noqa", " #12 upstream"])
def test_what_is_a_reason(rest: str) -> None:
    used = (("NPU101", "device-string", 1),)
    assert messages(f"x = 1  # npu-migrate: ignore[NPU101]{rest}\n", used) == []


def test_a_comment_behind_another_counts() -> None:
    assert covered("x = 1  # noqa  # npu-migrate: ignore[NPU101] why\n") == [1]


@pytest.mark.parametrize("comment", ["ignore", "ignore why", "ignore[] why", "ignore-file why", "ingore[NPU101] why"])
def test_a_malformed_comment_silences_nothing_and_is_reported(comment: str) -> None:
    text = f"x = 1  # npu-migrate: {comment}\n"
    assert covered(text) == []
    assert messages(text) == [("NPU007", 1)]


def test_prose_that_mentions_the_tool_is_left_alone() -> None:
    assert messages("# npu-migrate: see the docs\n") == []


def test_an_unused_comment_is_reported_for_each_rule() -> None:
    text = "x = 1  # npu-migrate: ignore[NPU101,npu102] why\n"
    (fault,) = Suppressions.parse(text).faults([("NPU101", "device-string", 1)])
    assert (fault.rule, fault.line, fault.column) == ("NPU008", 1, 8)
    assert "NPU102" in fault.message
    assert "NPU101" not in fault.message


def test_rules_that_did_not_run_cannot_be_unused() -> None:
    text = "x = 1  # npu-migrate: ignore[NPU101,NPU102] why\n"
    assert messages(text, inactive={"NPU101", "NPU102"}) == []


def test_text_without_the_mark_costs_nothing() -> None:
    assert Suppressions.parse("(((").items == ()


# --- baseline ---------------------------------------------------------------------------------------------


def finding(line: int, rule: str = "NPU110", fixed: bool = False) -> Diagnostic:
    return Diagnostic(
        rule, "name", Severity.WARNING, "message", line, 1, line, 2, Applicability.MANUAL, fixed, "remedy"
    )


def result(before: bytes, *found: Diagnostic, after: bytes | None = None) -> FileResult:
    status = Status.UNCHANGED if after is None else Status.CHANGED
    return FileResult("a.py", status, found, before, after)


def recorded(one: FileResult) -> Baseline:
    baseline = Baseline()
    baseline.add(one, "a.py")
    return baseline


def test_a_known_finding_stays_known_when_lines_move() -> None:
    baseline = recorded(result(b"a\nbad()\n", finding(2)))
    moved = result(b"new\nnew\n\tbad()  \r\n", finding(3))
    assert baseline.filter(moved, "a.py").diagnostics == ()


def test_a_new_finding_is_reported() -> None:
    baseline = recorded(result(b"bad()\n", finding(1)))
    other_rule, other_line = finding(1, "NPU102"), finding(2)
    found = result(b"bad()\nworse()\n", finding(1), other_rule, other_line)
    assert baseline.filter(found, "a.py").diagnostics == (other_rule, other_line)
    assert baseline.filter(found, "b.py") == found


def test_as_many_equal_findings_are_known_as_were_recorded() -> None:
    baseline = recorded(result(b"bad()\n", finding(1)))
    twice = result(b"bad()\nbad()\n", finding(1), finding(2))
    assert baseline.filter(twice, "a.py").diagnostics == (finding(2),)
    assert baseline.filter(twice, "a.py").diagnostics == (finding(2),), "a filter has no memory"


def test_a_finding_stays_known_when_its_line_was_fixed_otherwise() -> None:
    before, after = b"x\nf('cuda', cap())\n", b"import torch_npu\nx\nf('npu', cap())\n"
    baseline = recorded(result(before, finding(2, fixed=True), finding(2), after=after))
    migrated = result(after, finding(3))
    assert baseline.filter(migrated, "a.py").diagnostics == ()


def test_fixed_findings_are_not_recorded() -> None:
    assert not recorded(result(b"x\n", finding(1, fixed=True))).known


def test_a_failed_file_is_never_known() -> None:
    failed = FileResult("a.py", Status.FAILED, (finding(1),), b"x\n", error="broken")
    assert not recorded(failed).known
    assert recorded(result(b"x\n", finding(1))).filter(failed, "a.py") == failed


def test_it_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    name = b"caf\xe9.py".decode("utf-8", "surrogateescape")
    baseline = Baseline()
    baseline.add(result("# 设备\n".encode("gbk"), finding(1)), name)
    baseline.save(path)
    assert Baseline.load(path).known == baseline.known
    assert json.loads(path.read_bytes())["version"] == 1


def test_an_empty_one_survives_too(tmp_path: Path) -> None:
    Baseline().save(tmp_path / "b.json")
    assert not Baseline.load(tmp_path / "b.json").known


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"3",
        b'{"version": 2, "findings": []}',
        b'{"version": 1}',
        b'{"version": 1, "findings": [{"path": "a"}]}',
        b'{"version": 1, "findings": 3}',
        b'{"version": 1, "findings": [{"path": [], "rule": "a", "text": "b", "count": 1}]}',
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=r"b\.json"):
        Baseline.load(path)


def test_a_missing_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="cannot be read"):
        Baseline.load(tmp_path / "b.json")
