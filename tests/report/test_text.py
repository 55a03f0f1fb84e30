"""The text report as a person sees it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from migrator.records import FileResult, Status
from migrator.report import render

ANSI = re.compile(r"\x1b\[[0-9;]*m")

REPORT = """\
src/train.py:3:24: NPU130 [manual] torch.npu has no nvtx
    help: use torch.npu.mstx, a class: mark, range_start and range_end are there
        since 2.1
src/train.py:9:11: NPU201 [unsafe] torch_npu.optim.NpuFusedAdamW updates all
    parameters in a few kernels

src/old.py:2:7: NPU001 [manual] line 2: expected an expression
    help: convert it with 2to3

src/blob.py: skipped: holds NUL bytes

4 files: 1 changed, 1 failed, 1 skipped.
Target: torch_npu 2.7.1 (requirements.txt line 3 pins torch-npu==2.7.1).

Fixed 3
     2  NPU101  Device string names CUDA
     1  NPU501  Process group uses NCCL

Left 3
     1  error    NPU001  File is not valid Python 3
     1  error    NPU130  torch.cuda name that torch.npu does not have
     1  info     NPU201  torch.optim.AdamW has a fused NPU version

`--unsafe` would fix 1 of what is left; review each of those changes.
`npu-migrate rule NPU001` explains a finding and its way out.
"""


def test_report(results, meta) -> None:
    assert render("text", results, meta) == REPORT


def test_colour_changes_nothing_but_colour(results, meta) -> None:
    coloured = render("text", results, meta, color=True)
    assert ANSI.sub("", coloured) == REPORT
    assert "\x1b[31mNPU130\x1b[0m" in coloured and "\x1b[36mNPU201\x1b[0m" in coloured


def test_dry_run_says_what_would_happen(results, meta) -> None:
    report = render("text", results, replace(meta, dry_run=True, root="my repo", paths=("my repo", "a")))
    assert "4 files: 1 would change, 1 failed, 1 skipped." in report
    assert "\nWould fix 3\n" in report
    assert "\nNothing was written: `npu-migrate 'my repo' a` makes these changes.\n" in report
    assert "my repo/src/train.py:3:24: NPU130" in report


def test_files_that_were_not_read_are_named(results, meta) -> None:
    names = [f"conf/{number}.yaml" for number in range(9)]
    report = render("text", results, replace(meta, unread=names))
    assert "Not read: 9 files of other kinds name CUDA or NCCL." in report
    assert "    conf/2.yaml\n    … and 6 more (-v names all)\n" in report
    assert "    conf/8.yaml\n" in render("text", results, replace(meta, unread=names), verbose=True)
    clean = render("text", [], replace(meta, unread=names[:1]))
    assert "Not read: 1 file of another kind names CUDA" in clean
    assert "Nothing is left" not in clean


def test_verbose_lists_what_was_fixed(results, meta) -> None:
    report = render("text", results, meta, verbose=True)
    assert 'src/train.py:8:12: NPU101 [safe, fixed] "cuda" becomes "npu"\n' in report
    dry = render("text", results, replace(meta, dry_run=True), verbose=True)
    assert 'src/train.py:8:12: NPU101 [safe, would be fixed] "cuda" becomes "npu"\n' in dry


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_fit(width: int, results, meta) -> None:
    lines = render("text", results, meta, width=width).splitlines()
    assert [line for line in lines if len(line) > width] == []


def many(finding, lines: range, remedy: str | None = "do this") -> FileResult:
    found = tuple(finding("NPU130", line, 5, f"no nvtx {line}", remedy=remedy) for line in lines)
    return FileResult("a.py", Status.UNCHANGED, found)


def test_repeats_are_folded_after_the_third(meta, finding) -> None:
    report = render("text", [many(finding, range(10, 16))], meta)
    assert report.startswith(
        "a.py:10:5: NPU130 [manual] no nvtx 10\n"
        "    help: do this\n"
        "a.py:11:5: NPU130 [manual] no nvtx 11\n"
        "a.py:12:5: NPU130 [manual] no nvtx 12\n"
        "    … and 3 more NPU130: lines 13, 14, 15\n"
        "\n"
    )
    assert "\n     6  error    NPU130  " in report


def test_no_width_is_too_small(meta, finding) -> None:
    report = render("text", [many(finding, range(10, 16))], meta, width=0)
    assert "… and 3 more NPU130: lines 13, 14" in report


def test_a_single_repeat_is_shown(meta, finding) -> None:
    report = render("text", [many(finding, range(10, 14))], meta)
    assert "a.py:13:5" in report and "more" not in report


def test_long_lists_of_lines_are_cut_at_the_width(meta, finding) -> None:
    report = render("text", [many(finding, range(1000, 1100))], meta)
    (folded,) = [line for line in report.splitlines() if "more NPU130" in line]
    assert folded.startswith("    … and 97 more NPU130: lines 1003, 1004,")
    assert folded.endswith(", …") and len(folded) <= 80


def test_verbose_folds_nothing_and_repeats_the_remedy(meta, finding) -> None:
    report = render("text", [many(finding, range(10, 16))], meta, verbose=True)
    assert report.count("help: do this") == 6 and "more NPU130" not in report


def test_other_remedies_are_not_folded_away(meta, finding) -> None:
    mixed = many(finding, range(1, 7))
    other = finding("NPU130", 9, 1, "no nccl", remedy="do that")
    report = render("text", [replace(mixed, diagnostics=(*mixed.diagnostics, other))], meta)
    assert "a.py:9:1: NPU130 [manual] no nccl\n    help: do that\n" in report


def test_long_paths_leave_the_message_its_own_line(meta, finding) -> None:
    path = "a" * 60 + ".py"
    result = FileResult(path, Status.UNCHANGED, (finding("NPU130", 3, 1, "torch.npu has no nvtx"),))
    assert render("text", [result], meta).startswith(f"{path}:3:1: NPU130 [manual]\n    torch.npu has no nvtx\n")


def test_failed_file_says_why(meta) -> None:
    report = render("text", [FileResult("a.py", Status.FAILED, error="worker died")], meta)
    assert report.startswith("a.py: failed: worker died\n\n1 file: 1 failed.\n")
    assert "Nothing is left" not in report


def test_clean_run(meta) -> None:
    assert render("text", [FileResult("a.py", Status.UNCHANGED)], meta) == (
        "1 file: nothing to change.\n"
        "Target: torch_npu 2.7.1 (requirements.txt line 3 pins torch-npu==2.7.1).\n"
        "\n"
        "Nothing is left to do by hand.\n"
    )


def test_target_names_the_chip(meta, results) -> None:
    meta = replace(meta, target=replace(meta.target, soc="Ascend910B1", reason="--torch-npu"))
    assert "Target: torch_npu 2.7.1 on Ascend910B1 (--torch-npu).\n" in render("text", results, meta)


def test_worst_rule_comes_first_and_titles_are_cut(meta, results) -> None:
    report = render("text", results, meta, width=50)
    assert "     1  error    NPU130  torch.cuda name that tor…\n" in report


def test_requirements_without_torch_npu_get_the_line_to_add(meta) -> None:
    names = [f"{number}/requirements.txt" for number in range(5)]
    text = " ".join(render("text", [], replace(meta, requirements=names)).split())
    assert (
        f"add `torch-npu=={meta.target.torch_npu}` to 0/requirements.txt, 1/requirements.txt, 2/requirements.txt and "
        "2 more."
    ) in text
    assert "installs" not in render("text", [], meta)
