"""Optimizer steps, which change the tensors of `out`, and the overflow flags of old loss scalers."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import reference


@reference("npu_apply_adam.out")
def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None,
    use_nesterov: bool | None,
    *,
    out: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    var, m, v = out
    m.lerp_(grad, 1 - beta1)
    v.lerp_(grad.square(), 1 - beta2)
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    direction = m * beta1 + grad * (1 - beta1) if use_nesterov else m
    var.sub_(rate * direction / (v.sqrt() + epsilon))
    return var, m, v


@reference("npu_apply_adam_w.out")
def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    *,
    out: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    var, m, v = out
    step = -grad if maximize else grad
    var.mul_(1 - lr * weight_decay)
    m.lerp_(step, 1 - beta1)
    v.lerp_(step.square(), 1 - beta2)
    second = v
    if amsgrad and max_grad_norm is not None:
        second = max_grad_norm.copy_(torch.maximum(max_grad_norm, v))
    denominator = (second / (1 - beta2_power)).sqrt() + epsilon
    var.sub_(lr / (1 - beta1_power) * m / denominator)
    return var, m, v


@reference("npu_bert_apply_adam.out")
def npu_bert_apply_adam(
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: float,
    global_grad_norm: float,
    weight_decay: float,
    step_size: float | None = None,
    adam_mode: int = 0,
    *,
    out: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    if adam_mode != 0 or step_size:
        raise NotImplementedError(
            "npu_bert_apply_adam: the emulated NPU has no reference for adam_mode 1 and step_size"
        )
    var, m, v = out
    clipped = grad / max(1.0, global_grad_norm / max_grad_norm) if max_grad_norm > 0 else grad
    m.lerp_(clipped, 1 - beta1)
    v.lerp_(clipped.square(), 1 - beta2)
    var.sub_(lr * (m / (v.sqrt() + epsilon) + weight_decay * var))
    return var, m, v


@reference("npu_alloc_float_status", "npu_get_float_status", "npu_clear_float_status")
def float_status(input: Tensor, mode: int = 0) -> Tensor:
    """Overflow shows as infinities and NaNs, as on chips that support them, and never in these flags."""
    return torch.zeros(8)
