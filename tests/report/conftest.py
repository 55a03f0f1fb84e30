"""One realistic run that every format is shown: changed, unchanged, skipped and failed files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from migrator import faults
from migrator.records import Applicability, Diagnostic, FileResult, Severity, Status
from migrator.report import ReportMeta

RULES = {
    "NPU101": ("device-string", "Device string names CUDA", "safe", "warning"),
    "NPU110": ("cuda-api", "torch.cuda call has an NPU counterpart", "safe", "error"),
    "NPU130": ("no-counterpart", "torch.cuda name that torch.npu does not have", "manual", "error"),
    "NPU201": ("fused-adamw", "torch.optim.AdamW has a fused NPU version", "unsafe", "info"),
    "NPU501": ("nccl-backend", "Process group uses NCCL", "safe", "error"),
}


@dataclass(frozen=True)
class Target:
    torch_npu: str = "2.7.1"
    soc: str | None = None
    reason: str = "requirements.txt line 3 pins torch-npu==2.7.1"


def finding(rule: str, line: int, column: int, message: str, **changes: Any) -> Diagnostic:
    """A finding one token wide, with the rule's usual severity and applicability."""
    name, _, applicability, severity = RULES[rule]
    fields: dict[str, Any] = {
        "rule": rule,
        "name": name,
        "severity": Severity(severity),
        "message": message,
        "line": line,
        "column": column,
        "end_line": line,
        "end_column": column + 6,
        "applicability": Applicability(applicability),
        "fixed": applicability == "safe",
    }
    return Diagnostic(**fields | changes)


BEFORE = b"""\
import torch
import torch.distributed as dist
from torch.cuda import nvtx


def train(loader, net):
    dist.init_process_group("nccl")
    net.to("cuda")
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step, batch in enumerate(loader):
        nvtx.range_push(f"step {step} <b>")
        loss = net(batch.to("cuda")).mean()
        loss.backward()
        opt.step()
        nvtx.range_pop()
"""
AFTER = (
    BEFORE.replace(b"import torch\n", b"import torch\nimport torch_npu\n", 1)
    .replace(b'"cuda"', b'"npu"')
    .replace(b'"nccl"', b'"hccl"')
)
NVTX = "use torch.npu.mstx, a class: mark, range_start and range_end are there since 2.1"


def train_file() -> FileResult:
    return FileResult(
        "src/train.py",
        Status.CHANGED,
        (
            finding("NPU101", 12, 27, '"cuda" becomes "npu"'),
            finding("NPU101", 8, 12, '"cuda" becomes "npu"'),
            finding("NPU501", 7, 29, '"nccl" becomes "hccl"'),
            finding("NPU130", 3, 24, "torch.npu has no nvtx", remedy=NVTX),
            finding("NPU201", 9, 11, "torch_npu.optim.NpuFusedAdamW updates all parameters in a few kernels"),
        ),
        BEFORE,
        AFTER,
    )


def results() -> list[FileResult]:
    return [
        train_file(),
        FileResult("src/data.py", Status.UNCHANGED, (), b"import json\n"),
        FileResult(
            "src/old.py",
            Status.FAILED,
            (faults.UNPARSABLE.at("line 2: expected an expression", 2, 7, "convert it with 2to3"),),
            b"import torch\nprint torch.cuda.device_count()\n",
            error="line 2: expected an expression",
        ),
        FileResult("src/blob.py", Status.SKIPPED, error="holds NUL bytes"),
    ]


def meta(**changes: Any) -> ReportMeta:
    rules = [
        SimpleNamespace(
            id=id,
            name=name,
            title=title,
            doc=f"{title}.\n\nWhy and *how*.",
            docs=f"https://example.org/{name}",
            applicability=Applicability(applicability),
            tags=("tune",),
        )
        for id, (name, title, applicability, _) in RULES.items()
    ]
    fields: dict[str, Any] = {
        "tool_version": "0.1.0",
        "target": Target(),
        "rules": (*faults.ALL, *rules),
        "dry_run": False,
    }
    return ReportMeta(**fields | changes)


@pytest.fixture(name="results")
def _results() -> list[FileResult]:
    return results()


@pytest.fixture(name="meta")
def _meta() -> ReportMeta:
    return meta()


@pytest.fixture(name="finding")
def _finding() -> Callable[..., Diagnostic]:
    return finding
