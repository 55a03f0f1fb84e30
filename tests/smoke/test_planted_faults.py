"""Faults planted into the migrated code of a small trainer: each kind is caught, and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.smoke import migration
from migrator.smoke.request import Report

Check = Callable[..., Report]

TRAINER = """\
import torch
from torch import nn

device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        if x.device.type == "cuda":
            x = x * 2
        return self.head(self.body(x))


def main():
    net = Net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    scaler = torch.cuda.amp.GradScaler(2.0 ** 10, 2.0, 0.5, 100, False)
    for step in range(4):
        x = torch.randn(8, 8, device=device)
        y = torch.randint(0, 4, (8,)).to(device)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()
    torch.save(net.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
"""
OVERRIDES = {"unsafe": False, "select": (), "ignore": (), "torch_npu": "2.13.0", "soc": None}


@pytest.fixture
def check(smoke: Check, tmp_path: Path) -> Check:
    """Migrates the trainer, replaces a text in the result, and compares it with the original."""

    def run(old: str = "", new: str = "", **options: object) -> Report:
        original, tree = tmp_path / "original", tmp_path / "tree"
        for folder in (original, tree):
            folder.mkdir()
            (folder / "train.py").write_text(TRAINER)
        migration.plan(original, OVERRIDES).write_to(tree)
        script = tree / "train.py"
        text = script.read_text()
        assert old in text, text
        script.write_text(text.replace(old, new, 1))
        options = options or {"original": original, "compare": "cpu"}
        return smoke(tree, "python", "train.py", **options)

    return run


def test_without_a_fault_all_is_equal(check: Check, tmp_path: Path) -> None:
    report = check(original=tmp_path / "original", compare="cpu", artifacts=("net.pt",))
    assert report.verdict.exit_code == 0, report
    [ranked] = report.comparison.ranks
    assert [step.absolute for step in ranked.steps] == [0.0] * 4
    [(_, saved)] = report.comparison.artifacts
    assert [item.max_abs for item in saved.differences] == [0.0] * 4


def test_tensor_left_on_the_cpu(check: Check) -> None:
    report = check("(8,)).to(device)", "(8,))", timeout=300)
    assert report.verdict.exit_code == 1
    [failure] = report.run.failures
    assert failure.error.startswith("RuntimeError: Expected all tensors to be on the same device")
    assert failure.code == "loss = nn.functional.cross_entropy(net(x), y)"


def test_cuda_left_in_a_branch(check: Check) -> None:
    report = check('x.device.type == "npu"', 'x.device.type == "cuda"')
    assert report.verdict.exit_code == 1
    divergence = report.comparison.ranks[0].divergence
    assert (divergence.step, divergence.what, divergence.module) == (0, "module output", "Net.body.0")
    assert "its input already differs" in divergence.detail


def test_model_zero_grad_with_a_fused_optimizer(check: Check) -> None:
    fused = (
        "optimizer = torch_npu.optim.NpuFusedAdamW(net.parameters(), lr=0.05)\n    optimizer.zero_grad = net.zero_grad"
    )
    report = check("optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)", fused)
    assert report.run.run.succeeded, report.run.run.stderr
    assert report.verdict.exit_code == 1
    divergence = report.comparison.ranks[0].divergence
    # The first step is right: only then does the optimizer keep a buffer of its own that goes stale.
    assert (divergence.step, divergence.what) == (1, "parameters")
    assert divergence.module == "Net.body.0.weight"


def test_name_that_does_not_exist(check: Check) -> None:
    report = check("torch.npu.synchronize()", "torch.npu.nvtx.mark('end')", timeout=300)
    assert report.verdict.exit_code == 1
    [failure] = report.run.failures
    assert failure.error.startswith("AttributeError")
    assert "nvtx" in failure.error
    assert failure.code == "torch.npu.nvtx.mark('end')"
    assert len(report.losses) == 4


def test_shifted_argument_of_grad_scaler(check: Check) -> None:
    report = check("100, enabled=False)", "100, False)")
    assert report.verdict.exit_code == 1
    divergence = report.comparison.ranks[0].divergence
    assert (divergence.step, divergence.what) == (0, "loss")
    assert "1024 times more: look at the arguments of GradScaler" in divergence.detail
