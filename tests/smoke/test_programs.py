"""Kinds of commands: pytest, python -m, spawned ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from migrator.smoke.request import Report

Check = Callable[..., Report]

SPAWNED = """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def work(rank, world_size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29731")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(4, 1).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for step in range(2):
        x = torch.arange(8.0).reshape(2, 4).cuda(rank) / (rank + 2)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""


def test_spawned_ranks(smoke: Check, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    options = {"migrate": True, "compare": "cpu", "devices": 2, "torch_npu": "2.13.0"}
    report = smoke(tmp_path, "python", "train.py", **options)
    assert report.verdict.exit_code == 0, report
    assert [(ranked.rank, len(ranked.steps)) for ranked in report.comparison.ranks] == [(0, 2), (1, 2)]
    assert [len(files.differences) for files in report.comparison.final] == [2, 2]
    assert all(step.absolute == 0 for ranked in report.comparison.ranks for step in ranked.steps)


def test_pytest_and_its_failures(smoke: Check, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch, torch_npu\n\ndef test_it():\n    assert torch.ones(2).npu().is_cpu\n"
    )
    report = smoke(tmp_path, "pytest", "-q", "test_it.py")
    assert report.verdict.exit_code == 1
    [failure] = report.run.failures
    assert failure.error.startswith("AssertionError")
    assert (failure.path, failure.line) == ("test_it.py", 4)


def test_module_in_a_subfolder(smoke: Check, tmp_path: Path) -> None:
    package = tmp_path / "project" / "tool"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(
        "import torch_npu, torch, sys\nprint(torch.npu.device_count(), sys.argv[1:])\n"
    )
    report = smoke(tmp_path, "python", "-m", "tool", "--cuda", cwd="project", devices=3)
    assert report.verdict.exit_code == 0, report
    assert report.run.run.stdout == "3 ['--cuda']\n"


NARROW = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = net(torch.arange(8.0).reshape(2, 4).cuda()).float().square().mean()
loss.backward()
optimizer.step()
"""


def test_final_parameters_are_judged_by_the_dtype_of_the_training(smoke: Check, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NARROW)
    report = smoke(tmp_path, "python", "train.py", migrate=True, compare="cpu", torch_npu="2.13.0")
    assert report.verdict.exit_code == 0, report
    [ranked], [final] = report.comparison.ranks, report.comparison.final
    assert [step.dtype for step in ranked.steps] == ["bfloat16"]  # the loss and the parameters are float32
    weight = replace(final.differences[0], distance=0.2 * final.differences[0].size)
    assert report.comparison.accepts(replace(final, differences=(weight,)))
    exact = replace(report.comparison, ranks=(replace(ranked, steps=(replace(ranked.steps[0], dtype="float32"),)),))
    assert not exact.accepts(replace(final, differences=(weight,)))
