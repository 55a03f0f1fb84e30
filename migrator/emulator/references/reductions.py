"""Extreme values along a dimension, with int32 indices."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import reference


@reference("npu_max.dim")
def npu_max(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = torch.max(input, dim, keepdim)
    return values, indices.int()


@reference("npu_min.dim")
def npu_min(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = torch.min(input, dim, keepdim)
    return values, indices.int()


@reference("npu_max_backward", "npu_min_backward")
def extreme_backward(grad: Tensor, dim: int, indices: Tensor, sizes: list[int], keepdim: bool) -> Tensor:
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter_(dim, indices.long(), grad)
