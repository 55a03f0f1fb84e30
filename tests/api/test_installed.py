"""The data against the real thing: every name of the installed torch_npu, looked up at run time on the emulator."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

from migrator import api

NOT_READABLE = {
    # Can only be set.
    "torch_npu.npu.config.allow_internal_format",
    # Answered by instances only.
    "torch_npu.npu.backends.NPUFFTPlanCache.max_size",
    "torch_npu.npu.backends.NPUFFTPlanCache.size",
}
NOT_READABLE_BELOW = (
    # Decorated singletons: the class is behind a function.
    "torch_npu.profiler.profiler.ProfPathCreator.",
    "torch_npu.utils.profiler.Profile.",
    # A script that reads its command line when it is imported.
    "torch_npu.utils.collect_hccl_info",
    # Patches torch for good when it is imported.
    "torch_npu.contrib.transfer_to_npu",
)
OTHER_SIGNATURES = {
    # Wrapped by decorators that take anything.
    "torch_npu.npu.set_device_limit",
    "torch_npu.npu.npu_config.set_device_limit",
    "torch_npu.utils.profiler.Profile",
    "torch_npu.distributed.tensor.experimental.context_parallel",
}

PROGRAM = """
import importlib, inspect, json, sys, warnings
warnings.simplefilter("ignore")
import torch, torch._dynamo, torch_npu  # some modules can only be imported after torch._dynamo

def find(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                found = getattr(found, part)
            return found
        except Exception:
            continue
    raise LookupError(name)

names, signatures = json.load(open(sys.argv[1]))
missing, different = [], []
for name in names:
    try:
        found = find(name)
    except LookupError:
        missing.append(name)
        continue
    if name in signatures:
        try:
            parameters = [p.name for p in inspect.signature(found).parameters.values() if p.name not in ("self", "ctx")]
        except (TypeError, ValueError):
            continue
        if parameters != [p for p in signatures[name] if p not in ("self", "ctx")]:
            different.append(name)
print(json.dumps([missing, different]))
"""


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    """(names that are missing at run time, names with other parameters) of the installed torch_npu."""
    try:
        installed = metadata.version("torch-npu")
    except metadata.PackageNotFoundError:
        pytest.skip("torch_npu is not installed")
    if not api.resolve(installed).exact:
        pytest.skip(f"torch_npu {installed} is installed, which is no known wheel")
    doctor = subprocess.run(
        [sys.executable, "-m", "migrator.emulator", "--doctor"], capture_output=True, text=True, check=False
    )
    if doctor.returncode:
        pytest.skip(f"the emulated NPU cannot run here: {doctor.stdout[-300:]}")
    folder = tmp_path_factory.mktemp("names")
    names = [n for n in api.names() if api.exists(n, installed) and not n.startswith(NOT_READABLE_BELOW)]
    signatures = {n: s for n in names if (s := api.signature(n, installed)) is not None and s.returns is None}
    parameters = {name: [p.name for p in signature.parameters] for name, signature in signatures.items()}
    (folder / "names.json").write_text(json.dumps([names, parameters]))
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "migrator.emulator", str(folder / "program.py"), str(folder / "names.json")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(names) > 1500
    return json.loads(result.stdout.splitlines()[-1])


def test_every_name_is_there(verdict):
    assert set(verdict[0]) <= NOT_READABLE


def test_signatures_are_right(verdict):
    assert set(verdict[1]) <= OTHER_SIGNATURES
