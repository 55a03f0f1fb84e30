"""One file through the engine: positions, overlapping fixes, suppression, what cannot be handled."""

from __future__ import annotations

import pytest

from migrator.records import Status


def test_positions_are_those_of_the_file_before_the_change(migrated):
    code = "import torch\r\n\r\nß = 'é'; x = torch.cuda.synchronize()  # é\r\n\ty.cuda()\r\n".replace("\t", "")
    found = {(d.line, d.column, d.end_line, d.end_column) for d in migrated(code).fixed if d.rule != "NPU100"}
    assert found == {(3, 14, 3, 36), (4, 1, 4, 7)}


def test_fix_inside_another_fix_waits_for_its_turn(migrated):
    code = (
        "import torch\nimport torch_npu\ntorch.set_default_tensor_type(torch.cuda.HalfTensor)\nx = torch.cuda.seed()\n"
    )
    outcome = migrated(code)
    assert 'torch.set_default_device("npu")' in outcome.text and "torch.npu.seed()" in outcome.text
    assert [d.line for d in outcome.fixed if d.rule == "NPU102"] == [4]


def test_ignore_comment_keeps_the_code_and_says_nothing(migrated):
    code = "import torch\nx = y.cuda()  # npu-migrate: ignore[cuda-method] runs on the CUDA host\nz = y.cuda()\n"
    outcome = migrated(code)
    assert outcome.text.splitlines()[2:] == [code.splitlines()[1], "z = y.npu()"]
    assert not outcome.left


def test_unused_ignore_comment_is_reported(migrated):
    outcome = migrated("x = 1  # npu-migrate: ignore[cuda-method] not any more\ny.cuda()\n")
    assert [d.rule for d in outcome.left] == ["NPU008"]


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"def f(:\n    x.cuda()\n", "NPU001"),
        (b"print 'cuda'\n", "NPU001"),
        (b"x = '\xff'  # cuda\n", "NPU002"),
        (b"x = " + b"(" * 3000 + b"cuda" + b")" * 3000, "NPU001"),
    ],
)
def test_what_cannot_be_handled_is_a_record(migrated, raw, rule):
    result = migrated(raw).result
    assert result.status is Status.FAILED and result.after is None
    assert [d.rule for d in result.diagnostics] == [rule]
    assert result.error


def test_same_input_same_output(migrated):
    code = "import torch\nfrom torch import cuda\ncuda.init()\nx = torch.ones(1, device='cuda').cuda()\n"
    assert migrated(code).result == migrated(code).result


@pytest.mark.parametrize("select", [("NPU104",), ("device-string",), ("streams",)])
def test_selected_rules_bring_the_import(migrated, select):
    code = "import torch\nh = s.cuda_stream\nx = torch.ones(1, device='cuda').cuda()\n"
    outcome = migrated(code, select=select)
    assert "import torch_npu\n" in outcome.text
    assert {d.rule for d in outcome.fixed} <= {"NPU100", "NPU104", "NPU101", "NPU401"}
