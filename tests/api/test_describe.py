"""One answer about one name, for people and for programs."""

from __future__ import annotations

import json

import pytest

from migrator import api
from migrator.api.describe import Subject, describe
from migrator.target import Target


def about(name, torch_npu="2.6.0"):
    return describe(name, Target(torch_npu, None, "asked for"))


def test_a_range_that_comes_with_2_11():
    assert about("torch.cuda.nvtx.range_push").to_text().splitlines()[:3] == [
        "torch.cuda.nvtx.range_push (torch_npu 2.6.0)",
        "  becomes:       torch.npu.mstx.range_push, from torch_npu 2.11.0 on; not in 2.6.0",
        "  2.6.0 has:     torch.npu.mstx.mark, torch.npu.mstx.mstx_range, torch.npu.mstx.range_end, "
        "torch.npu.mstx.range_start",
    ]
    later = about("torch.cuda.nvtx.range_push", "2.11.0")
    assert later.available
    assert later.beside == ()
    assert later.signature == "torch.npu.mstx.range_push(message, stream=None, domain='default')"


@pytest.mark.parametrize(
    ("name", "subject", "kind", "replacement", "available"),
    [
        ("torch.cuda.synchronize", "cuda", "rename", "torch.npu.synchronize", True),
        ("torch.cuda.OutOfMemoryError", "cuda", "rename", "torch.OutOfMemoryError", False),
        ("torch.cuda.Stream.query", "cuda", "rename", "torch.npu.Stream.query", True),
        ("torch.cuda.nccl.foo", "cuda", "manual", None, None),
        ("torch.cuda.tunable.enable", "cuda", "drop", None, None),
        ("CUDA_VISIBLE_DEVICES", "environment", "rename", "ASCEND_RT_VISIBLE_DEVICES", True),
        ("env:NCCL_BLOCKING_WAIT", "environment", "rename", "TORCH_HCCL_BLOCKING_WAIT", False),
        ("CUDNN_LOGINFO_DBG", "environment", "drop", None, None),
        ("TASK_QUEUE_ENABLE", "environment", "real", None, True),
        ("PYTORCH_ALLOC_CONF", "environment", "real", None, False),
        ("NPU_VISIBLE_DEVICES", "environment", "fake", None, None),
        ("apex.optimizers.FusedAdam", "package", "manual", "torch.optim.AdamW", True),
        ("numba.cuda.jit", "package", "manual", None, None),
        ("torch.npu.graph", "npu", None, None, True),
        ("torch_npu.npu.ExternalStream", "npu", None, None, False),
        ("torch.npu.OutOfMemoryError", "npu", None, None, False),
        ("torch.Tensor.is_npu", "npu", None, None, True),
        ("torch.erf", "torch", None, None, None),
        ("numpy.array", "unknown", None, None, None),
    ],
)
def test_subjects(name, subject, kind, replacement, available):
    found = about(name)
    assert (found.subject.value, found.kind) == (subject, kind)
    assert (found.replacement, found.available) == (replacement, available)
    assert found.name == name


def test_a_parent_answers():
    assert (
        about("torch.cuda.nccl.foo")
        .to_text()
        .startswith("torch.cuda.nccl.foo (torch_npu 2.6.0): answered by torch.cuda.nccl\n  what to do: ")
    )


def test_a_name_of_no_wheel_is_warned_about():
    found = about("torch.npu.graphh")
    assert "do not write it" in found.remedy
    assert "torch.npu.graph" in found.suggestions
    assert "  exists:        no\n" in found.to_text()


def test_a_name_that_went_away():
    assert "no, only in torch_npu 2.1.0.post8 to 2.4.0; not in 2.6.0" in about("torch_npu.selu_backward").to_text()


def test_a_cpu_fallback_is_explained():
    text = about("torch.lgamma").to_text()
    assert "support:       cpu-fallback" in text
    assert "correct but slow" in text


def test_limits_of_a_torch_api():
    assert "partial (input: float16, float32, int64, bool)" in about("torch.erf").to_text()
    assert "for torch 2.6.0" in about("torch.erf").to_text()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("torch.cuda.synchronise", "torch.cuda.synchronize"),
        ("torch.cuda.mem_get_inf", "torch.cuda.mem_get_info"),
        ("torch_npu.optim.NpuFusedAdam2", "torch_npu.optim.NpuFusedAdam"),
        ("flash_attn.flash_atn_func", "flash_attn.flash_attn_func"),
        ("flash_attn.something_else", "flash_attn.flash_attn_func"),
    ],
)
def test_suggestions_for_an_unknown_name(name, suggestion):
    found = about(name)
    assert suggestion in found.suggestions
    assert "did you mean" in found.to_text()


@pytest.mark.parametrize(("name", "home"), [("torch.cuda", "torch.npu"), ("torch.backends.cudnn", None)])
def test_a_namespace_is_where_most_of_its_names_are(name, home):
    found = about(name)
    assert (found.subject, found.replacement) == (Subject.CUDA, home)
    assert "known names in it have a counterpart in torch_npu 2.6.0" in found.to_text()


def test_the_end_of_a_name_is_enough_for_a_suggestion():
    assert "torch.Tensor.cuda" in about(".cuda").suggestions
    assert about("synchronize").suggestions[0] == "torch.cuda.synchronize"


def test_lines_are_broken_at_the_width_of_the_terminal():
    text = about("torch.cuda.nvtx.range_push").to_text(60)
    assert max(map(len, text.splitlines())) <= 60
    assert " ".join(text.split()) == " ".join(about("torch.cuda.nvtx.range_push").to_text().split())


def test_nothing_to_say():
    assert about("frobnicate").to_text() == "frobnicate (torch_npu 2.6.0): nothing is known about this name"


def test_json_of_every_row_is_plain_data():
    for row in api.mappings():
        found = about(row.cuda)
        assert found.row == row.cuda
        plain = found.to_json()
        assert json.loads(json.dumps(plain)) == plain
        assert plain["subject"] in {subject.value for subject in Subject}
        assert found.to_text().splitlines()[0].startswith(row.cuda)
