"""What the findings on performance and precision say is true of the real torch_npu, and they stay rare."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from migrator import registry
from migrator.emulator import EmulatorError, check, environment
from migrator.rule import INFO, MANUAL

RULES = registry.load().rules
FIXTURES = Path(__file__).parents[2] / "fixtures"

# Prints what the real torch_npu does; a value is the name of the exception where one was raised.
FACTS = """
import json, runpy, sys, warnings
import torch, torch_npu

def tried(function):
    try:
        return function()
    except BaseException as error:
        return type(error).__name__

warnings.filterwarnings("ignore")
x = torch.rand(1, 2, 3, 3, device="npu")
found = {}
found["channels last"] = [
    tried(lambda: x.contiguous(memory_format=torch.channels_last)),
    tried(lambda: torch.empty(1, 2, 3, 3, device="npu", memory_format=torch.channels_last)),
]
found["migrated"] = runpy.run_path(sys.argv[1])["run"]()
found["version"] = tried(lambda: torch.backends.cudnn.version() >= 8000)
found["deterministic"] = torch.are_deterministic_algorithms_enabled()
torch.set_float32_matmul_precision("high")
found["hf32"] = [torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32]
found["backends"] = [name for name in torch._dynamo.list_backends(exclude_tags=()) if name.startswith("npu")]
found["accelerator"] = str(torch.accelerator.current_accelerator())
from torch_npu.contrib import transfer_to_npu
function = lambda x: x
found["scripted"] = torch.jit.script(function) is function
print("FOUND" + json.dumps(found))
"""

PROGRAM = """
import torch


def run():
    torch.backends.cudnn.deterministic = True
    x = torch.arange(18.0).reshape(1, 2, 3, 3).cuda().contiguous(memory_format=torch.channels_last)
    return x.sum().item()
"""


def test_facts_on_the_emulated_npu(migrated: Any, tmp_path: Path) -> None:
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))
    program = tmp_path / "program.py"
    program.write_text(migrated(PROGRAM, unsafe=True).text)
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", FACTS, str(program)],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.partition("FOUND")[2].splitlines()[0])
    assert found["channels last"] == ["RuntimeError", "RuntimeError"]
    assert found["migrated"] == sum(range(18)), "with --unsafe the program runs, and values do not depend on the format"
    assert found["version"] == "TypeError"
    assert found["deterministic"], "the migrated program asks torch for results that repeat"
    assert found["hf32"] == [False, True], "set_float32_matmul_precision changes neither"
    assert {"npu", "npugraphs"} <= set(found["backends"])
    assert found["accelerator"] == "npu", "which is what a DataLoader pins for"
    assert found["scripted"], "transfer_to_npu switches torch.jit.script off"


@pytest.mark.parametrize(
    "words",
    [
        b"Device do not support double dtype now, dtype cast replace with float.",
        b"Only contiguous_format or preserve_format is supported.",
    ],
    ids=["float64", "channels_last"],
)
def test_what_the_wheel_says_for_itself(words: bytes) -> None:
    """The emulated NPU has its own cast, so the wheel's words are what there is to go by."""
    spec = importlib.util.find_spec("torch_npu")
    if spec is None or spec.origin is None:
        pytest.skip("torch_npu is not installed")
    with (
        (Path(spec.origin).parent / "lib" / "libtorch_npu.so").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
    ):
        assert library.find(words) > 0


def test_ignoring_advice_silences_all_that_is_only_good_to_know() -> None:
    for rule in RULES:
        if rule.severity is INFO and rule.applicability is MANUAL and "core" not in rule.tags:
            assert "advice" in rule.tags, rule.id
    assert all(rule.severity is INFO for rule in RULES if "advice" in rule.tags)


def test_advice_is_rare(migrated: Any) -> None:
    advice = {rule.id for rule in RULES if "advice" in rule.tags}
    lines = findings = 0
    for path in sorted(FIXTURES.rglob("*.py")):
        code = path.read_bytes()
        lines += code.count(b"\n")
        findings += sum(found.rule in advice for found in migrated(code, path=path.name).left)
    assert lines > 100
    assert findings <= lines / 100


@pytest.mark.parametrize(("target", "pinned"), [("2.6.0", True), ("2.7.1", False), ("2.13.0", False)])
def test_plain_loaders_pin_by_themselves_from_torch_2_7_on(migrated: Any, target: str, pinned: bool) -> None:
    code = "from torch.utils.data import DataLoader\na = DataLoader(x.cuda(), pin_memory=True, num_workers=2)\n"
    assert ("pin_memory_device" in migrated(code, target=target).text) is pinned


def test_one_finding_for_each_training_loop(migrated: Any) -> None:
    code = (
        "for epoch in range(9):\n    for x in xs:\n        loss = f(x)\n        loss.backward()\n        opt.step()\n"
        "        a += loss.item()\n        b += loss.item()\n        c += loss.item()\n    print(a.item(), b.item())\n"
    )
    found = [f for f in migrated(code).left if f.rule == "NPU707"]
    assert [f.line for f in found] == [6]
    assert "3 values" in found[0].message
