"""Small programs that use flash-attn, xformers and apex, and what those packages compute, in plain torch.

Each program defines run(device) → tensors: results and gradients.  STAND_INS are files of packages, path → text.
"""

from __future__ import annotations

ATTENTION = '''
import torch


def attend(q, k, v, scale, keep=None):
    """softmax(q k' scale) v of (batch, length, heads, size); keep: which positions count; a row without any gives 0."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1).nan_to_num(), v)


def triangle(rows, columns, corner):
    """True at and below the diagonal from the upper left corner, or to the lower right one."""
    return torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows if corner == "lower right" else 0)
'''

FLASH_ATTN = """
import torch
from plain_attention import attend, triangle


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    return attend(q, k, v, softmax_scale, triangle(q.shape[1], k.shape[1], "lower right") if causal else None)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False):
    pieces = []
    for i in range(len(cu_seqlens_q) - 1):
        rows, columns = (slice(int(cu[i]), int(cu[i + 1])) for cu in (cu_seqlens_q, cu_seqlens_k))
        pieces.append(flash_attn_func(q[None, rows], k[None, columns], v[None, columns], 0.0, softmax_scale, causal)[0])
    return torch.cat(pieces)
"""

XFORMERS_OPS = """
from plain_attention import attend, triangle


class LowerTriangularMask:
    corner = "upper left"


class LowerTriangularFromBottomRightMask:
    corner = "lower right"


def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None):
    keep = triangle(query.shape[1], key.shape[1], attn_bias.corner) if attn_bias else None
    return attend(query, key, value, scale, keep)
"""

APEX_NORMALIZATION = """
import torch
from torch import nn


class FusedLayerNorm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps, self.weight, self.bias = eps, nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x):
        centered = x - x.mean(-1, keepdim=True)
        return centered / (centered.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias


class FusedRMSNorm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.weight
"""

APEX_PARALLEL = """
from torch import nn


class DistributedDataParallel(nn.Module):
    def __init__(self, module, delay_allreduce=False):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def convert_syncbn_model(module):
    return module
"""

APEX_AMP = """
import contextlib


def initialize(model, optimizer, opt_level):
    return model, optimizer


@contextlib.contextmanager
def scale_loss(loss, optimizer):
    yield loss
"""

STAND_INS = {
    "plain_attention.py": ATTENTION,
    "flash_attn.py": FLASH_ATTN,
    "xformers/__init__.py": "",
    "xformers/ops.py": XFORMERS_OPS,
    "apex/__init__.py": "",
    "apex/normalization.py": APEX_NORMALIZATION,
    "apex/parallel.py": APEX_PARALLEL,
    "apex/amp.py": APEX_AMP,
}

HEAD = """import torch


def tensors(device, *shapes):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


def results(output, *inputs):
    output.pow(2).sum().backward()
    return [output, *(tensor.grad for tensor in inputs)]

"""

PROGRAMS = {
    "flash": """from flash_attn import flash_attn_func


def run(device):
    q, k, v = tensors(device, (2, 5, 4, 8), (2, 5, 4, 8), (2, 5, 4, 8))
    return results(flash_attn_func(q, k, v, 0.0, 0.3), q, k, v)
""",
    "flash-causal-fewer-key-heads": """from flash_attn import flash_attn_func


def run(device):
    q, k, v = tensors(device, (2, 5, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8))
    return results(flash_attn_func(q, k, v, causal=True), q, k, v)
""",
    "flash-more-rows-than-columns": """from flash_attn import flash_attn_func as attend


def run(device, causal=True):
    q, k, v = tensors(device, (1, 7, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8))
    return results(attend(q=q, k=k, v=v, softmax_scale=None, causal=causal), q, k, v)
""",
    "flash-varlen": """import flash_attn


def run(device, causal=False):
    q, k, v = tensors(device, (6, 2, 8), (9, 2, 8), (9, 2, 8))
    rows, columns = (torch.tensor(cu, dtype=torch.int32, device=device) for cu in ([0, 2, 6], [0, 4, 9]))
    return results(flash_attn.flash_attn_varlen_func(q, k, v, rows, columns, 4, 5, causal=causal), q, k, v)
""",
    "flash-varlen-causal": """from flash_attn import flash_attn_varlen_func


def run(device):
    q, k, v = tensors(device, (6, 4, 8), (9, 2, 8), (9, 2, 8))
    rows, columns = (torch.tensor(cu, dtype=torch.int32, device=device) for cu in ([0, 2, 6], [0, 4, 9]))
    return results(flash_attn_varlen_func(q, k, v, rows, columns, 4, 5, 0.0, None, True), q, k, v)
""",
    "xformers": """import xformers.ops as xops


def run(device):
    q, k, v = tensors(device, (2, 5, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8))
    return results(xops.memory_efficient_attention(q, k, v, attn_bias=xops.LowerTriangularMask(), scale=0.2), q, k, v)
""",
    "xformers-lower-right": """from xformers.ops import LowerTriangularFromBottomRightMask, memory_efficient_attention


def run(device):
    q, k, v = tensors(device, (2, 5, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8))
    return results(memory_efficient_attention(q, k, v, LowerTriangularFromBottomRightMask()), q, k, v)
""",
    "apex-layer-norm": """from apex.normalization import FusedLayerNorm


def run(device):
    (x,) = tensors(device, (4, 8))
    return results(FusedLayerNorm(8).to(device)(x).cos(), x)
""",
    "apex-rms-norm": """from apex.normalization import FusedRMSNorm


def run(device):
    (x,) = tensors(device, (4, 8))
    return results(FusedRMSNorm(8).to(device)(x * 1e-3).cos(), x)
""",
    "apex-sync-batch-norm": """from apex.parallel import convert_syncbn_model


def run(device):
    (x,) = tensors(device, (4, 3, 5))
    torch.manual_seed(1)
    net = convert_syncbn_model(torch.nn.Sequential(torch.nn.Conv1d(3, 6, 1), torch.nn.BatchNorm1d(6))).to(device)
    return results(net(x).cos(), x)
""",
    "apex-data-parallel": """from apex.parallel import DistributedDataParallel


def run(device):
    import torch.distributed as dist

    (x,) = tensors(device, (4, 8))
    torch.manual_seed(1)
    dist.init_process_group({"cpu": "gloo"}.get(device, "hccl"), store=dist.HashStore(), rank=0, world_size=1)
    net = DistributedDataParallel(torch.nn.Linear(8, 3).to(device), delay_allreduce=True)
    found = results(net(x).cos(), x, *net.parameters())
    dist.destroy_process_group()
    return found
""",
    "apex-amp": """from apex import amp


def run(device):
    (x,) = tensors(device, (16, 8))
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(x).float().pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]
""",
    "rotary": """

def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def run(device):
    x, cos, sin = tensors(device, (2, 3, 5, 8), (1, 1, 5, 8), (1, 1, 5, 8))
    return results((x * cos) + (rotate_half(x) * sin), x)
""",
    "swiglu": """import torch.nn.functional as F


def run(device):
    (x,) = tensors(device, (4, 8))
    gate, up = x.chunk(2, dim=-1)
    return results(F.silu(gate) * up, x)
""",
}
# Half precision and another place of rounding.
TOLERANCES = {"apex-amp": 2e-3}
