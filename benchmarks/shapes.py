"""What watching a loop costs: the CPU time of a training step with the shape detector on, over that with it off.

One thread and CPU time, so that other work on the machine hardly shows.

python benchmarks/shapes.py [--batches 30] [--rounds 5] [--device cpu]
TORCH_DEVICE_BACKEND_AUTOLOAD=1 python benchmarks/shapes.py --device npu
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
os.environ["NPU_MIGRATE_SHAPES_STEPS"] = "0"  # record every batch
os.environ["RANK"] = "1"  # only rank 0 prints a summary
os.environ["NPU_MIGRATE_SHAPES_OUT"] = str(Path(tempfile.mkdtemp()) / "shapes.csv")

import torch
from torch import nn
from torch.nn import functional

from migrator import shapes

Step = Callable[[], None]


def train_step(model: nn.Module, inputs: torch.Tensor, classes: int) -> Step:
    """Return a function that trains ``model`` on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    target = torch.randint(0, classes, (len(inputs),)).to(inputs.device)

    def step() -> None:
        loss = functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def cnn(device: str) -> Step:
    """Two convolutions with batch normalization on 16 images of 3 x 64 x 64."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 16 * 16, 10)).to(device)
    return train_step(model, torch.randn(16, 3, 64, 64).to(device), 10)


def transformer(device: str) -> Step:
    """Two encoder layers of width 128 on 16 sequences of 64."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(64 * 128, 10)).to(device)
    return train_step(model, torch.randn(16, 64, 128).to(device), 10)


def milliseconds(step: Step, batches: Iterable[int]) -> float:
    """Return the mean CPU time of a step, without the first."""
    number, start = 0, 0.0
    for number, _ in enumerate(batches):
        if number == 1:
            start = time.process_time()
        step()
    return (time.process_time() - start) / number * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=30, help="steps per round, at least 2")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the fastest counts")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for build in (cnn, transformer):
        step = build(options.device)
        batches = range(options.batches)
        rounds = [
            (milliseconds(step, batches), milliseconds(step, shapes.watch(batches))) for _ in range(options.rounds)
        ]
        off, on = map(min, zip(*rounds, strict=True))
        print(f"{build.__name__:12} off {off:7.2f} ms  on {on:7.2f} ms  ratio {on / off:.2f}")


if __name__ == "__main__":
    main()
