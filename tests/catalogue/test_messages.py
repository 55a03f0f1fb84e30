"""Messages of fixes name what was written before and what is written now."""

from __future__ import annotations

import pytest

CHANGES = {
    'x = torch.ones(2, device="cuda:0")\n': 'NPU101 "cuda:0" → "npu:0": it is the device argument',
    'x = torch.ones(2, device=f"cuda:{i}")\n': 'NPU101 f"cuda:{i}" → f"npu:{i}": it is the device argument',
    "from torch.cuda import amp\n": "NPU103 from torch.cuda import amp → from torch_npu.npu import amp",
    "import torch.cuda\n": "NPU103 import torch.cuda is taken out",
    "from torch.cuda.amp import (\n    autocast,\n)\n": (
        "NPU103 from torch.cuda.amp import ( autocast, ) → from torch_npu.npu.amp import ( autocast, )"
    ),
    "x = net(y).cuda()\n": "NPU104 net(y).cuda → net(y).npu",
    "ok = x.is_cuda\n": "NPU105 x.is_cuda → x.is_npu",
    'x.to(0)\nif "CUDA out of memory" in str(e):\n    pass\n': (
        'NPU109 "CUDA out of memory" → "NPU out of memory"'
    ),
    'x = x.to(1)\ny = "npu"\n': 'NPU106 device 1 → "npu:1"',
    'torch.distributed.init_process_group("nccl")\n': 'NPU501 "nccl" → "hccl"',
    'torch.distributed.init_process_group(backend="cpu:gloo,cuda:nccl")\n': (
        'NPU501 "cpu:gloo,cuda:nccl" → "cpu:gloo,npu:hccl"'
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", CHANGES)
def test_both_sides_are_named(migrated, code: str) -> None:
    outcome = migrated("import torch\n" + code, target="2.4.0")
    assert CHANGES[code] in [f"{found.rule} {found.message}" for found in outcome.result.diagnostics if found.fixed]


def test_a_long_receiver_is_cut_at_its_front(migrated) -> None:
    outcome = migrated(f"import torch\nx = torch.rand({', '.join(['100'] * 40)}).cuda()\n")
    (found,) = (found for found in outcome.result.diagnostics if found.rule == "NPU104")
    before, after = found.message.split(" → ")
    assert before.startswith("…") and before.endswith("100).cuda") and after.endswith("100).npu")


def test_a_grad_scaler_is_the_reason_that_is_told(migrated) -> None:
    code = """\
from torch.cuda import amp
import torch
net = torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
scaler = amp.GradScaler()
for x in data:
    opt.zero_grad()
    scaler.scale(net(x).sum()).backward()
    scaler.step(opt)
    scaler.update()
"""
    (found,) = (found for found in migrated(code).left if found.rule == "NPU201")
    assert found.message == (
        "torch.optim.SGD works on NPUs and stays. torch_npu.optim.NpuFusedSGD is faster, but is not sure to train "
        "the same: a GradScaler changes the gradients and skips steps (train.py:5)"
    )
    assert found.remedy is not None and found.remedy.startswith("Nothing has to be done.")


def test_a_scaler_by_another_name_steps_the_optimizer(migrated) -> None:
    code = """\
import torch
from compat import Scaler
net = torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
scaler = Scaler()
for x in data:
    opt.zero_grad()
    scaler.scale(net(x).sum()).backward()
    scaler.step(opt)
"""
    (found,) = (found for found in migrated(code).left if found.rule == "NPU201")
    assert found.message.endswith(": opt is stepped by another object, as a GradScaler does (train.py:9)")
