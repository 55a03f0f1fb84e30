"""A tiny torch_npu wheel, built on the spot: what the reader has to understand in real ones, in a few lines."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = {
    "torch_npu/__init__.py": """
__all__ = ["LazyThing", "ghost"]
import os
import torch
from torch_npu import npu
from torch_npu._init import start
_LAZY_PYTHON_SYMBOLS = {"LazyThing": ("torch_npu._things", "_Thing")}
torch._register_device_module("npu", torch_npu.npu)
torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
torch.distributed.Backend.register_backend("hccl", None, extended_api=True, devices=["npu"])
""",
    "torch_npu/_init.py": """
import torch, torch_npu
from torch_npu.distributed import is_hccl_available
def start():
    torch_npu.Format = object
    torch.distributed.is_hccl_available = is_hccl_available
    torch.nn.Module.npu = npu
def npu(self, device=None):
    return self
""",
    "torch_npu/_things.py": """
class _Thing:
    def __init__(self, data, *, dtype=None): ...
""",
    "torch_npu/distributed.py": "def is_hccl_available(): return True\n",
    "torch_npu/npu/__init__.py": """
__all__ = ["synchronize", "Stream", "FloatTensor"]
from typing import Optional, TYPE_CHECKING
import contextlib
import torch_npu
from torch_npu._error import ErrCode
from .streams import Stream
from .mstx import mstx
from .npu_config import *
from .memory import memory_allocated
if TYPE_CHECKING:
    from .never import Never
try:
    from .fast import seed
except ImportError:
    def seed(): ...
matmul = npu_config._Matmul()
kinds = npu_config._Kinds
default_generators: tuple = ()
dropped = 1
del dropped
def synchronize(device: Optional[int] = None) -> None: ...
def _lazy_init(): ...
""",
    "torch_npu/npu/streams.py": """
import torch_npu._C
class Stream(torch_npu._C._NPUStreamBase):
    def __new__(cls, device=None, priority=0, **kwargs): ...
    def query(self): ...
    @property
    def ready(self): ...
    @staticmethod
    def make(count): ...
class Fast(Stream):
    def __init__(self, first, /, second=1, *rest, third: int, **others): ...
""",
    "torch_npu/npu/mstx.py": """
class mstx:
    @staticmethod
    def mark(message, stream=None): ...
class annotate:
    def __init__(self, message=""): ...
mstx.annotate = annotate
""",
    "torch_npu/npu/npu_config.py": """
__all__ = ["set_option", "promised"]
def set_option(option): ...
def hidden(): ...
class _Kinds:
    KEEP = 0
    instance_only: int
if __name__ == "__main__":
    arguments = []
class _Matmul:
    def __setattr__(cls, name, value):
        if name == "allow_hf32":
            pass
""",
    "torch_npu/npu/memory.py": "from . import is_initialized\ndef memory_allocated(device=None): ...\n",
    "torch_npu/npu/fast.py": "def seed(fast=True): ...\n",
    "torch_npu/_error.py": "class ErrCode: ...\n",
    "torch_npu/testing/heavy.py": "this is not Python (and nobody asked)\n",
    "torch_npu/csrc/aten/npu_native_functions.yaml": """backend: NPU
supported:
  - add.Tensor
  - func: gelu
    op_api: True
custom:
  - func: npu_rms_norm(Tensor self, Tensor gamma) -> (Tensor, Tensor)
  - exposed: true
    func: npu_scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
""",
}

LIBRARY = b"\0".join(
    [
        b"\x7fELF",
        b"npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
        b"npu_scale.out(Tensor input, int[2] pad=[0, 0], *, Tensor(a!) out) -> Tensor(a!)",
        b"npu_scale(Tensor input, int[2] pad=[0, 0]) -> Tensor",
        b"internal_wrapper(Tensor self) -> ()",
        b"tail_of_npu_stream",
        b"torch.npu",
        b"",
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: needs the package index; skips itself where that cannot be reached")


Build = Callable[..., Path]


@pytest.fixture
def fake_wheel(tmp_path: Path) -> Build:
    """Function: (version, {file: source or None to leave it out}) → path of a wheel in its own folder."""

    def build(version: str = "2.15.0", changes: dict[str, str | None] | None = None) -> Path:
        folder = tmp_path / "wheels"
        folder.mkdir(exist_ok=True)
        path = folder / f"torch_npu-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for file, source in {**SOURCES, **(changes or {})}.items():
                if source is not None:
                    archive.writestr(file, source)
            archive.writestr("torch_npu/lib/libtorch_npu.so", LIBRARY)
            archive.writestr(f"torch_npu-{version}.dist-info/METADATA", f"Name: torch-npu\nVersion: {version}\n")
        return path

    return build
