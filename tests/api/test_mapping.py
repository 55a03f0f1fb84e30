"""A walk over every CUDA row, for old and new targets, and the traps of a mechanical rename."""

from __future__ import annotations

import re

import pytest

from migrator import api
from migrator.api import Kind, _store

TARGETS = ("2.1", "2.6", "2.9", "2.13")
ROWS = tuple(api.mappings())


def npu_names(text):
    """Dotted torch_npu names in a text; a full stop at the end belongs to the sentence."""
    return [name.rstrip(".") for name in re.findall(r"\btorch(?:_npu|\.npu)\.[\w.]+", text)]


def test_every_row_is_there():
    cuda = {row.cuda for row in ROWS}
    assert len(cuda) == len(ROWS) >= 491
    assert {"env:CUDA_VISIBLE_DEVICES", "pkg:flash_attn.flash_attn_func", '"cuda" device string'} <= cuda
    assert {row.kind for row in ROWS} == set(Kind)


@pytest.mark.parametrize("target", TARGETS)
def test_no_row_is_renamed_to_a_missing_name(target):
    for row in ROWS:
        if row.kind is not Kind.RENAME or not row.npu.startswith(("torch.npu.", "torch_npu.")):
            continue
        if row.available(target):
            assert api.exists(row.npu, target), row.cuda
        else:
            assert row.since is not None, row.cuda
            assert not api.at_least(api.resolve(target).version, row.since), row.cuda


def test_every_row_that_is_no_plain_rename_has_a_remedy():
    assert [row.cuda for row in ROWS if not row.exact_semantics and not row.remedy] == []
    assert [row.cuda for row in ROWS if row.kind is Kind.RENAME and not row.npu] == []


def test_texts_are_sentences():
    texts = {text for row in ROWS for text in (row.remedy, row.caveat) if text}
    assert [text for text in texts if not text.endswith(".") or "@" in text or "TODO" in text] == []


def test_versions_in_rows_are_known():
    wheels = {wheel for row in ROWS for wheel in (row.since, row.until) if wheel}
    assert wheels <= set(api.versions())


def test_replacements_exist_in_some_wheel():
    own = [row.npu for row in ROWS if row.npu and row.npu.startswith(("torch.npu.", "torch_npu."))]
    assert len(own) > 150
    assert [npu for npu in own if not api.since(npu)] == []


def test_texts_name_only_what_exists():
    warned_about = {"torch.npu.OutOfMemoryError", "torch_npu.__version__"}
    texts = {text for row in ROWS for text in (row.remedy, row.caveat) if text}
    unknown = {name for text in texts for name in npu_names(text) if not api.since(name)}
    assert unknown <= warned_about


def test_plain_renames_need_no_remedy():
    plain = [row for row in ROWS if row.kind is Kind.RENAME and row.exact_semantics]
    assert len(plain) > 150
    assert api.mapping("torch.cuda.synchronize").remedy is None


def test_texts_are_all_used():
    data = _store.load("mapping.json")
    used = {value[1:] for row in data["rows"].values() for value in row.values() if str(value).startswith("@")}
    assert used == set(data["texts"])


@pytest.mark.parametrize(
    "name",
    [
        "nvtx",
        "nccl",
        "comm",
        "profiler",
        "sparse",
        "jiterator",
        "gds",
        "cudart",
        "get_arch_list",
        "get_gencode_flags",
        "is_tf32_supported",
        "list_gpu_processes",
        "memory_usage",
        "power_draw",
        "temperature",
        "clock_rate",
        "caching_allocator_enable",
        "ComplexFloatStorage",
        "ComplexDoubleStorage",
        "green_contexts",
    ],
)
def test_names_without_a_counterpart_are_for_a_person(name):
    row = api.mapping(f"torch.cuda.{name}")
    assert row.kind is Kind.MANUAL
    assert row.npu is None or row.npu != f"torch.npu.{name}"


@pytest.mark.parametrize(
    ("cuda", "npu"),
    [
        ("torch.cuda.CUDAGraph", "torch.npu.NPUGraph"),
        ("torch.cuda.CUDAPluggableAllocator", "torch.npu.NPUPluggableAllocator"),
        ("torch.cuda._sanitizer.enable_cuda_sanitizer", "torch.npu._sanitizer.enable_npu_sanitizer"),
        ("torch.Tensor.is_cuda", "torch.Tensor.is_npu"),
        ("torch.backends.cuda.matmul.allow_tf32", "torch.npu.matmul.allow_hf32"),
        ("torch.backends.cudnn.allow_tf32", "torch.npu.conv.allow_hf32"),
        ("torch.cuda.memory.mem_get_info", "torch.npu.mem_get_info"),
        ("torch.cuda.nvtx.mark", "torch.npu.mstx.mark"),
        ("torch.distributed.Backend.NCCL", "torch.distributed.Backend.HCCL"),
        ("torch.profiler.ProfilerActivity.CUDA", "torch_npu.profiler.ProfilerActivity.NPU"),
        ('torch.distributed backend "nccl"', '"hccl"'),
    ],
)
def test_renames_that_are_not_same_named(cuda, npu):
    row = api.mapping(cuda)
    assert (row.kind, row.npu) == (Kind.RENAME, npu)
    assert row.available("2.13")


def test_out_of_memory_needs_a_wheel_that_raises_it():
    row = api.mapping("torch.cuda.OutOfMemoryError")
    assert row.npu == "torch.OutOfMemoryError"
    assert not row.available("2.9")
    assert row.available("2.10")
    assert "RuntimeError" in row.remedy


def test_a_name_of_torch_follows_the_version_of_torch():
    row = api.mapping("torch.cuda.AcceleratorError")
    assert next(version for version in api.versions() if row.available(version)) == "2.8.0"


def test_ranges_come_with_mstx_of_2_11():
    row = api.mapping("torch.cuda.nvtx.range_push")
    assert (row.npu, row.since) == ("torch.npu.mstx.range_push", "2.11.0")
    assert not row.available("2.6")
    assert row.available("2.11")
    for name in ("mark", "range_start", "range_end", "2.11"):
        assert name in row.remedy


def test_capability_is_renamed_with_a_warning():
    row = api.mapping("torch.cuda.get_device_capability")
    assert (row.kind, row.exact_semantics) == (Kind.RENAME, False)
    assert "returns None" in row.remedy


def test_optimizers_are_advice():
    assert all(api.mapping(f"torch.optim.{name}").kind is Kind.ADVICE for name in ("SGD", "Adam", "AdamW"))


@pytest.mark.parametrize("row", [row for row in ROWS if row.keywords], ids=lambda row: row.cuda)
def test_renamed_keywords(row):
    signatures = [api.signature(row.npu, version) for version in api.versions()]
    signatures = [signature for signature in signatures if signature is not None]
    assert signatures
    for cuda, npu in row.keywords:
        assert all(signature.accepts(npu) and not signature.accepts(cuda) for signature in signatures)


def test_a_row_for_a_parent_answers():
    assert api.mapping("torch.cuda.nccl.foo") is None
    assert api.mapping_for("torch.cuda.nccl.foo").cuda == "torch.cuda.nccl"
    assert api.mapping_for("torch.cuda.nccl").cuda == "torch.cuda.nccl"
    assert api.mapping_for("numpy.array") is None
    assert api.mapping_for("") is None


def test_variables_that_share_a_row():
    row = api.mapping("env:TORCH_NCCL_BLOCKING_WAIT")
    assert row == api.mapping("env:NCCL_BLOCKING_WAIT")
    assert row.npu == "TORCH_HCCL_BLOCKING_WAIT"
    assert not row.available("2.10")
    assert row.available("2.11")


def test_a_pattern_answers_for_its_variables():
    assert api.mapping_for("env:CUDNN_LOGINFO_DBG").cuda == "env:CUDNN_*"
    assert api.mapping_for("env:CUDA_LAUNCH_BLOCKING").cuda == "env:CUDA_LAUNCH_BLOCKING"
    assert api.mapping_for("env:HOME") is None


@pytest.mark.parametrize("row", [row for row in ROWS if row.cuda.startswith("env:") and row.npu], ids=lambda r: r.cuda)
def test_replacing_variables_are_real(row):
    for name in re.findall(r"[A-Z][A-Z_]+", row.npu):
        variable = api.env(name)
        assert variable is None or variable.status.value in ("real", "cann"), name
        if variable is not None and row.since:
            assert row.since == variable.since
