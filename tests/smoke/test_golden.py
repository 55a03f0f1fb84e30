"""A golden set recorded on the CPU, without torch_npu, and compared with on the emulated NPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.smoke.device import Kind
from migrator.smoke.report import render
from migrator.smoke.request import Report, SmokeError

Check = Callable[..., Report]

TRAINER = """\
import sys
import torch
{imports}
from torch import nn

assert ("torch_npu" in sys.modules) == {npu}
net = nn.Sequential(nn.Linear(6, 12), nn.{activation}(), nn.Linear(12, 3)).to("{device}")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for step in range(3):
    loss = net(torch.randn(5, 6, generator=generator).to("{device}")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ON_CUDA = {"imports": "", "npu": False, "device": "cuda"}
ON_NPU = {"imports": "import torch_npu", "npu": True, "device": "npu"}


def write(path: Path, activation: str, where: dict[str, object]) -> Path:
    path.mkdir()
    (path / "train.py").write_text(TRAINER.format(activation=activation, **where))
    return path


@pytest.fixture(scope="module")
def golden(smoke: Check, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden set of the trainer with a GELU."""
    folder = tmp_path_factory.mktemp("golden")
    tree = write(folder / "tree", "GELU", ON_CUDA)
    report = smoke(tree, "python", "train.py", device=Kind.CPU, record=folder / "set")
    assert report.verdict.exit_code == 0, report
    assert report.device.torch_npu is None
    about = json.loads((folder / "set" / "run.json").read_text())
    assert about["device"] == "CPU"
    assert about["seed"] == 0
    return folder / "set"


def test_same_program_agrees(smoke: Check, golden: Path, tmp_path: Path) -> None:
    report = smoke(write(tmp_path / "tree", "GELU", ON_NPU), "python", "train.py", against=golden)
    assert report.verdict.exit_code == 0, render(report)
    names = [layer.name for layer in report.comparison.layers]
    assert names == ["Sequential.0", "Sequential.1", "Sequential.2"] * 2  # of the first two steps
    assert all(layer.outputs > 0.999999 and layer.max_abs < 1e-5 for layer in report.comparison.layers)
    [ranked] = report.comparison.ranks
    assert len(ranked.steps) == 3


def test_first_layer_that_differs_is_named(smoke: Check, golden: Path, tmp_path: Path) -> None:
    report = smoke(write(tmp_path / "tree", "SiLU", ON_NPU), "python", "train.py", against=golden)
    assert report.verdict.exit_code == 1
    first, second, third, *_ = report.comparison.layers
    assert first.passed
    assert not second.passed and second.inputs_passed
    assert not third.passed and not third.inputs_passed
    text = " ".join(render(report).split())
    assert "FIRST LAYER THAT DIFFERS: Sequential.1 (SiLU) at step 0, while its input agrees" in text


def test_modules_are_chosen_by_name_or_class(smoke: Check, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", "GELU", ON_CUDA)
    smoke(tree, "python", "train.py", device=Kind.CPU, record=tmp_path / "set", modules="*Linear", module_steps=1)
    saved = [json.loads(line) for path in (tmp_path / "set").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [event["name"] for event in saved if event.get("file")] == ["Sequential.0", "Sequential.2"]


def test_folder_without_a_golden_set(smoke: Check, tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match=r"is no golden set: --record .* makes one"):
        smoke(tmp_path, "python", "-c", "1", against=tmp_path)
