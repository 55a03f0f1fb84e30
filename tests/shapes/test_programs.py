"""Whole programs: what is imported, what is written at the end, and where."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

import migrator

PROGRAM = """
import sys
import torch
from migrator import shapes

def main():
    for size in shapes.watch([2, 4, 3]):
        torch.ones(size).sin()
        if size == int(sys.argv[1]):
            raise RuntimeError("stop")

main()
"""

SPAWNED = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from migrator import shapes

def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for size in shapes.watch([2, 4, 3]):
        torch.ones(size + rank).sin()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), nprocs=2)
"""

ON_NPU = """
import torch
import torch_npu
from torch.utils.checkpoint import checkpoint
from migrator import shapes

def block(x):
    return x.sinh()  # line 8

weight = torch.ones(1, device="npu", requires_grad=True)
for size in shapes.watch([4, 5, 6]):
    on_host = torch.ones(size).tan()
    x = torch.ones(size).npu() * weight  # line 13
    y = x.sigmoid()  # line 14
    loss = y.sum() + checkpoint(block, x, use_reentrant=True).sum()
    loss.backward()
"""


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in ``folder`` with this checkout on its path."""
    path = str(Path(migrator.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ranges(path: Path) -> list[str]:
    return [row["output_shape_range"] for row in read(path)]


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return "program.py"


def test_import_is_light(tmp_path: Path) -> None:
    code = """
import sys
from migrator import shapes
wrapped = shapes.watch([1, 2])
assert len(wrapped) == 2
heavy = {name.split(".")[0] for name in sys.modules} & {"torch", "libcst", "numpy", "rich", "click", "multiprocessing"}
print(sorted(heavy))
"""
    assert run(tmp_path, "-c", code).stdout.strip() == "[]"


def test_report_and_summary_at_exit(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "0")
    assert done.returncode == 0
    assert ranges(tmp_path / "npu_shapes" / "rank0.csv") == ["[2..4]", "[2..4]"]
    assert done.stderr.startswith("npu-migrate shapes: loop at program.py:7 (called at program.py:12), 3 batches")
    assert [path.name for path in (tmp_path / "npu_shapes").iterdir()] == ["rank0.csv"]


def test_a_program_that_fails_still_gets_its_report(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "4")
    assert done.returncode == 1
    assert "RuntimeError: stop" in done.stderr
    assert ranges(tmp_path / "npu_shapes" / "rank0.csv") == ["[2..4]", "[2..4]"]


def test_only_the_first_rank_prints(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "0", RANK="3")
    assert done.stderr == ""
    assert ranges(tmp_path / "npu_shapes" / "rank3.csv") == ["[2..4]", "[2..4]"]


def test_switched_off_nothing_is_written(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "0", NPU_MIGRATE_SHAPES="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "npu_shapes").exists()


def test_spawned_ranks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SPAWNED)
    done = run(tmp_path, "program.py", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path / "npu_shapes" / "rank0.csv") == ["[2..4]", "[2..4]"]
    assert ranges(tmp_path / "npu_shapes" / "rank1.csv") == ["[3..5]", "[3..5]"]
    assert done.stderr.count("npu-migrate shapes: loop at program.py:10") == 1


def test_on_an_emulated_npu(tmp_path: Path) -> None:
    """There the backward pass runs in a thread of its own, with no Python frame below the operators."""
    from migrator import emulator

    try:
        emulator.check()
    except emulator.EmulatorError as error:
        pytest.skip(str(error))
    (tmp_path / "program.py").write_text(ON_NPU)
    done = run(tmp_path, "-m", "migrator.emulator", "program.py")
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "npu_shapes" / "rank0.csv")
    assert "aten::tan" not in {row["function_name"] for row in found}  # the host's shapes do not matter
    lines = {
        (row["function_name"], int(row["line_number"])) for row in found if row["call_stack"].startswith("backward")
    }
    assert ("aten::sigmoid_backward", 14) in lines
    assert ("aten::cosh", 8) in lines
    assert {number for _, number in lines} <= {8, 13, 14, 15}
    recomputed = [row for row in found if row["function_name"] == "aten::sinh"]
    assert [row["line_number"] for row in recomputed] == ["8", "8"]
