"""Rotary position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from .gradients import gradients
from .registry import reference


def rotate(tensor: Tensor, mode: str) -> Tensor:
    """The tensor turned by a quarter, with its pairs in halves or beside each other."""
    if mode == "half":
        first, second = tensor.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if mode == "interleave":
        return torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)
    raise NotImplementedError(f"rotary embedding: the emulated NPU has no reference for rotary_mode {mode!r}")


@reference("npu_rotary_mul")
def npu_rotary_mul(
    input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    if rotate is not None:
        raise NotImplementedError("npu_rotary_mul: the emulated NPU has no reference for a rotation matrix")
    return _embed(input, r1, r2, rotary_mode)


@reference("npu_rotary_mul_backward")
def npu_rotary_mul_backward(
    grad: Tensor, input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> tuple[Tensor | None, ...]:
    return gradients(lambda tensor, cos, sin: _embed(tensor, cos, sin, rotary_mode), [input, r1, r2], [grad])


@reference("npu_apply_rotary_pos_emb")
def npu_apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    return _embed(query, cos, sin, rotary_mode), _embed(key, cos, sin, rotary_mode)


@reference("npu_interleave_rope")
def npu_interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _embed(x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), cos, sin, "half")


def _embed(tensor: Tensor, cos: Tensor, sin: Tensor, mode: str) -> Tensor:
    wide = tensor.float()
    return (wide * cos.float() + rotate(wide, mode) * sin.float()).to(tensor.dtype)
