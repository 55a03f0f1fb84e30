"""Activation functions and gated linear units."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradient
from .registry import reference


def gelu(tensor: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(tensor.float(), approximate=approximate).to(tensor.dtype)


@reference("npu_fast_gelu", "fast_gelu")
def fast_gelu(input: Tensor) -> Tensor:
    wide = input.float()
    return (wide * torch.sigmoid(1.702 * wide)).to(input.dtype)


@reference("npu_fast_gelu_backward")
def fast_gelu_backward(grad: Tensor, input: Tensor) -> Tensor:
    return gradient(fast_gelu, input, grad)


@reference("npu_gelu")
def npu_gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return gelu(input, approximate)


@reference("npu_gelu_backward")
def npu_gelu_backward(grad_output: Tensor, input: Tensor, approximate: str = "none") -> Tensor:
    return gradient(lambda tensor: gelu(tensor, approximate), input, grad_output)


@reference("npu_gelu_mul")
def npu_gelu_mul(input: Tensor, approximate: str = "none") -> Tensor:
    gate, linear = input.chunk(2, -1)
    return gelu(gate, approximate) * linear


@reference("npu_silu")
def npu_silu(input: Tensor) -> Tensor:
    return F.silu(input.float()).to(input.dtype)


@reference("npu_silu_")
def npu_silu_(input: Tensor) -> Tensor:
    return input.copy_(npu_silu(input))


@reference("npu_silu_backward")
def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    return gradient(npu_silu, x0, grad_output)


@reference("npu_mish")
def npu_mish(input: Tensor) -> Tensor:
    return F.mish(input.float()).to(input.dtype)


@reference("npu_mish_backward")
def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:
    return gradient(npu_mish, input, grad)


@reference("npu_swiglu")
def npu_swiglu(input: Tensor, dim: int = -1) -> Tensor:
    gate, linear = input.float().chunk(2, dim)
    return (F.silu(gate) * linear).to(input.dtype)


@reference("npu_swiglu_backward")
def npu_swiglu_backward(grad_output: Tensor, input: Tensor, dim: int = -1) -> Tensor:
    return gradient(lambda tensor: npu_swiglu(tensor, dim), input, grad_output)


@reference("npu_clipped_swiglu")
def npu_clipped_swiglu(
    x: Tensor,
    *,
    group_index: Tensor | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
) -> Tensor:
    if group_index is not None:
        raise NotImplementedError("npu_clipped_swiglu: the emulated NPU has no reference for group_index")
    wide = x.float()
    if interleaved:
        gate, linear = wide.unflatten(dim, (-1, 2)).unbind(dim if dim < 0 else dim + 1)
    else:
        gate, linear = wide.chunk(2, dim)
    gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    return (gate * torch.sigmoid(alpha * gate) * (linear + bias)).to(x.dtype)


@reference("npu_geglu")
def npu_geglu(input: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Tensor, Tensor]:
    left, right = input.float().chunk(2, dim)
    gate, linear = (left, right) if activate_left else (right, left)
    activated = F.gelu(gate, approximate="tanh" if approximate else "none")
    return (activated * linear).to(input.dtype), activated.to(input.dtype)


@reference("npu_geglu_grad")
def npu_geglu_grad(
    grad_output: Tensor,
    input: Tensor,
    gelu: Tensor,
    dim: int = -1,
    approximate: int = 1,
    activate_left: bool = False,
) -> Tensor:
    return gradient(lambda tensor: npu_geglu(tensor, dim, approximate, activate_left)[0], input, grad_output)
