"""Third-party packages: migrated calls compute on the emulated NPU what the package computes; every row is answered."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from migrator import api, registry
from migrator.emulator import EmulatorError, check, environment
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.target import Target

HERE = Path(__file__).parent
NEWEST = api.versions()[-1]


def module(name: str) -> ModuleType:
    """A helper file beside the tests."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


PROGRAMS = module("third_party_programs")

# Runs each program as it was on the CPU, with stand-ins for the packages, then migrated on the NPU, without them.
DRIVER = """
import json, pathlib, runpy, sys, warnings
import torch, torch_npu
warnings.filterwarnings("ignore")
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder / "packages"))
originals = {path: runpy.run_path(str(path))["run"]("cpu") for path in sorted(folder.glob("*.original.py"))}
sys.path.pop(0)
for name in [name for name in sys.modules if name.startswith(("flash_attn", "xformers", "apex"))]:
    del sys.modules[name]
distances = {}
for path, right in originals.items():
    found = runpy.run_path(str(path).replace(".original", ".migrated"))["run"]("npu")
    assert all(tensor.is_npu for tensor in found)
    distances[path.name.partition(".")[0]] = max((a - b.cpu()).abs().max().item() for a, b in zip(right, found))
print("DISTANCES" + json.dumps(distances))
"""


@pytest.fixture(scope="module")
def distances(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """How far each migrated program is from the original."""
    try:
        check()
    except EmulatorError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("programs")
    for path, text in PROGRAMS.STAND_INS.items():
        (folder / "packages" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "packages" / path).write_text(text)
    settings = Settings(Target("2.13.0", None, "test"), registry.load().select(["NPU8"]), unsafe=True)
    for name, code in PROGRAMS.PROGRAMS.items():
        raw = (PROGRAMS.HEAD + code).encode()
        result = migrate(raw, "program.py", settings, Project.empty())
        assert result.after is not None, name
        (folder / f"{name}.original.py").write_bytes(raw)
        (folder / f"{name}.migrated.py").write_bytes(result.after)
    (folder / "driver.py").write_text(DRIVER)
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "driver.py", str(folder)],
        env={**inherited, **environment(), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.partition("DISTANCES")[2].splitlines()[0])


@pytest.mark.parametrize("name", PROGRAMS.PROGRAMS)
def test_the_same_numbers(distances: dict[str, float], name: str) -> None:
    assert distances[name] < PROGRAMS.TOLERANCES.get(name, 1e-4)


# Rows that describe more than a name, and those that are answered where they are set up.
CODE = {
    'transformers attn_implementation="flash_attention_2"': "m = load(p, attn_implementation='flash_attention_2')\n",
    "transformers TrainingArguments(use_cpu/no_cuda/fp16/bf16/tf32)": "a = TrainingArguments(d, tf32=True)\n",
    "nvidia-smi (subprocess)": "subprocess.run(['nvidia-smi'])\n",
    "onnxruntime CUDAExecutionProvider": "import onnxruntime\np = ['CUDAExecutionProvider']\n",
    "onnxruntime TensorrtExecutionProvider": "import onnxruntime\np = ['TensorrtExecutionProvider']\n",
    "paddle GPU": "import paddle\npaddle.device.set_device('gpu')\n",
    "tensorflow GPU": "import tensorflow as tf\ntf.config.list_physical_devices('GPU')\n",
    "deepspeed": "import deepspeed\nengine = deepspeed.initialize(model=m)\n",
    "accelerate": "from accelerate import Accelerator\na = Accelerator()\n",
}
PACKAGES = sorted(row.cuda.removeprefix("pkg:") for row in api.mappings() if row.cuda.startswith("pkg:"))


def _use(name: str) -> str:
    parent, _, last = name.rpartition(".")
    return f"from {parent} import {last}\nx = {last}(a)\n" if parent else f"import {name}\nx = {name}.f(a)\n"


@pytest.mark.parametrize("target", ["2.1", "2.7.1", NEWEST])
@pytest.mark.parametrize("name", PACKAGES)
def test_every_row(migrated, name: str, target: str) -> None:
    code = CODE.get(name) or _use(name)
    outcome = migrated(code, target=target)
    assert outcome.left or outcome.text != code
    assert all(found.remedy for found in outcome.left)


@pytest.mark.parametrize("name", sorted(set(PACKAGES) - set(CODE)))
def test_a_guarded_import_is_left_working(migrated, name: str) -> None:
    parent, _, last = name.rpartition(".")
    statement = f"from {parent} import {last}" if parent else f"import {name}"
    code = f"try:\n    {statement}\nexcept ImportError:\n    {last} = None\n"
    assert migrated(code, unsafe=True).text == code


def test_findings_are_told_once_per_import(migrated) -> None:
    code = "import bitsandbytes as bnb\na = bnb.optim.Adam8bit(p)\nb = bnb.nn.Linear8bitLt(2, 3)\n"
    assert [found.line for found in migrated(code).left] == [1]


def test_an_ignore_comment_keeps_the_import_of_a_rewritten_call(migrated) -> None:
    code = (
        "from flash_attn import flash_attn_func  # npu-migrate: ignore[NPU803] our own\no = flash_attn_func(q, k, v)\n"
    )
    assert migrated(code, unsafe=True, select=("NPU803",)).text == code


def test_calls_beside_one_that_cannot_be_rewritten(migrated) -> None:
    code = "from flash_attn import flash_attn_func as f\na = f(q, k, v)\nb = f(q, k, v, window_size=(8, 0))\n"
    outcome = migrated(code, unsafe=True, select=("NPU803",))
    assert "a = torch_npu.npu_fusion_attention(q, k, v, head_num" in outcome.text
    assert "b = f(q, k, v, window_size=(8, 0))" in outcome.text
    assert "from flash_attn import flash_attn_func as f" in outcome.text
    assert outcome.left_on(3)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("q, k, v, dropout_p=0.1", "dropout_p"),
        ("q, k, v, 0.0, None, True, (-1, -1)", "depends on the version"),
        ("q, k, v, softcap=30.0", "softcap"),
        ("q, k, v, alibi_slopes=slopes", "alibi_slopes"),
        ("q, k, v, return_attn_probs=True", "return_attn_probs"),
        ("q, k, v, causal=q.shape[1] > 1", "computed in the call"),
        ("q.half(), k, v", "computed in the call"),
        ("*qkv", "hidden behind"),
        ("k=k, q=q, v=v", "first three"),
        ("q, k, v,  # all\n    causal=True", "comment"),
    ],
)
def test_what_flash_attention_is_refused_for(migrated, arguments: str, why: str) -> None:
    code = f"from flash_attn import flash_attn_func\no = flash_attn_func({arguments})\n"
    outcome = migrated(code, unsafe=True, select=("NPU803",))
    assert outcome.text == code
    assert any(why in found.message for found in outcome.left)


def test_nothing_is_said_of_an_import_that_goes(migrated) -> None:
    code = "import xformers.ops as xops\no = xops.memory_efficient_attention(q, k, v)\n"
    outcome = migrated(code, unsafe=True)
    assert "xformers" not in outcome.text and not outcome.left
