"""NPU tensors seen as CPU tensors, and back. On the emulated NPU both are memory of the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CPU = torch.device("cpu")
_storage_over = torch._C._construct_storage_from_data_pointer


def as_cpu(tensor: Tensor, storages: dict[int, Any] | None = None) -> Tensor:
    """A CPU tensor over the memory of a strided or sparse (COO) NPU tensor. It does not keep that memory alive.

    Tensors that share an NPU storage share a CPU storage if they are given the same `storages`, by address.
    """
    if tensor.layout == torch.sparse_coo:
        return _sparse(as_cpu(tensor._indices()), as_cpu(tensor._values()), like=tensor)
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size:
        address = storage.data_ptr()
        memory = storages.get(address) if storages is not None else None
        if memory is None:
            memory = _storage_over(address, CPU, size)
            if storages is not None:
                storages[address] = memory
        alias = torch.empty(0, dtype=tensor.dtype, device=CPU).set_(
            memory, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
    else:
        alias = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=CPU)
    if tensor.is_conj():
        alias = torch._conj(alias)
    if tensor.is_neg():
        alias = torch._neg_view(alias)
    return alias


def to_npu(tensor: Tensor, device: torch.device) -> Tensor:
    """A new NPU tensor with the values of a strided or sparse (COO) CPU tensor and, if it has no gaps, its strides."""
    if tensor.layout == torch.sparse_coo:
        return _sparse(to_npu(tensor._indices(), device), to_npu(tensor._values(), device), like=tensor)
    result = torch.empty_like(tensor, device=device)
    if tensor.numel():
        as_cpu(result).copy_(tensor)
    return result


def _sparse(indices: Tensor, values: Tensor, like: Tensor) -> Tensor:
    with torch.npu.device(values.get_device()):  # -1, of a CPU tensor, changes nothing
        return torch.ops.aten._sparse_coo_tensor_unsafe(indices, values, like.shape, is_coalesced=like.is_coalesced())


def follow(tensor: Tensor, alias: Tensor) -> None:
    """Give an NPU tensor the shape, strides and memory that an operator gave to its CPU alias."""
    storage, memory = tensor.untyped_storage(), alias.untyped_storage()
    if storage.data_ptr() == memory.data_ptr() and storage.nbytes() == memory.nbytes():
        if tensor.shape != alias.shape or tensor.stride() != alias.stride():
            torch.ops.aten.set_.source_Storage_storage_offset(
                tensor, storage, alias.storage_offset(), alias.shape, alias.stride()
            )
    else:
        tensor.resize_(alias.shape)
        as_cpu(tensor).copy_(alias)
