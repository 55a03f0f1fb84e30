"""The same parameters in a wrapper for several devices and without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from migrator.smoke.request import Report

WRAPPED = """\
import sys
import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).cuda()
if "torch_npu" not in sys.modules:
    net = torch.nn.DataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 3).cuda()).sum().backward()
optimizer.step()
"""


def test_data_parallel_on_one_side(smoke: Callable[..., Report], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRAPPED)
    report = smoke(tmp_path, "python", "train.py", migrate=True, compare="cpu")
    assert report.comparison is not None and report.comparison.passed, report
    [files] = report.comparison.final
    assert [item.name for item in files.differences] == [
        "Sequential.0.weight",
        "Sequential.0.bias",
        "Sequential.1.weight",
        "Sequential.1.bias",
    ]
