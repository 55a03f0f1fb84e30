"""torch_npu's own operators (npu::, and atb:: for transformers): CPU references, or a refusal by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .dispatcher import implement, is_out, overload
from .kernels import Kernel, cpu_kernel
from .references import REFERENCES

# The wheel's own kernels do these on the host, or hand on to operators that have a reference.
_OWN_KERNELS = frozenset(
    {"empty_with_format", "empty_with_swapped_memory", "unsafe_empty_with_format"}
    | {"copy_memory_", "get_npu_format", "get_storage_size", "npu_change_data_ptr"}
    | {"dropout_with_byte_mask", "npu_ciou", "npu_format_cast"}
)
# Without a tensor among their arguments, these are chosen by their device.
_FACTORIES = ("npu::npu_dropout_gen_mask",)


def install(kernels: Iterable[str]) -> None:
    """Give every such operator among the registered kernels a reference or a refusal.

    Their autograd stays the wheel's, which calls the backward operators among them.
    """
    for name in [*_FACTORIES, *kernels]:
        operator = overload(name) if name.startswith(("npu::", "atb::")) else None
        if operator is not None and operator._schema.name.removeprefix("npu::") not in _OWN_KERNELS:
            key = "BackendSelect" if name in _FACTORIES else "PrivateUse1"
            implement(operator, _kernel(name, operator), key)


def _kernel(name: str, operator: torch._ops.OpOverload) -> Kernel:
    reference = REFERENCES.get(name)
    if reference is not None:
        return cpu_kernel(name, operator._schema, reference.function, reference.random)
    reference = REFERENCES.get(operator._schema.name)
    if reference is None:
        return _refusal(name)
    function = _into_out(reference.function) if is_out(operator) else reference.function
    return cpu_kernel(name, operator._schema, function, reference.random)


def _into_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference, with its result in the tensor `out`."""

    def write(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        result = function(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return write


def _refusal(name: str) -> Kernel:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} exists in torch_npu, but the emulated NPU has no CPU reference for it: "
            "run this part of the program on a real NPU"
        )

    return refuse
