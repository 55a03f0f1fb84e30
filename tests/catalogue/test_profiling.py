"""Profilers: what moves to torch_npu.profiler, what stays, and that the reasons are true on the emulated NPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import libcst as cst
import pytest

from migrator.emulator import EmulatorError, check, environment
from migrator.statements import drop_arguments

PROGRAM = """
import torch
import torch.profiler as tp
from torch.profiler import ProfilerActivity, record_function


def run(folder):
    x = torch.ones(4, 4).cuda()
    with tp.profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=tp.schedule(wait=0, warmup=0, active=1, repeat=1),
        on_trace_ready=tp.tensorboard_trace_handler(folder, use_gzip=True),
    ) as prof:
        for _ in range(2):
            with record_function("step"):
                x = x @ x
            prof.step()
    return x.sum().item()
"""

# Prints what the real torch_npu does; a value is the name of the exception where one was raised.
FACTS = """
import json, os, runpy, sys, warnings
import torch, torch_npu

def tried(function):
    try:
        return function()
    except BaseException as error:
        return type(error).__name__

def history(*arguments, **options):
    return tried(lambda: torch.npu.memory._record_memory_history(*arguments, **options))

CPU, theirs = torch_npu.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CPU
found = {}
found["migrated"] = runpy.run_path(sys.argv[1])["run"]("log")
found["written"] = [name.rsplit("_", 2)[1:] for name in os.listdir("log")]
profile = torch_npu.profiler.profile()
found["reads"] = [hasattr(profile, name) for name in ("key_averages", "events")]
found["torch with torch_npu's"] = tried(lambda: torch.profiler.profile(activities=[CPU]))
mixed = torch_npu.profiler.profile(activities=[theirs])
found["torch_npu with torch's"] = len(mixed.prof_if.activities)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["use_cuda"] = torch.autograd.profiler.profile(use_cuda=True).use_device
    found["warned"] = any("CUDA is not available" in str(w.message) for w in caught)
found["use_device"] = torch.autograd.profiler.profile(use_device="npu").use_device
average = torch.autograd.profiler_util.FunctionEventAvg()
found["columns"] = [hasattr(average, f"self_{name}_time_total") for name in ("device", "npu")]
found["device type"] = hasattr(torch.autograd.DeviceType, "PrivateUse1")
found["native"] = hasattr(torch.profiler.ProfilerActivity, "NPU")
found["raises"] = [
    tried(torch.cuda.profiler.start),
    tried(lambda: torch.cuda.cudart().cudaProfilerStart()),
    tried(lambda: torch.cuda.nvtx.range_push("a")),
    tried(lambda: torch.autograd.profiler.emit_nvtx().__enter__()),
]
x = torch.ones(2, device="npu")
with torch.npu.mstx.annotate("a"):
    x = x + 1
found["annotate"] = torch.npu.mstx.annotate("b")(lambda x: x + 1)(x).sum().item()
found["history"] = [history(True), history(True, trace_alloc_max_entries=9), history("all", clear_history=True)]
found["new history"] = [history("all", max_entries=9), history(enabled=None)]
stats = torch.npu.memory_stats()
sizes = [f"{name}_bytes.{pool}.{value}" for name in ("allocated", "reserved", "active", "requested")
         for pool in ("all", "large_pool", "small_pool") for value in ("current", "peak", "allocated", "freed")]
found["no stats"] = [key for key in [*sizes, "num_alloc_retries", "num_ooms"] if key not in stats]
print("FOUND" + json.dumps(found))
"""


def emulated(script: str, *arguments: str, folder: Path) -> str:
    """What a script prints on an emulated NPU."""
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment()},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_facts_on_the_emulated_npu(migrated: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(migrated(PROGRAM).text)
    found = json.loads(emulated(FACTS, str(program), folder=tmp_path).partition("FOUND")[2].splitlines()[0])
    assert found["migrated"] == 4 * 4 * 64, "the migrated program runs"
    assert found["written"] == [["ascend", "pt"]], "the results are files"
    assert found["reads"] == [False, False], "nothing reads them in memory"
    assert found["torch with torch_npu's"] == "AssertionError", "the two packages' activities do not mix"
    assert found["torch_npu with torch's"] == 2, "torch's activities are ignored: all are recorded"
    assert found["use_cuda"] is None and found["warned"], "use_cuda measures the host alone"
    assert found["use_device"] == "npu"
    assert found["columns"] == [True, False], "no column is called after the NPU"
    assert found["device type"]
    assert found["native"], "torch's own profiler knows the NPU from 2.12 on"
    assert found["raises"] == ["AssertionError", "AssertionError", "RuntimeError", "AssertionError"]
    assert found["annotate"] == 6, "a context manager and a decorator, as nvtx.range is"
    assert found["history"] == ["TypeError"] * 3, "the older arguments, and the newest, are refused"
    assert found["new history"] == [None, None]
    assert found["no stats"] == [], "memory_stats() has the keys that code reads on CUDA"


def test_use_device_times_the_npu(tmp_path: Path) -> None:
    script = (
        "import torch, torch_npu\nx = torch.ones(8, 8, device='npu')\n"
        "with torch.autograd.profiler.profile(use_device='npu') as p:\n    (x @ x).sum()\n"
        "print(p.key_averages().table(sort_by='self_device_time_total'))\n"
    )
    assert "Self NPU" in emulated(script, folder=tmp_path)


def test_all_forms_of_import_move(migrated: Any) -> None:
    after = migrated(PROGRAM).text
    assert "import torch_npu.profiler as tp" in after or "from torch_npu import profiler as tp" in after
    assert "from torch.profiler import record_function" in after
    assert "from torch_npu.profiler import ProfilerActivity" in after
    assert "ProfilerActivity.NPU" in after and "use_gzip" not in after
    assert "torch.profiler." not in after.replace("torch_npu.profiler.", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch import profiler\np = profiler.profile()\n", "from torch_npu import profiler"),
        ("import torch.profiler\np = torch.profiler.profile()\n", "p = torch_npu.profiler.profile()"),
        ("import torch as t\np = t.profiler.profile()\n", "p = torch_npu.profiler.profile()"),
        ("from torch.profiler import *\np = profile()\n", "from torch_npu.profiler import *\np = profile()"),
        ("import torch\nprof = torch.profiler\np = prof.profile()\n", "p = torch_npu.profiler.profile()"),
    ],
)
def test_spellings(migrated: Any, before: str, after: str) -> None:
    assert after in migrated(before).text


def test_halves_in_two_files_move_with_unsafe_only(migrated: Any) -> None:
    hook = "import torch\n\n\ndef hook(activities):\n    return torch.profiler.profile(activities=activities)\n"
    train = "import torch\nfrom hook import hook\np = hook([torch.profiler.ProfilerActivity.CUDA])\n"
    for path, text, other in (("hook.py", hook, {"train.py": train}), ("train.py", train, {"hook.py": hook})):
        plain = migrated(text, path=path, files=other)
        assert plain.text == text
        assert ["another file" in found.remedy for found in plain.left] == [True]
        assert "torch_npu.profiler" in migrated(text, path=path, files=other, unsafe=True).text


def test_ported_files_are_left_alone(migrated: Any) -> None:
    code = (
        "import torch\nimport torch_npu\nif npu:\n    p = torch_npu.profiler.profile()\n"
        "else:\n    p = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])\n"
    )
    assert migrated(code).text == code


@pytest.mark.parametrize(
    "read", ["p.key_averages()", "p.events()", "self.profiler.events()", "p.profiler.total_average()"]
)
def test_profiles_that_are_read_in_memory_stay(migrated: Any, read: str) -> None:
    code = f"import torch\nwith torch.profiler.profile() as p:\n    f()\nprint({read})\n"
    if read == "p.events()":
        code = code.replace(" as p", " as prof").replace("p.events", "prof.events")
    outcome = migrated(code, target="2.11.0")
    assert outcome.text == code and outcome.left_on(2)


def test_nvtx_by_version(migrated: Any) -> None:
    code = "import torch\nfrom torch.cuda import nvtx\nnvtx.range_push('a')\nnvtx.mark('b')\nnvtx.range_pop()\n"
    assert "nvtx" not in migrated(code, target="2.11.0").text.replace("as nvtx", "").replace("nvtx.", "")
    older = migrated(code, target="2.7.1")
    assert "mstx.mark('b')" in older.text and older.left_on(3) and older.left_on(5)


@pytest.mark.parametrize(
    ("call", "names", "left"),
    [
        ("f(a, b=1, c=2)", {"b"}, "f(a, c=2)"),
        ("f(b=1, c=2)", {"b"}, "f(c=2)"),
        ("f(b=1, c=2, d=3)", {"b", "c"}, "f(d=3)"),
        ("f(b=1,)", {"b"}, "f()"),
        ("f((a), b=(1), )", {"b"}, "f((a), )"),
        ("f(\n    a,  # why\n    b=1,\n)", {"b"}, "f(\n    a,  # why\n)"),
        ("f(a, b=1, c=2)", set(), "f(a, b=1, c=2)"),
    ],
)
def test_arguments_are_dropped_with_their_comma(context: Any, call: str, names: set[str], left: str) -> None:
    file = context(call + "\n")
    (node,) = file.tree.all(cst.Call)
    dropped = [arg for arg in node.args if arg.keyword is not None and arg.keyword.value in names]
    text = file.source.text
    for edit in sorted(drop_arguments(file, node, dropped), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text == left + "\n"
