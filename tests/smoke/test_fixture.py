"""A whole repository: its migrated copy computes on the emulated NPU what the original computes on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from migrator.smoke.request import Report

Check = Callable[..., Report]

TREE = Path(__file__).parents[2] / "fixtures" / "image_classification" / "before"
COMMAND = ("main.py", "--config", "configs/debug_cpu.yaml", "--device", "cuda")
CHECKPOINT = "runs/debug_cpu/last.pth"


def digest(tree: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in tree.rglob("*") if path.is_file()}


def test_losses_equal_those_of_the_original(smoke: Check) -> None:
    before = digest(TREE)
    report = smoke(TREE, "python", *COMMAND, migrate=True, compare="cpu", artifacts=(CHECKPOINT,))
    assert report.verdict.exit_code == 0, report
    assert report.run.run.command[-1] == "npu"
    [ranked] = report.comparison.ranks
    assert len(ranked.steps) == 16
    assert all(step.relative < 1e-6 and step.parameters > 0.999999 for step in ranked.steps)
    assert ranked.steps[-1].value < ranked.steps[0].value / 1.5
    [final] = report.comparison.final
    assert len(final.differences) == 29
    [(name, checkpoint)] = report.comparison.artifacts
    assert name == CHECKPOINT
    assert max(item.max_abs for item in checkpoint.differences) < 1e-5
    assert digest(TREE) == before


def test_each_rank_has_its_own_trace(smoke: Check) -> None:
    command = ("torchrun", "--nproc-per-node", "2", *COMMAND)
    report = smoke(TREE, *command, migrate=True, compare="cpu", devices=2, max_steps=2)
    assert report.verdict.exit_code == 0, report
    first, second = report.comparison.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert len(first.steps) == len(second.steps) == 2
    assert first.steps[0].value != second.steps[0].value


def test_failure_is_explained_by_what_the_migrator_said(smoke: Check) -> None:
    report = smoke(TREE, "python", *COMMAND, "--channels-last", migrate=True)
    assert report.verdict.exit_code == 1
    [failure] = report.run.failures
    assert (failure.path, failure.line, failure.original) == ("main.py", 135, 134)
    assert failure.code == "model.to(memory_format=torch.channels_last)"
    assert [finding.rule for finding in failure.said] == ["NPU704"]
