"""What a report concludes, and how it looks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from migrator.smoke import document
from migrator.smoke.compare import Divergence, Ranked, Step
from migrator.smoke.device import Device, Kind
from migrator.smoke.failures import Failure
from migrator.smoke.golden import Layer
from migrator.smoke.imports import Imported, Outcome
from migrator.smoke.launcher import Run
from migrator.smoke.operators import Operator, Verdict
from migrator.smoke.report import ROWS, render
from migrator.smoke.request import Comparison, Report, Side
from migrator.smoke.tensors import Difference, Files
from migrator.smoke.tolerances import Tolerances
from migrator.target import Target

LONG = "a/very/long/folder/name/that/goes/on/and/on/" * 3 + "model.py"


def report(**fields: object) -> Report:
    found = Report(Device(Kind.EMULATED, "Ascend910B1", 1, "2.13.0+cpu", "2.13.0"), Target("2.13.0", None, "test"))
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def side(exit_code: int | None = 0, *errors: str) -> Side:
    failures = tuple(Failure(error, "train.py", 3, "code()") for error in errors)
    return Side("on the emulated NPU", Run(("python", "train.py"), exit_code, 1.0, "", ""), failures)


def step(number: int, passed: bool = True) -> Step:
    return Step(number, "float32", 1.0, 1.0 if passed else 2.0, 0.0 if passed else 1.0, 0.0, 1.0, None, passed)


def comparison(*ranks: Ranked, files: tuple[Files, ...] = (), **fields: object) -> Comparison:
    return Comparison("the original on the CPU", Tolerances(), ranks, files, **fields)  # type: ignore[arg-type]


def difference(name: str, distance: float, size: float = 100.0, problem: str | None = None) -> Difference:
    return Difference(name, "float32", 1000, 0.9, distance, size, distance, problem)


@pytest.mark.parametrize(
    ("fields", "exit_code"),
    [
        ({"run": side()}, 0),
        ({"run": side(1)}, 1),
        ({"run": side(None)}, 1),
        ({"run": side(1, "ModuleNotFoundError: No module named 'yaml'")}, 2),
        ({"run": side(), "reference": side(1)}, 2),
        ({"run": side(1, "KeyError: 'a'"), "reference": side(1, "KeyError: 'a'")}, 2),
        ({"run": side(1, "KeyError: 'b'"), "reference": side(1, "KeyError: 'a'")}, 1),
        ({"run": side(139), "reference": side(139)}, 2),
        ({"run": side(139), "reference": side()}, 1),
        ({"run": side(), "comparison": comparison()}, 2),
        ({"run": side(), "comparison": comparison(Ranked(0, (step(0),), 0, None))}, 0),
        ({"run": side(), "comparison": comparison(Ranked(0, (), 0, Divergence(0, "loss", None, "")))}, 1),
        ({"imports": [Imported("a.py", Outcome.OK), Imported("b.py", Outcome.NEEDS, "yaml")]}, 0),
        ({"imports": [Imported("a.py", Outcome.OK), Imported("b.py", Outcome.FAILED, "x")]}, 1),
        ({"imports": [Imported("b.py", Outcome.NEEDS, "yaml")]}, 2),
    ],
)
def test_verdict(fields: dict[str, object], exit_code: int) -> None:
    assert report(**fields).verdict.exit_code == exit_code


def test_files_are_judged_as_a_whole_and_by_the_dtype_of_the_training() -> None:
    noisy = Files((difference("weight", 0.01, size=100.0), difference("bias", 0.05, size=0.1)))
    wrong = Files((difference("weight", 0.01, size=100.0), difference("bias", 1.0, size=0.1)))
    one = Ranked(0, (step(0),), 0, None)
    assert comparison(one).accepts(noisy)
    assert not comparison(one).accepts(wrong)
    half = Ranked(0, (Step(0, "float16", 1.0, 1.0, 0.0, 0.0, None, None, True),), 0, None)
    assert comparison(half).accepts(wrong)
    assert not comparison(one).accepts(Files((difference("weight", 0.0, problem="only on the device"),)))
    assert not comparison(one).accepts(Files((), "cannot be read"))


def test_a_crash_of_the_reference_is_named_and_not_blamed_on_the_migration() -> None:
    crashed = Side("the original on the CPU", Run(("python", "train.py"), 134, 1.0, "", "double free or corruption\n"))
    text = render(report(run=side(), reference=crashed))
    assert "FAILED the original on the CPU: ended by SIGABRT (exit 134), 1.0 s\n  | double free" in text
    verdict = " ".join(text.rpartition("\n\n")[2].split())
    assert verdict == (
        "COULD NOT RUN: the reference was ended by SIGABRT, not the migrated code; "
        "if torch crashed: set ONEDNN_MAX_CPU_ISA=SSE41"
    )


def full_report() -> Report:
    steps = tuple(step(number, number != 500) for number in range(1000))
    ranked = Ranked(0, steps, 9, Divergence(500, "loss", "Net." + "layer." * 10, "2 instead of 1"))
    layers = tuple(
        Layer(0, 0, "Net." + "block." * 9 + str(n), "Conv2d", "float32", 1.0, None, math.inf, 1e-9, True, n < 40)
        for n in range(50)
    )
    compared = comparison(ranked, files=(Files((difference(LONG, 3.0),)),), layers=layers)
    return report(
        run=side(1, "ValueError: " + "no " * 60),
        comparison=compared,
        imports=[Imported(LONG, Outcome.FAILED, "ValueError: no", LONG, 3)],
        operators=[Operator("cumsum", ("float64",), Verdict.UNSUPPORTED, "torch.cumsum takes float32", (("a.py", 3),))],
        notes=["a note " * 30],
        folder=Path("/tmp/kept"),
    )


def test_text_fits_the_screen_and_leaves_out_the_usual() -> None:
    lines = render(full_report()).splitlines()
    assert [line for line in lines if len(line) > 80 and LONG not in line] == []
    assert lines[0].startswith("Device: emulated NPU (Ascend910B1)")
    shown = [line for line in lines if line[:5].strip().isdigit() and "block" not in line]
    assert ROWS // 2 < len(shown) <= ROWS + 4
    assert any(line.startswith("  500") and line.endswith("✗") for line in shown)
    assert len(render(full_report(), verbose=True).splitlines()) > 1000
    assert lines[-1] == "FAIL"


def test_json_has_no_infinities() -> None:
    text = document.render(full_report())
    assert "Infinity" not in text
    assert '"relative": "inf"' in text
