"""Tensors in a few plain numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_NARROW = (torch.float16, torch.bfloat16)
_DEPTH = 8


def name_of(dtype: torch.dtype) -> str:
    """The dtype's name without "torch."."""
    return str(dtype).removeprefix("torch.")


def norm(tensor: Tensor) -> float:
    """The L2 norm; narrow tensors are summed in float32."""
    values = _dense(tensor)
    if values.is_complex():
        values = torch.view_as_real(values)
    if not values.is_floating_point() or values.dtype in _NARROW:
        values = values.float()
    return float(torch.linalg.vector_norm(values))


def sample(tensor: Tensor, count: int) -> list[float]:
    """At most `count` elements at even distances, in the order of the indices."""
    values = _dense(tensor)
    if values.is_complex():
        values = torch.view_as_real(values)
    flat = values.reshape(-1)
    stride = max(1, flat.numel() // max(count, 1))
    return [float(value) for value in flat[::stride][:count].cpu().double().tolist()]


def thinned(tensor: Tensor, limit: int) -> Tensor:
    """A CPU copy; of a tensor with more than `limit` elements, that many at even distances."""
    values = _dense(tensor)
    if values.numel() > limit:
        values = values.reshape(-1)[:: -(-values.numel() // limit)]
    return values.cpu().clone(memory_format=torch.contiguous_format)


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in nested lists, mappings and dataclasses, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif depth < _DEPTH:
        if isinstance(value, Mapping):
            inner = list(value.values())
        elif isinstance(value, (list, tuple)):
            inner = list(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
        else:
            return
        for item in inner:
            yield from tensors_in(item, depth + 1)


def _dense(tensor: Tensor) -> Tensor:
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.cpu()  # an NPU may not be able to
        values = values.coalesce().values() if values.layout == torch.sparse_coo else values.to_dense()
    return values
