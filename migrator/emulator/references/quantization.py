"""Quantized products, and the conversions to and from 8- and 4-bit integers.

Eight 4-bit integers share an int32, the first one in its lowest bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .layout import dtype_of
from .linear import matmul
from .registry import reference

_INT4_DTYPES = (torch.int32, torch.quint4x2)
# An encoded scale holds the upper 19 bits of a float32, a marker, and above that a 9-bit offset.
_SCALE_BITS, _MARKER, _OFFSET_SHIFT = 0xFFFFE000, 1 << 46, 37


def pack_int4(values: Tensor) -> Tensor:
    """(..., 8 n) integers from -8 to 7 as (..., n) int32."""
    shifts = torch.arange(0, 32, 4)
    bits = ((values.long() & 0xF).unflatten(-1, (-1, 8)) << shifts).sum(-1)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).int()


def unpack_int4(packed: Tensor) -> Tensor:
    """(..., n) int32 as (..., 8 n) int8 from -8 to 7."""
    nibbles = (packed.unsqueeze(-1) >> torch.arange(0, 32, 4, dtype=torch.int32)) & 0xF
    return torch.where(nibbles > 7, nibbles - 16, nibbles).flatten(-2).to(torch.int8)


@reference("npu_trans_quant_param")
def npu_trans_quant_param(scale: Tensor, offset: Tensor | None = None, round_mode: int | None = 0) -> Tensor:
    """Scales, and offsets if any, as one int64 each."""
    bits = (scale.float().view(torch.int32).long() & _SCALE_BITS) | _MARKER
    if offset is None:
        return bits
    return bits | ((offset.round().clamp(-256, 255).long() & 0x1FF) << _OFFSET_SHIFT)


def _decoded(scale: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scales and offsets out of encoded scales; other scales as they are."""
    if scale.dtype not in (torch.int64, torch.uint64):
        return scale.float(), None
    bits = scale.view(torch.int64)
    offset = (bits >> _OFFSET_SHIFT) & 0x1FF
    low = bits & 0xFFFFFFFF
    value = torch.where(low >= 1 << 31, low - (1 << 32), low).int().view(torch.float32)
    return value, torch.where(offset > 255, offset - 512, offset).float()


@reference("npu_quant_matmul")
def npu_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    bias: Tensor | None = None,
    output_dtype: int | None = None,
    **options: Any,
) -> Tensor:
    """(x1 @ x2 + bias) * scale * pertoken_scale + offset of int8 or packed 4-bit integers; int8 by default."""
    unsupported = [name for name, value in options.items() if value is not None]
    if x1.dtype not in (torch.int8, torch.int32) or x2.dtype != x1.dtype:
        unsupported.append(f"{x1.dtype} with {x2.dtype}")
    if unsupported:
        raise NotImplementedError(f"npu_quant_matmul: the emulated NPU has no reference for {', '.join(unsupported)}")
    product = (_unpacked(x1).double() @ _unpacked(x2).double()).float()  # exact: sums of integers
    dtype = torch.int8 if output_dtype is None else dtype_of(output_dtype)
    if bias is not None and not bias.is_floating_point():
        product = product + bias
    if dtype == torch.int32:
        return product.to(dtype)
    factor, encoded_offset = _decoded(scale)
    result = product * factor
    if pertoken_scale is not None:
        result = result * pertoken_scale.reshape(-1, 1)
    if bias is not None and bias.is_floating_point():
        result = result + bias
    if dtype != torch.int8:
        return result.to(dtype)
    shift = offset if offset is not None else encoded_offset
    return (result if shift is None else result + shift).round().clamp(-128, 127).to(dtype)


def _unpacked(tensor: Tensor) -> Tensor:
    """4-bit integers are packed along the dimension that is contiguous in memory."""
    if tensor.dtype != torch.int32:
        return tensor
    if tensor.stride(-1) != 1 and tensor.stride(-2) == 1:
        return unpack_int4(tensor.transpose(-1, -2)).transpose(-1, -2)
    return unpack_int4(tensor)


@reference("npu_weight_quant_batchmatmul")
def npu_weight_quant_batchmatmul(
    x: Tensor,
    weight: Tensor,
    antiquant_scale: Tensor,
    antiquant_offset: Tensor | None = None,
    quant_scale: Tensor | None = None,
    quant_offset: Tensor | None = None,
    bias: Tensor | None = None,
    antiquant_group_size: int = 0,
    inner_precise: int = 0,
    weight_dtype: int | None = None,
) -> Tensor:
    """x @ ((weight + offset) * scale) + bias, with one scale, one per column, or one per column and group of rows."""
    if quant_scale is not None or quant_offset is not None or weight_dtype is not None:
        raise NotImplementedError(
            "npu_weight_quant_batchmatmul: the emulated NPU has no reference for quant_scale, quant_offset "
            "and weight_dtype"
        )
    wide = _unpacked(weight).to(x.dtype)  # each step is rounded to the type of x

    def per_row(values: Tensor) -> Tensor:
        return values.repeat_interleave(antiquant_group_size, 0)[: len(wide)] if antiquant_group_size else values

    if antiquant_offset is not None:
        wide = wide + per_row(antiquant_offset.to(x.dtype))
    return matmul(x, wide * per_row(antiquant_scale.to(x.dtype)), bias)


@reference("npu_dynamic_quant")
def npu_dynamic_quant(
    input: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: int | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Rows (or with quant_mode "pertensor" the whole) scaled to the range of int8 or 4-bit integers, and the scales."""
    dtype = torch.int8 if dst_type is None else dtype_of(dst_type)
    if group_index is not None or quant_mode not in ("pertoken", "pertensor") or dst_type_max:
        raise NotImplementedError(
            "npu_dynamic_quant: the emulated NPU has no reference for group_index, dst_type_max and this quant_mode"
        )
    if dtype != torch.int8 and dtype not in _INT4_DTYPES:
        raise NotImplementedError(f"npu_dynamic_quant: the emulated NPU has no reference for {dtype}")
    wide = input.float() if smooth_scales is None else input.float() * smooth_scales.float()
    largest = wide.abs().amax(-1, keepdim=True) if quant_mode == "pertoken" else wide.abs().amax().reshape(1)
    scale = largest / (127 if dtype == torch.int8 else 7)
    values = torch.where(scale == 0, torch.zeros_like(wide), wide / scale).round()
    quantized = values.to(torch.int8) if dtype == torch.int8 else pack_int4(values)
    return quantized, scale.squeeze(-1) if quant_mode == "pertoken" else scale
