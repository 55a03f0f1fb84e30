"""Sparse gradients in programs that are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.smoke.request import Report

SPARSE = """\
import torch

bag = torch.nn.EmbeddingBag(10, 4, mode="sum", sparse=True).cuda()
optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
for step in range(2):
    loss = bag(torch.tensor([1, 2, 2, 5]).cuda(), torch.tensor([0, 2]).cuda()).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_sparse_gradients(smoke: Callable[..., Report], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPARSE)
    report = smoke(tmp_path, "python", "train.py", migrate=True, compare="cpu")
    assert report.comparison is not None and report.comparison.passed, report
    assert report.notes == []
    [ranked] = report.comparison.ranks
    assert [step.gradients for step in ranked.steps] == [pytest.approx(1), pytest.approx(1)]
