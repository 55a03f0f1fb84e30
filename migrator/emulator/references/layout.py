"""Casts, copies and reorderings. Every format is kept in memory as the plain one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradient
from .registry import reference

# The codes that stand for torch's types in the operators' schemas.
_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    15: torch.bfloat16,
    16: torch.quint4x2,
    8: torch.complex32,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
}


def dtype_of(code: int | torch.dtype) -> torch.dtype:
    """The type that an integer argument of an operator stands for."""
    if isinstance(code, torch.dtype):
        return code
    if code not in _DTYPES:
        raise NotImplementedError(f"the emulated NPU has no reference for the data type number {code}")
    return _DTYPES[code]


@reference("_npu_format_cast", "_npu_format_cast.aclnn", "_npu_format_cast.input_dtype")
def npu_format_cast(input: Tensor, *target: Any, **options: Any) -> Tensor:
    return input.clone()


@reference("npu_format_cast_", "npu_format_cast_.acl_format")
def npu_format_cast_(input: Tensor, *target: Any, **options: Any) -> Tensor:
    return input


@reference("npu_dtype_cast", "_npu_dtype_cast")
def npu_dtype_cast(input: Tensor, dtype: int | torch.dtype, input_dtype: int | None = None) -> Tensor:
    return input.to(dtype_of(dtype), copy=True)


@reference("npu_dtype_cast_backward", "_npu_dtype_cast_backward")
def npu_dtype_cast_backward(grad: Tensor, dtype: int | torch.dtype, *quantized: int | None) -> Tensor:
    return grad.to(dtype_of(dtype), copy=True)


@reference("npu_dtype_cast_")
def npu_dtype_cast_(input: Tensor, src: Tensor) -> Tensor:
    return input.copy_(src)


@reference("npu_view_copy")
def npu_view_copy(input: Tensor, other: Tensor, non_blocking: bool) -> Tensor:
    return input.copy_(other)


@reference("npu_transpose")
def npu_transpose(input: Tensor, perm: list[int], require_contiguous: bool = True) -> Tensor:
    return input.permute(perm).clone(memory_format=torch.contiguous_format)


@reference("npu_confusion_transpose")
def npu_confusion_transpose(input: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    result = input.permute(perm).reshape(shape) if transpose_first else input.reshape(shape).permute(perm)
    return result.clone(memory_format=torch.contiguous_format)


@reference("npu_confusion_transpose_backward")
def npu_confusion_transpose_backward(grad: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    # The flag is already turned around: the gradient undoes the reshape first if it came last.
    inverse = sorted(range(len(perm)), key=perm.__getitem__)
    if transpose_first:
        result = grad.permute(inverse).reshape(shape)
    else:
        result = grad.reshape([shape[axis] for axis in perm]).permute(inverse)
    return result.clone(memory_format=torch.contiguous_format)


@reference("npu_reshape")
def npu_reshape(input: Tensor, shape: list[int], can_refresh: bool = False) -> Tensor:
    return input.reshape(shape).clone()


@reference("npu_broadcast")
def npu_broadcast(input: Tensor, size: list[int]) -> Tensor:
    return input.expand(size).clone(memory_format=torch.contiguous_format)


@reference("npu_slice")
def npu_slice(input: Tensor, offsets: list[int], size: list[int]) -> Tensor:
    spans = zip(offsets, size, input.shape, strict=True)
    return input[tuple(slice(o, length if s == -1 else o + s) for o, s, length in spans)].clone()


@reference("npu_indexing")
def npu_indexing(
    input: Tensor,
    begin: list[int],
    end: list[int],
    strides: list[int],
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Tensor:
    index: list[Any] = []
    for i, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if ellipsis_mask >> i & 1:
            index.append(...)
        elif new_axis_mask >> i & 1:
            index.append(None)
        elif shrink_axis_mask >> i & 1:
            index.append(first)
        else:
            index.append(slice(None if begin_mask >> i & 1 else first, None if end_mask >> i & 1 else last, step))
    return input[tuple(index)].clone()


@reference("npu_pad")
def npu_pad(input: Tensor, paddings: list[int]) -> Tensor:
    pairs = list(zip(paddings[::2], paddings[1::2], strict=True))
    return F.pad(input, [amount for pair in reversed(pairs) for amount in pair])


@reference("npu_stride_copy")
def npu_stride_copy(input: Tensor, shape: list[int], stride: list[int], storage_offset: int) -> Tensor:
    return input.as_strided(shape, stride, int(storage_offset)).clone(memory_format=torch.contiguous_format)


@reference("npu_one_hot")
def npu_one_hot(
    input: Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    count = num_classes if num_classes != -1 else depth
    hot = input.long().unsqueeze(-1) == torch.arange(count)
    return torch.where(hot, float(on_value), float(off_value))


@reference("npu_sort_v2")
def npu_sort_v2(input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return input.sort(dim, descending).values


@reference("npu_max.dim")
def npu_max(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = input.max(dim, keepdim)
    return values, indices.int()


@reference("npu_min.dim")
def npu_min(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = input.min(dim, keepdim)
    return values, indices.int()


@reference("npu_max_backward", "npu_min_backward")
def npu_max_backward(grad: Tensor, dim: int, indices: Tensor, sizes: list[int], keepdim: bool) -> Tensor:
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter_(dim, indices.long(), grad)


@reference("npu_gather_backward")
def npu_gather_backward(grad: Tensor, self_size: list[int], dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    return grad.new_zeros(self_size).scatter_add_(dim, index, grad)


@reference("npu_scatter")
def npu_scatter(input: Tensor, indices: Tensor, updates: Tensor, dim: int) -> Tensor:
    index = indices.long()
    if index.dim() < input.dim():
        index, updates = index.unsqueeze(dim), updates.unsqueeze(dim)
    return input.scatter(dim, index, updates)


@reference("npu_scatter_nd_update")
def npu_scatter_nd_update(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return npu_scatter_nd_update_(input.clone(), indices, updates)


@reference("npu_scatter_nd_update_")
def npu_scatter_nd_update_(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    input[indices.long().unbind(-1)] = updates
    return input


@reference("scatter_update")
def scatter_update(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    return scatter_update_(input.clone(), indices, updates, axis)


@reference("scatter_update_")
def scatter_update_(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    """Write each batch's updates along the axis, from the position that its index names."""
    for batch, start in enumerate(indices.flatten().tolist()):
        target = input[batch]
        target.narrow(axis % input.dim() - 1, start, updates.shape[axis]).copy_(updates[batch])
    return input


@reference("npu_masked_fill_range")
def npu_masked_fill_range(input: Tensor, start: Tensor, end: Tensor, value: Tensor, axis: int = -1) -> Tensor:
    position = torch.arange(input.shape[axis])
    result = input.clone()
    for first, last, fill in zip(start.flatten(), end.flatten(), value.flatten(), strict=True):
        result.transpose(axis, -1)[..., (position >= first) & (position < last)] = fill
    return result


@reference("one_")
def one_(input: Tensor) -> Tensor:
    return input.fill_(1)


@reference("npu_renorm_backward")
def npu_renorm_backward(grad: Tensor, input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    return gradient(lambda tensor: torch.renorm(tensor, p, dim, maxnorm), input, grad)
