"""Dropout. A mask is one bit per element, lowest bit first, padded to blocks of 128 bits."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .gradients import gradients
from .registry import reference

_BLOCK = 128


def draw_bits(count: int, p: float, generator: torch.Generator | None = None) -> Tensor:
    """A packed mask for `count` elements, each kept with probability 1 - p."""
    padded = math.ceil(count / _BLOCK) * _BLOCK
    kept = torch.rand(padded, generator=generator) >= p
    return (kept.view(-1, 8).to(torch.uint8) << torch.arange(8, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def unpack_bits(mask: Tensor, shape: torch.Size | list[int]) -> Tensor:
    """The mask as a bool tensor of this shape."""
    bits = (mask.view(-1, 1) >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.flatten()[: math.prod(shape)].view(shape).bool()


def apply(tensor: Tensor, kept: Tensor, p: float) -> Tensor:
    scale = 1 / (1 - p) if p < 1 else 0.0
    return torch.where(kept, tensor * scale, torch.zeros_like(tensor))


@reference("_npu_dropout", random=True)
def npu_dropout(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return npu_dropout_do_mask(input, draw_bits(input.numel(), p), p)


@reference("npu_dropout_do_mask")
def npu_dropout_do_mask(input: Tensor, mask: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return apply(input, unpack_bits(mask, input.shape), p), mask


@reference("npu_dropout_backward")
def npu_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    return apply(grad_output, unpack_bits(mask, grad_output.shape), p)


@reference("npu_dropout_gen_mask", random=True)
def npu_dropout_gen_mask(size: list[int], p: float, **options: Any) -> Tensor:
    return draw_bits(math.prod(size), p)


@reference("_npu_dropout_gen_mask.Tensor")
def npu_dropout_gen_mask_seeded(
    input: Tensor,
    size: list[int],
    p: float,
    seed: int,
    offset: int,
    *,
    parallel: bool | None = True,
    sync: bool | None = None,
) -> Tensor:
    return seeded_bits(math.prod(size), p, seed, offset)


def seeded_bits(count: int, p: float, seed: int, offset: int) -> Tensor:
    """The packed mask that belongs to a seed and an offset."""
    generator = torch.Generator().manual_seed(hash((seed, offset)) & 0x7FFF_FFFF_FFFF_FFFF)
    return draw_bits(count, p, generator)


@reference("_dropout_with_byte_mask", random=True)
def dropout_with_byte_mask(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    kept = torch.rand(input.shape) >= p
    return apply(input, kept, p), kept.to(torch.uint8)


@reference("_dropout_with_byte_mask_backward")
def dropout_with_byte_mask_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    return apply(grad_output, mask.bool(), p)


@reference("npu_dropout_with_add_softmax", random=True)
def npu_dropout_with_add_softmax(
    input: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    softmax = torch.softmax((x1.float() + input.float() * alpha), dim).to(input.dtype)
    kept = torch.rand(input.shape) >= prob
    return kept.to(torch.uint8), softmax, apply(softmax, kept, prob)


@reference("npu_dropout_with_add_softmax_backward")
def npu_dropout_with_add_softmax_backward(
    grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor | None, ...]:
    logits = softmax_out.float().log()

    def forward(shift: Tensor, x1: Tensor) -> Tensor:
        return apply(torch.softmax(logits + x1 + shift * alpha, dim), mask.bool(), prob)

    zeros = torch.zeros_like(logits)
    first, second = gradients(forward, [zeros, zeros.clone()], [grad])
    assert first is not None and second is not None
    return first.to(grad.dtype), second.to(grad.dtype)
