"""Normalizations. Statistics and sums are float32, and results are rounded once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradients
from .registry import reference


def _last_dims(tensor: Tensor, like: Tensor) -> tuple[int, ...]:
    return tuple(range(tensor.dim() - like.dim(), tensor.dim()))


def _layer_norm(tensor: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the mean and the reciprocal standard deviation, all float32."""
    dims = _last_dims(tensor, gamma)
    mean = tensor.mean(dims, keepdim=True)
    rstd = torch.rsqrt((tensor - mean).pow(2).mean(dims, keepdim=True) + epsilon)
    return (tensor - mean) * rstd * gamma.float() + beta.float(), mean, rstd


def _rms_norm(tensor: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The result and the reciprocal root mean square, both float32."""
    rstd = torch.rsqrt(tensor.pow(2).mean(_last_dims(tensor, gamma), keepdim=True) + epsilon)
    return tensor * rstd * gamma.float(), rstd


@reference("npu_rms_norm")
def npu_rms_norm(input: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    result, rstd = _rms_norm(input.float(), gamma, epsilon)
    return result.to(input.dtype), rstd


@reference("npu_rms_norm_backward")
def npu_rms_norm_backward(dy: Tensor, input: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor | None, ...]:
    # rstd holds the epsilon that the operator is not given again.
    dims = _last_dims(input, gamma)
    mean_square = input.float().pow(2).mean(dims, keepdim=True)

    def forward(tensor: Tensor, weight: Tensor) -> Tensor:
        wide = tensor.float()
        epsilon = rstd.pow(-2) - mean_square
        return wide * torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + epsilon) * weight.float()

    dx, dgamma = gradients(forward, [input, gamma.float()], [dy])
    return dx, dgamma


@reference("npu_gemma_rms_norm")
def npu_gemma_rms_norm(input: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    return npu_rms_norm(input, gamma.float() + 1, epsilon)


@reference("npu_add_rms_norm")
def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    total = x1 + x2
    result, rstd = npu_rms_norm(total, gamma, epsilon)
    return result, rstd, total


@reference("npu_add_rms_norm_v2_functional")
def npu_add_rms_norm_v2_functional(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    result, rstd, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return rstd, result, total


@reference("npu_add_rms_norm_v2")
def npu_add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    result, rstd, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(result)
    x2.copy_(total)
    return rstd


@reference("npu_add_rms_norm_cast")
def npu_add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = x1 + x2
    result, rstd = _rms_norm(total.float(), gamma, epsilon)
    return result, result.to(x1.dtype), rstd, total


@reference("npu_add_layer_norm")
def npu_add_layer_norm(
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float = 1e-5,
    additional_output: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = x1.dtype if x1.dtype == x2.dtype else torch.float32
    total = x1.float() + x2.float()
    result, mean, rstd = _layer_norm(total, gamma, beta, epsilon)
    return result.to(dtype), mean, rstd, total.to(dtype)


@reference("npu_add_layer_norm_backward")
def npu_add_layer_norm_backward(
    dy_opt: Tensor | None,
    x1: Tensor,
    x2: Tensor,
    rstd: Tensor,
    mean: Tensor,
    gamma: Tensor,
    dsum_opt: Tensor | None,
) -> tuple[Tensor | None, ...]:
    def forward(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        total = first.float() + second.float()
        return _normalized_with(total, mean, rstd, gamma) * weight.float() + bias.float(), total

    return gradients(forward, [x1, x2, gamma, torch.zeros_like(gamma)], [dy_opt, dsum_opt])


@reference("npu_deep_norm")
def npu_deep_norm(
    x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, rstd = _layer_norm(alpha * x.float() + gx.float(), gamma, beta, epsilon)
    return mean, rstd, result.to(x.dtype)


@reference("npu_deep_norm_backward")
def npu_deep_norm_backward(
    dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor, alpha: float = 0.3
) -> tuple[Tensor | None, ...]:
    def forward(first: Tensor, second: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
        total = alpha * first.float() + second.float()
        return _normalized_with(total, mean, rstd, gamma) * weight.float() + bias.float()

    return gradients(forward, [x, gx, torch.zeros_like(gamma).float(), gamma.float()], [dy])


def _normalized_with(tensor: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor) -> Tensor:
    """A differentiable normalization whose epsilon is the one that made rstd."""
    dims = _last_dims(tensor, gamma)
    epsilon = rstd.pow(-2) - (tensor.detach() - mean).pow(2).mean(dims, keepdim=True)
    centered = tensor - tensor.mean(dims, keepdim=True)
    return centered * torch.rsqrt(centered.pow(2).mean(dims, keepdim=True) + epsilon)


@reference("npu_layer_norm_eval")
def npu_layer_norm_eval(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def _group_norm(
    tensor: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    batch, channels = tensor.shape[:2]
    wide = [None if value is None else value.float() for value in (weight, bias)]
    size = tensor[0, 0].numel()
    result, mean, rstd = torch.native_group_norm(tensor.float().contiguous(), *wide, batch, channels, size, groups, eps)
    return result, mean, rstd


@reference("npu_group_norm_silu")
def npu_group_norm_silu(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, rstd = _group_norm(input, group, weight, bias, eps)
    return F.silu(result).to(input.dtype), mean.to(input.dtype), rstd.to(input.dtype)


@reference("npu_group_norm_swish")
def npu_group_norm_swish(
    input: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float | None = 1e-5,
    swish_scale: float | None = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, rstd = _group_norm(input, num_groups, weight, bias, 1e-5 if eps is None else eps)
    scale = 1.0 if swish_scale is None else swish_scale
    return (result * torch.sigmoid(scale * result)).to(input.dtype), mean, rstd


@reference("npu_group_norm_swish_grad")
def npu_group_norm_swish_grad(
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_input_mask: list[bool],
    swish_scale: float | None = 1.0,
) -> tuple[Tensor | None, ...]:
    grouped = input.float().unflatten(1, (num_groups, -1)).flatten(2)
    epsilon = (rstd.flatten().pow(-2) - grouped.var(2, correction=0).flatten()).mean().clamp(min=0).item()

    def forward(tensor: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return npu_group_norm_swish(tensor, num_groups, gamma, beta, epsilon, swish_scale)[0]

    return gradients(forward, [input, weight, bias], [grad])
