"""Softmax with masks, and cross entropies."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradient, gradients
from .registry import reference

_MASKED = -10000.0


def _mask(mask: Tensor, fixed_triu_mask: bool) -> Tensor:
    return torch.ones_like(mask, dtype=torch.bool).triu(1) if fixed_triu_mask else mask.bool()


@reference("npu_scaled_masked_softmax")
def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1, fixed_triu_mask: bool = False) -> Tensor:
    scores = (x.float() * scale).masked_fill(_mask(mask, fixed_triu_mask), _MASKED)
    return torch.softmax(scores, -1).to(x.dtype)


@reference("npu_scaled_masked_softmax_backward")
def npu_scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool
) -> Tensor:
    grad, result = y_grad.float(), y.float()
    dx = (grad - (grad * result).sum(-1, keepdim=True)) * result * scale
    return dx.masked_fill(_mask(mask, fixed_triu_mask), 0).to(y_grad.dtype)


@reference("npu_masked_softmax_with_rel_pos_bias")
def npu_masked_softmax_with_rel_pos_bias(
    x: Tensor,
    atten_mask: Tensor | None,
    relative_pos_bias: Tensor,
    scale_value: float = 1.0,
    inner_precision_mode: int = 0,
) -> Tensor:
    scores = x.float() * scale_value + relative_pos_bias.float()
    if atten_mask is not None:
        scores = scores + atten_mask.float()
    return torch.softmax(scores, -1).to(x.dtype)


@reference("npu_softmax_cross_entropy_with_logits")
def npu_softmax_cross_entropy_with_logits(input: Tensor, labels: Tensor) -> Tensor:
    return -(labels * F.log_softmax(input, -1)).sum(-1)


@reference("npu_softmax_cross_entropy_with_logits_backward")
def npu_softmax_cross_entropy_with_logits_backward(grad: Tensor, input: Tensor, labels: Tensor) -> Tensor:
    return gradient(lambda logits: npu_softmax_cross_entropy_with_logits(logits, labels), input, grad)


@reference("npu_cross_entropy_loss")
def npu_cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if lse_square_scale_for_zloss or return_zloss:
        raise NotImplementedError("npu_cross_entropy_loss: the operator does not support the z-loss")
    log_prob = F.log_softmax(input.float(), -1)
    loss = _cross_entropy(log_prob, target, weight, reduction, ignore_index, label_smoothing)
    nothing = input.new_empty(0)
    return loss.to(input.dtype), log_prob.to(input.dtype), nothing, nothing.clone()


def _cross_entropy(
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    loss = F.cross_entropy(
        log_prob, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss if reduction == "none" else loss.view(1)


@reference("npu_cross_entropy_loss_backward")
def npu_cross_entropy_loss_backward(
    grad_loss: Tensor,
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    grad_zloss: Tensor | None = None,
    lse_for_zloss: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
) -> Tensor:
    def forward(logits: Tensor) -> Tensor:
        return _cross_entropy(logits, target, weight, reduction, ignore_index, label_smoothing)

    # The softmax of log probabilities is that of the logits that they came from.
    (result,) = gradients(forward, [log_prob.float()], [grad_loss])
    assert result is not None
    return result.to(log_prob.dtype)
