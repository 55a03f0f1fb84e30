"""Batch normalization in the steps that synchronized batch normalization communicates between.

The CPU has none of these operators. Channels are the second dimension; statistics are float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import reference


def _channels_last(tensor: Tensor) -> Tensor:
    """The tensor as (elements, channels), float32."""
    return tensor.float().transpose(0, 1).flatten(1).t()


def _along_channels(statistic: Tensor, like: Tensor) -> Tensor:
    return statistic.float().view(1, -1, *[1] * (like.dim() - 2))


def _update_running(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is not None:
        running.lerp_(value.to(running.dtype), momentum)


@reference("aten::batch_norm_stats")
def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    elements = _channels_last(input)
    return elements.mean(0), torch.rsqrt(elements.var(0, correction=0) + eps)


@reference("aten::batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    total = counts.sum()
    share = (counts.float() / total).view(-1, 1)
    common = (share * mean).sum(0)
    variance = (share * (invstd.pow(-2) - eps + (mean - common).square())).sum(0)
    _update_running(running_mean, common, momentum)
    _update_running(running_var, variance * total / (total - 1), momentum)
    return common, torch.rsqrt(variance + eps)


@reference("batch_norm_reduce")
def batch_norm_reduce(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    elements = _channels_last(input)
    return elements.sum(0), elements.square().sum(0)


@reference("batch_norm_gather_stats_update")
def batch_norm_gather_stats_update(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Of sums and sums of squares, one row per process, whatever the arguments are called."""
    total = counts.sum()
    common = mean.sum(0) / total
    variance = (invstd.sum(0) / total - common.square()).clamp(min=0)
    _update_running(running_mean, common, momentum)
    _update_running(running_var, variance * total / (total - 1), momentum)
    return common, torch.rsqrt(variance + eps)


@reference("aten::batch_norm_elemt")
def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    result = (input.float() - _along_channels(mean, input)) * _along_channels(invstd, input)
    if weight is not None:
        result = result * _along_channels(weight, input)
    if bias is not None:
        result = result + _along_channels(bias, input)
    return result.to(input.dtype)


@reference("aten::batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dy = _channels_last(grad_out)
    sum_dy, sum_dy_xmu = dy.sum(0), (dy * (_channels_last(input) - mean)).sum(0)
    dtype = mean.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(dtype), sum_dy.to(dtype)


@reference("aten::batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    total = count.sum()
    centered = input.float() - _along_channels(mean, input)
    slope = _along_channels(sum_dy_xmu / total * invstd.square(), input)
    result = grad_out.float() - _along_channels(sum_dy / total, input) - centered * slope
    scale = invstd if weight is None else invstd * weight.float()
    return (result * _along_channels(scale, input)).to(input.dtype)
