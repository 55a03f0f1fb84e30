"""The zoo benchmark, on a repository of a few lines in place of real ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from migrator import emulator

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import zoo

TRAIN = """\
import pathlib
import torch

assert pathlib.Path("data/numbers.txt").read_text() == "made\\n"
net = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS):
    loss = net(torch.ones(2, 3).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RECIPE = {
    "name": "tiny",
    "repo": "nobody/tiny",
    "commit": "0123456789abcdef",
    "edits": [{"file": "train.py", "old": "STEPS", "new": "3", "why": "few steps"}],
    "setup": "mkdir data; echo made > data/numbers.txt",
    "command": "train.py",
    "compare": "a note",
}


@pytest.fixture
def repos(tmp_path: Path) -> Path:
    folder = tmp_path / "repos" / "nobody__tiny-0123456"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    return folder.parent


def recipe(tmp_path: Path, **changes: Any) -> zoo.Recipe:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({**RECIPE, **changes}))
    return zoo.read_recipe(path)


def test_a_recipe(tmp_path: Path, repos: Path) -> None:
    try:
        emulator.check()
    except emulator.EmulatorError as error:
        pytest.skip(str(error))
    result = zoo.run(recipe(tmp_path), repos, tmp_path / "work", transfer=False, keep=False)
    assert result.passed, result.problem
    rewrites, left, _cpu, _npu, *rest = result.cells
    assert int(rewrites) >= 3  # two .cuda() and the import, whatever else is made better
    assert (left, rest) == ("0", ["3", "0", "0", "equal", "–"])
    assert (repos / "nobody__tiny-0123456" / "train.py").read_text() == TRAIN


def test_an_edit_that_does_not_fit(tmp_path: Path, repos: Path) -> None:
    edit = {"file": "train.py", "old": "EPOCHS", "new": "3"}
    result = zoo.run(recipe(tmp_path, edits=[edit]), repos, tmp_path / "work", transfer=False, keep=False)
    assert not result.passed
    assert result.problem == "train.py does not contain 'EPOCHS'"


def test_a_setup_that_fails(tmp_path: Path, repos: Path) -> None:
    result = zoo.run(recipe(tmp_path, setup="ls nothing; true"), repos, tmp_path / "work", transfer=False, keep=False)
    assert not result.passed
    assert result.problem.startswith("the set-up failed: ls: ")


def test_a_recipe_without_a_command(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"name": "x", "repo": "a/b", "commit": "c"}')
    with pytest.raises(zoo.RecipeError, match="command"):
        zoo.read_recipe(path)


def report(relative: float, max_abs: float | str, verdict: str = "pass") -> dict[str, Any]:
    step = {"relative": relative}
    rank = {"rank": 1, "steps": [step, {"relative": 0.0}], "divergence": None}
    files = {"differences": [{"max_abs": max_abs}], "passed": verdict == "pass", "problem": None}
    comparison = {"ranks": [rank], "final_parameters": [files], "artifacts": []}
    ran = {"seconds": 1.5, "exit_code": 0, "stderr": "", "title": "there", "timed_out": False, "failures": []}
    return {"verdict": verdict, "reference": ran, "run": ran, "comparison": comparison, "notes": []}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (report(0.0, 0.0), "equal"),
        (report(1e-7, 0.0), "within tolerance"),
        (report(0.0, 1e-7), "within tolerance"),
        (report(0.0, "inf", "fail"), "fail"),
    ],
)
def test_verdicts(given: dict[str, Any], verdict: str) -> None:
    assert zoo.verdict_of(given) == verdict
    assert zoo.measured(given)[:3] == (1.5, 1.5, 2)


def test_problems() -> None:
    failed = report(0.1, 0.1, "fail")
    failed["comparison"]["ranks"][0]["divergence"] = {"step": 4, "what": "loss", "module": None, "detail": "1 for 2"}
    failed["run"] = {**failed["run"], "exit_code": 1, "stderr": "…\nValueError: no\n"}
    assert list(zoo.problems(failed)) == [
        "there: ValueError: no",
        "rank 1, step 4: loss: 1 for 2",
        "final parameters: differ",
    ]


def test_markdown(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text(f"above\n{zoo.BEGIN}\n{zoo.END}\nbelow\n")
    zoo.write_into(page, {"b": ("1",) * 7 + ("fail", "–")}, "versions")
    zoo.write_into(page, {"c": ("2",) * 7 + ("equal", "same")}, "versions")
    zoo.write_into(page, {"a": ("3",) * 7 + ("equal", "–"), "b": ("4",) * 7 + ("equal", "fails: x")}, "new versions")
    above, _, rest = page.read_text().partition(zoo.BEGIN)
    inside, _, below = rest.partition(zoo.END)
    assert (above, below) == ("above\n", "\nbelow\n")
    assert inside.strip().splitlines()[2:] == [
        "| a | 3 | 3 | 3 | 3 | 3 | 3 | 3 | equal | – |",
        "| b | 4 | 4 | 4 | 4 | 4 | 4 | 4 | equal | fails: x |",
        "| c | 2 | 2 | 2 | 2 | 2 | 2 | 2 | equal | same |",
        "",
        "new versions",
    ]
