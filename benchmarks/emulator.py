"""How much slower the emulated NPU is than the plain CPU: python benchmarks/emulator.py

Prints the time of importing torch and torch_npu, of one small operator, and of training steps, on the
CPU and on the emulated NPU: the best of several runs, in fresh processes, on one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from migrator.emulator import check, environment

REPEATS = 3
LIMITS = {"import": 2.0, "CNN step": 5.0, "transformer step": 5.0}


def measure(device: str) -> dict[str, float]:
    """The milliseconds of everything, in this process."""
    started = time.perf_counter()
    import torch

    results = {"import": (time.perf_counter() - started) * 1e3}
    torch.set_num_threads(1)  # more threads only measure what else the machine is doing
    torch.manual_seed(0)
    small = torch.ones(8, 8, device=device)
    results["add of 8 x 8"] = best(lambda: small + small, 500)
    results["CNN step"] = best(cnn_step(device), 10)
    results["transformer step"] = best(transformer_step(device), 10)
    return results


def best(function, count: int) -> float:
    function()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - started) / count)
    return min(times) * 1e3


def cnn_step(device: str):
    from torch import nn

    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 64, 10)),
    ).to(device)
    return training_step(model, (16, 3, 32, 32), device)


def transformer_step(device: str):
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(64 * 64, 10)).to(device)
    return training_step(model, (8, 64, 64), device)


def training_step(model, shape: tuple[int, ...], device: str):
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    inputs = torch.randn(shape).to(device)
    labels = torch.randint(0, 10, shape[:1]).to(device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def in_fresh_process(device: str) -> dict[str, float]:
    variables = environment() if device == "npu" else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    run = subprocess.run(
        [sys.executable, __file__, device],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    check()
    runs = {device: [in_fresh_process(device) for _ in range(REPEATS)] for device in ("cpu", "npu")}
    print(f"{'':20}{'CPU':>12}{'emulated':>12}{'ratio':>8}{'limit':>8}")
    for name in runs["cpu"][0]:
        cpu, npu = (min(run[name] for run in runs[device]) for device in ("cpu", "npu"))
        limit = f"{LIMITS[name]:.0f}" if name in LIMITS else ""
        print(f"{name:20}{cpu:9.3f} ms{npu:9.3f} ms{npu / cpu:8.2f}{limit:>8}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
