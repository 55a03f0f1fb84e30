"""Products of matrices and convolutions, in float32, rounded once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradients
from .registry import reference

_HALVES = (torch.float16, torch.bfloat16)


def matmul(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """first @ second + bias in the type of first."""
    if first.dtype not in _HALVES:
        product = first @ second
        return product if bias is None else product + bias
    product = first.float() @ second.float()
    return (product if bias is None else product + bias.float()).to(first.dtype)


@reference("npu_linear")
def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return matmul(input, weight.t(), bias)


@reference("npu_linear_backward")
def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return matmul(grad, weight), matmul(grad.flatten(0, -2).t(), input.flatten(0, -2))


@reference("npu_bmmV2")
def npu_bmm_v2(input: Tensor, mat2: Tensor, output_sizes: list[int]) -> Tensor:
    product = matmul(input, mat2)
    return product.reshape(output_sizes) if output_sizes else product


@reference("npu_bmm_v2_mat1_backward")
def npu_bmm_v2_mat1_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: list[int]) -> Tensor:
    return matmul(grad, mat2.transpose(-1, -2)).sum_to_size(size)


@reference("npu_bmm_v2_mat2_backward")
def npu_bmm_v2_mat2_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: list[int]) -> Tensor:
    return matmul(mat1.transpose(-1, -2), grad).sum_to_size(size)


@reference("npu_transpose_batchmatmul")
def npu_transpose_batchmatmul(
    input: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    perm_x1: list[int] | None = None,
    perm_x2: list[int] | None = None,
    perm_y: list[int] | None = None,
    batch_split_factor: int | None = 1,
) -> Tensor:
    if bias is not None or scale is not None or batch_split_factor not in (None, 1):
        raise NotImplementedError(
            "npu_transpose_batchmatmul: the emulated NPU has no reference for bias, scale and batch_split_factor"
        )
    product = matmul(input.permute(perm_x1 or [0, 1, 2]), weight.permute(perm_x2 or [0, 1, 2]))
    return product.permute(perm_y or [1, 0, 2]).contiguous()


@reference("npu_grouped_matmul", "npu_grouped_matmul.List")
def npu_grouped_matmul(
    x: list[Tensor],
    weight: list[Tensor],
    *,
    bias: list[Tensor] | None = None,
    group_list: Tensor | list[int] | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    **options: Any,
) -> list[Tensor]:
    unsupported = [name for name, value in options.items() if value not in (None, 0, [])]
    if group_type == 2 or (group_list is not None and len(x) != 1):
        unsupported.append("this kind of groups")
    if unsupported:
        raise NotImplementedError(f"npu_grouped_matmul: the emulated NPU has no reference for {', '.join(unsupported)}")
    if len(weight) == 1 and weight[0].dim() == 3:
        weight = list(weight[0].unbind())
    parts = list(x)
    if group_list is not None:
        parts = list(x[0].split(_group_sizes(group_list, group_list_type or 0)))
    biases: list[Tensor | None] = list(bias) if bias else [None] * len(weight)
    if bias and len(bias) == 1 and len(weight) > 1:
        biases = list(bias[0].unbind())
    results = [matmul(part, matrix, extra) for part, matrix, extra in zip(parts, weight, biases, strict=True)]
    return [torch.cat(results)] if split_item in (2, 3) else results


def _group_sizes(group_list: Tensor | list[int], kind: int) -> list[int]:
    """The rows of each group, from their sizes (kind 1) or from where each ends (kind 0)."""
    values = torch.as_tensor(group_list)
    sizes = values if kind == 1 else torch.diff(values, prepend=values.new_zeros(1))
    return [int(size) for size in sizes]


def _convolve(input: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any, transposed: bool = False) -> Tensor:
    dims = weight.dim() - 2
    convolution = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
    if input.dtype not in _HALVES:
        return convolution(input, weight, bias, *settings)
    wide = convolution(input.float(), weight.float(), None if bias is None else bias.float(), *settings)
    return wide.to(input.dtype)


@reference("npu_conv2d", "npu_conv3d", "npu_convolution")
def npu_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


@reference("npu_conv2d_backward", "npu_conv3d_backward", "npu_convolution_backward")
def npu_convolution_backward(
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    def forward(*tensors: Tensor) -> Tensor:
        return _convolve(*tensors, stride, padding, dilation, groups)

    return gradients(forward, [input, weight, weight.new_zeros(weight.shape[0])], [grad_output])


@reference("npu_conv_transpose2d", "npu_convolution_transpose")
def npu_convolution_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: list[int],
    output_padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    return _convolve(input, weight, bias, stride, padding, output_padding, groups, dilation, transposed=True)


@reference("npu_conv_transpose2d_backward", "npu_conv_transpose3d_backward", "npu_convolution_transpose_backward")
def npu_convolution_transpose_backward(
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    padding: list[int],
    output_padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    def forward(*tensors: Tensor) -> Tensor:
        return _convolve(*tensors, stride, padding, output_padding, groups, dilation, transposed=True)

    return gradients(forward, [input, weight, weight.new_zeros(weight.shape[1] * groups)], [grad_output])
