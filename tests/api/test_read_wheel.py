"""Reading names, signatures and operators out of a wheel, statically."""

from __future__ import annotations

import sys

import pytest

from migrator.api._extract import read_wheel
from migrator.api._package import WheelError


@pytest.fixture
def facts(fake_wheel):
    return read_wheel(fake_wheel())


@pytest.mark.parametrize(
    "name",
    [
        "torch_npu",
        "torch_npu.npu",
        "torch_npu.npu.streams",
        "torch_npu.npu.synchronize",
        "torch_npu.npu._lazy_init",
        "torch_npu.npu.set_option",
        "torch_npu.npu.seed",
        "torch_npu.npu.default_generators",
        "torch_npu.npu.Stream.query",
        "torch_npu.npu.Stream.npu_stream",
        "torch_npu.npu.streams.Fast.query",
        "torch_npu.npu.mstx",
        "torch_npu.npu.mstx.mark",
        "torch_npu.npu.mstx.annotate",
        "torch_npu.npu.matmul.allow_hf32",
        "torch_npu.npu.kinds.KEEP",
        "torch_npu.npu.FloatTensor",
        "torch_npu.npu_rms_norm",
        "torch_npu.LazyThing",
        "torch_npu.Format",
        "torch.Tensor.npu",
        "torch.Tensor.is_npu",
        "torch.nn.Module.npu",
        "torch.UntypedStorage.is_npu",
        "torch.nn.utils.rnn.PackedSequence.npu",
        "torch.distributed.Backend.HCCL",
        "torch.distributed.is_hccl_available",
    ],
)
def test_names_that_exist(facts, name):
    assert name in facts.names


@pytest.mark.parametrize(
    "name",
    [
        "torch_npu.ghost",  # only promised in __all__
        "torch_npu.npu.promised",
        "torch_npu.npu.hidden",  # not starred: the module has __all__
        "torch_npu.npu.Never",  # for type checkers only
        "torch_npu.npu.dropped",  # deleted again
        "torch_npu.npu.contextlib",  # somebody else's
        "torch_npu.npu.Optional",
        "torch_npu.npu.ErrCode",  # a private helper of another package
        "torch_npu.npu.mstx.mstx",  # the module is hidden behind the class
        "torch_npu.npu.Stream.priority_range",
        "torch_npu.npu.kinds.instance_only",
        "torch_npu.npu.npu_config.arguments",
        "torch_npu.internal_wrapper",  # a schema that the generator did not make
        "torch_npu.testing.heavy",
        "torch_npu._things",
    ],
)
def test_names_that_do_not(facts, name):
    assert name not in facts.names


def test_torch_before_2_4_adds_no_packed_sequence_methods(fake_wheel):
    names = read_wheel(fake_wheel("2.3.1.post2")).names
    assert "torch.Tensor.npu" in names
    assert "torch.nn.utils.rnn.PackedSequence.npu" not in names


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("torch_npu.npu.synchronize", "device=None"),
        ("torch_npu.npu.seed", "fast=True"),
        ("torch_npu.npu.Stream", "device=None, priority=0, **kwargs"),
        ("torch_npu.npu.Stream.query", ""),
        ("torch_npu.npu.Stream.make", "count"),
        ("torch_npu.npu.streams.Fast", "first, /, second=1, *rest, third, **others"),
        ("torch_npu.npu.mstx.mark", "message, stream=None"),
        ("torch_npu.LazyThing", "data, *, dtype=None"),
        ("torch.nn.Module.npu", "device=None"),
        ("torch.distributed.is_hccl_available", ""),
    ],
)
def test_signatures(facts, name, parameters):
    assert facts.signatures[name] == parameters


def test_a_property_has_no_signature(facts):
    assert "torch_npu.npu.Stream.ready" in facts.names
    assert "torch_npu.npu.Stream.ready" not in facts.signatures


def test_operators_with_the_plain_schema_first(facts):
    assert facts.operators == {
        "npu_rms_norm": ["(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)"],
        "npu_scale": [
            "(Tensor input, int[2] pad=[0, 0]) -> Tensor",
            ".out(Tensor input, int[2] pad=[0, 0], *, Tensor(a!) out) -> Tensor(a!)",
        ],
    }


def test_kernels_of_torch_operators(facts):
    assert facts.kernels == {"add", "gelu"}


def test_version_comes_from_the_metadata(fake_wheel):
    assert read_wheel(fake_wheel("2.16.0.post1")).version == "2.16.0.post1"


def test_nothing_is_imported_or_run(fake_wheel, tmp_path):
    trap = tmp_path / "ran"
    read_wheel(fake_wheel(changes={"torch_npu/npu/trap.py": f"open({str(trap)!r}, 'w')\n"}))
    assert not trap.exists()
    assert "torch_npu.npu.trap" not in sys.modules


def test_import_cycles_end(fake_wheel):
    ring = {
        "torch_npu/npu/one.py": "from .two import *\nfrom .two import far as near\ndef a(): ...\n",
        "torch_npu/npu/two.py": "from .one import *\nfrom .one import near as far\ndef b(): ...\n",
    }
    names = read_wheel(fake_wheel(changes=ring)).names
    assert {"torch_npu.npu.one.b", "torch_npu.npu.two.a"} <= names
    assert "torch_npu.npu.one.near" not in names


def test_source_that_does_not_parse(fake_wheel):
    with pytest.raises(WheelError, match=r"npu/fast\.py cannot be parsed"):
        read_wheel(fake_wheel(changes={"torch_npu/npu/fast.py": "def seed(:\n"}))


def test_a_file_that_is_no_wheel(tmp_path):
    path = tmp_path / "torch_npu-2.15.0-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    with pytest.raises(WheelError, match="not a readable wheel"):
        read_wheel(path)


def test_a_wheel_of_something_else(fake_wheel):
    with pytest.raises(WheelError, match="no torch_npu wheel"):
        read_wheel(fake_wheel(changes={"torch_npu/__init__.py": None}))


def test_a_damaged_member(fake_wheel):
    path = fake_wheel()
    content = path.read_bytes()
    start = content.index(b"\x7fELF")
    path.write_bytes(content[:start] + b"XXXXXXXX" + content[start + 8 :])
    with pytest.raises(WheelError, match=r"damaged at torch_npu/lib/libtorch_npu\.so"):
        read_wheel(path)
