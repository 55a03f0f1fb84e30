"""Code that was ported before, or names no device, stays; code beside it that only looks so does not."""

from __future__ import annotations

import pytest

PORTED = {
    "npu branch first": """import torch
if is_torch_npu_available():
    device = "npu:0"
elif torch.cuda.is_available():
    device = "cuda:0"
else:
    device = "cpu"
""",
    "npu branch last": """import torch
def clear():
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif is_npu_available():
        torch.npu.empty_cache()
""",
    "one return after another": """import torch
def get_device():
    if torch.cuda.is_available():
        return "cuda"
    if is_npu_available():
        return "npu"
    return "cpu"
""",
    "the npu has left": """import torch
def get_device():
    if is_npu_available():
        return "npu:0"
    return "cuda" if torch.cuda.is_available() else "cpu"
""",
    "the same call twice": """import torch
def set_seed(seed):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    if is_torch_npu_available():
        torch.npu.manual_seed_all(seed)
""",
    "conditional expressions": """import torch
device = "cuda" if torch.cuda.is_available() else "npu" if torch.npu.is_available() else "cpu"
backend = "nccl" if torch.cuda.is_available() else "hccl"
other = "npu" if use_npu else "cuda"
""",
    "operands": """import torch
if x.is_cuda or x.is_npu:
    y = x
ok = device.type in ("cuda", "npu") and (torch.cuda.is_available() or torch.npu.is_available())
""",
    "entries": """import torch
BACKENDS = {"cuda": "nccl", "npu": "hccl", "cpu": "gloo"}
COUNTS = {"cuda": torch.cuda.device_count, "npu": torch.npu.device_count}
VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}
modules = dict(cuda=torch.cuda, npu=torch.npu)
""",
    "cases": """import torch
match device:
    case "cuda":
        pass
    case "npu":
        pass
""",
    "a failing import of torch_npu": """try:
    import torch_npu
    DEVICE = "npu"
except ImportError:
    DEVICE = "cuda"
""",
    "other packages": """if is_npu_available():
    from torch_npu import npu_fusion_attention
else:
    from flash_attn import flash_attn_func
""",
    "environment": """import os
if is_npu:
    os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"
else:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
""",
}

NEUTRAL = """import torch
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
torch.accelerator.synchronize()
module = torch.get_device_module(device)
model = model.to(device)
"""

CHANGED = {
    "a word that contains npu": """import torch
if inputs.ok:
    x = inputs.cuda()
elif outputs.ok:
    x = outputs.cuda()
""",
    "an error without an npu": """import torch
def run(x):
    if not is_npu_available():
        raise RuntimeError("no NPU")
    return x.cuda()
""",
    "torch_npu may be missing": """import torch
try:
    import torch_npu
except ImportError:
    pass
x = x.cuda()
""",
    "another function": """import torch
def seed_npu(seed):
    torch.npu.manual_seed(seed)
def seed(seed):
    torch.cuda.manual_seed(seed)
""",
    "an option of another kind": """import torch
x = make(device="cuda", npu_first=True)
y = {"device": "cuda", "npu": None}
""",
}


@pytest.mark.parametrize("name", PORTED)
def test_ported_code_stays(migrated, name: str) -> None:
    outcome = migrated(PORTED[name], unsafe=True)
    assert outcome.text == PORTED[name]
    assert outcome.left and {found.severity.value for found in outcome.left} == {"info"}


def test_code_without_a_device_is_not_spoken_of(migrated) -> None:
    outcome = migrated(NEUTRAL, unsafe=True)
    assert outcome.text == NEUTRAL and not outcome.left


@pytest.mark.parametrize("name", CHANGED)
def test_code_that_only_looks_ported_is_changed(migrated, name: str) -> None:
    text = migrated(CHANGED[name]).text
    assert "cuda" not in text.replace('"no NPU"', "")
