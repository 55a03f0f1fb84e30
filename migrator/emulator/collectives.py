"""Communication between emulated NPUs: HCCL is Gloo on the same memory, and DataParallel copies."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_map

from .dispatcher import implement, overload
from .kernels import Kernel
from .memory import CPU, as_cpu

# HCCL only counts the elements of these; Gloo would divide the first dimension among the processes.
_SHAPELESS = frozenset({"c10d::_allgather_base_", "c10d::_reduce_scatter_base_"})
# Unfinished communication and the tensors that it reads and writes: nothing else keeps those alive.
_pending: list[tuple[Any, list[Tensor]]] = []
_pending_lock = threading.Lock()


def install(kernels: Iterable[str]) -> None:
    """Serve torch.distributed's "hccl" backend and the copies of DataParallel."""
    torch._C._broadcast = _broadcast
    torch._C._broadcast_coalesced = _broadcast_coalesced
    if not distributed.is_available() or not distributed.is_gloo_available():
        return
    for name in kernels:
        operator = overload(name) if name.startswith("c10d::") else None
        if operator is not None:
            implement(operator, _on_host_memory(operator), "PrivateUse1")
    distributed.batch_isend_irecv = distributed.distributed_c10d.batch_isend_irecv = _batch_isend_irecv
    for backend in ("HCCL", "LCCL"):
        plugin = distributed.Backend._plugins.get(backend)
        if plugin is not None:
            distributed.Backend._plugins[backend] = plugin._replace(creator_fn=_gloo)
    _serve_host_tensors_too()


def _batch_isend_irecv(operations: Sequence[Any]) -> list[Any]:
    """Send and receive one by one: Gloo has no groups of them."""
    started = [each.op(each.tensor, each.peer, each.group, each.tag) for each in operations]
    return [work for work in started if work is not None]


def _gloo(options: Any, backend_options: Any) -> Any:
    return distributed.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)


def _serve_host_tensors_too() -> None:
    """Register the backend of the NPU for the CPU as well, because kernels pass it CPU tensors."""
    register = distributed.ProcessGroup._register_backend

    def register_backend(group: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
        register(group, device, kind, backend)
        if torch.device(device).type == "npu" and isinstance(backend, distributed.ProcessGroupGloo):
            register(group, CPU, distributed.ProcessGroup.BackendType.GLOO, backend)

    distributed.ProcessGroup._register_backend = register_backend


def _on_host_memory(operator: torch._ops.OpOverload) -> Kernel:
    """A kernel that runs a collective on the memory of its NPU tensors."""
    flat = operator._schema.name in _SHAPELESS

    def kernel(*args: Any, **kwargs: Any) -> Any:
        lent: list[tuple[Tensor, Tensor]] = []

        def lend(value: Any) -> Any:
            if isinstance(value, Tensor) and not value.is_cpu:
                alias = as_cpu(value)
                lent.append((alias.view(-1) if flat else alias, value))
                return lent[-1][0]
            return value

        def hand_back(value: Any) -> Any:
            if isinstance(value, Tensor):
                return next((tensor for alias, tensor in lent if alias is value), value)
            return value

        args, kwargs = tree_map(lend, (args, kwargs))
        result = operator(*args, **kwargs)
        _keep_alive(result, [tensor for _, tensor in lent])
        return tree_map(hand_back, result)

    return kernel


def _keep_alive(result: Any, tensors: list[Tensor]) -> None:
    work = result[-1] if isinstance(result, (tuple, list)) else result
    with _pending_lock:
        _pending[:] = [(other, held) for other, held in _pending if not other.is_completed()]
        if hasattr(work, "is_completed"):
            _pending.append((work, tensors))


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    return [tensor if index == tensor.get_device() else tensor.to(torch.device("npu", index)) for index in devices]


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    copies = [_broadcast(tensor, devices) for tensor in tensors]
    return [list(on_device) for on_device in zip(*copies, strict=True)]
