"""Quantized products and conversions."""

from __future__ import annotations

import pytest
import torch
import torch_npu
from comparing import close
from torch import Tensor


def integers(*shape: int, low: int = -8, high: int = 8) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(low, high, shape)


def packed(values: Tensor) -> Tensor:
    """Eight 4-bit integers of the last dimension in each int32, by arithmetic."""
    groups = values.reshape(*values.shape[:-1], -1, 8)
    total = sum((groups[..., i] % 16) * 16**i for i in range(8))
    return torch.where(total >= 2**31, total - 2**32, total).to(torch.int32).contiguous()


def test_product_of_int8() -> None:
    x1, x2 = integers(4, 16).to(torch.int8), integers(16, 6).to(torch.int8)
    exact = x1.long() @ x2.long()
    scale, tokens, bias = torch.rand(6) / 8, torch.rand(4), integers(6).int()
    result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), output_dtype=torch.bfloat16)
    close(result, (exact * scale).bfloat16())
    result = torch_npu.npu_quant_matmul(
        x1.npu(), x2.npu(), scale.npu(), bias=bias.npu(), pertoken_scale=tokens.npu(), output_dtype=torch.float16
    )
    close(result, ((exact + bias) * scale * tokens[:, None]).half())
    result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), output_dtype=torch.int32)
    close(result, exact.int())


def test_product_that_is_quantized_again() -> None:
    x1, x2 = integers(4, 16).to(torch.int8), integers(16, 6).to(torch.int8)
    scale, offset = torch.tensor([0.25]), torch.tensor([-3.0])  # exact in the 19 bits of an encoded scale
    expected = ((x1.long() @ x2.long()) * 0.25 - 3).round().clamp(-128, 127).to(torch.int8)
    encoded = torch_npu.npu_trans_quant_param(scale.npu(), offset.npu())
    assert encoded.tolist() == [0x3E800000 | 1 << 46 | (-3 & 0x1FF) << 37]
    close(torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), encoded), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_product_of_packed_int4(transposed: bool) -> None:
    x1, x2 = integers(4, 16), integers(16, 8)
    second = packed(x2.t()).npu().t() if transposed else packed(x2).npu()
    result = torch_npu.npu_quant_matmul(packed(x1).npu(), second, torch.ones(1).npu(), output_dtype=torch.float16)
    close(result, (x1 @ x2).half())


def test_product_with_quantized_weights() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 16).half(), integers(16, 6).to(torch.int8)
    scale, offset = torch.rand(2, 6).half(), integers(2, 6).half()
    rows = torch.arange(16) // 8
    expected = x.float() @ ((weight.half() + offset[rows]) * scale[rows]).float()
    result = torch_npu.npu_weight_quant_batchmatmul(
        x.npu(), weight.npu(), scale.npu(), offset.npu(), antiquant_group_size=8
    )
    close(result, expected.half(), rtol=1e-3, atol=1e-2)


def test_quantization_by_rows() -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 16)
    rows[1] = 0
    scale = rows.abs().amax(1)
    quantized, scales = torch_npu.npu_dynamic_quant(rows.half().npu())
    close(scales, scale.half().float() / 127, rtol=1e-3)
    restored = quantized.cpu() * scales.cpu()[:, None]
    torch.testing.assert_close(restored, rows, rtol=0, atol=0.02)
    narrow, scales = torch_npu.npu_dynamic_quant(rows.npu().bfloat16(), dst_type=torch.quint4x2)
    assert narrow.shape == (3, 2)
    wide = rows.bfloat16().float()
    steps = wide / (wide.abs().amax(1, keepdim=True) / 7).clamp(min=1e-9)
    close(narrow, packed(steps.round().long()))
