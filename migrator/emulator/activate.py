"""Puts CPU operators under the NPU's dispatch keys of a torch_npu that has just been imported."""

from __future__ import annotations

import torch

from . import collectives, operators, precision
from .dispatcher import implement, is_out, overload, overloads, without_override_warnings
from .kernels import cpu_kernel, decomposition, standard_autograd, whole_on_cpu
from .references import REFERENCES

# Allocation, metadata and the like: the wheel's own kernels do these without launching anything, and
# have rules that the CPU does not have, such as no channels_last and no conversion to float64.
_OWN_KERNELS = frozenset(
    {"_conj", "_neg_view", "_reshape_alias", "alias", "as_strided", "contiguous", "detach", "imag", "lift", "real"}
    | {"unfold", "view", "view.dtype", "view_as_complex", "view_as_real"}
    | {"empty.memory_format", "empty.names", "empty_strided", "empty_with_format", "unsafe_empty_with_format"}
    | {"_to_copy", "as_strided_", "empty_like", "full", "new_empty_strided", "resize_as_"}
    | {"_has_compatible_shallow_copy_type", "equal_", "is_pinned", "is_set_to", "record_stream"}
    | {"_copy_from_and_resize", "_pin_memory", "_resize_output_", "pin_memory", "resize_", "storage_resize_"}
    | {"set_", "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor"}
)
# The NPU's parts of these differ from the CPU's, so they run as wholes.
_RECURRENT = frozenset({"gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_tanh"})
_FUSED_CELLS = frozenset({"_thnn_fused_gru_cell", "_thnn_fused_lstm_cell"})
# Operators on sparse (COO) tensors that the wheel launches; it does the others with operators on their parts.
_SPARSE = ("aten::_coalesce",)
_NPU, _NPU_AUTOGRAD, _SPARSE_NPU = "PrivateUse1", "AutogradPrivateUse1", "SparsePrivateUse1"


def activate() -> None:
    """Replace the wheel's kernels. To be called once, right after torch_npu was imported."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    kernels, autograd = registered(_NPU), frozenset(registered(_NPU_AUTOGRAD))
    with without_override_warnings():
        for name in kernels:
            if name.startswith("aten::"):
                _replace(name, name in autograd)
        for base in sorted(_RECURRENT):
            for operator in filter(lambda operator: not is_out(operator), overloads(f"aten::{base}")):
                for key in (_NPU, _NPU_AUTOGRAD):
                    implement(operator, whole_on_cpu(operator), key)
        for name in _SPARSE:
            operator = overload(name)
            if operator is not None:
                implement(operator, cpu_kernel(name, operator._schema, precision.widened(operator)), _SPARSE_NPU)
        operators.install(kernels)
        collectives.install(kernels)


def _replace(name: str, has_autograd: bool) -> None:
    operator = overload(name)
    if operator is None or _is_view(operator) or name.removeprefix("aten::") in _OWN_KERNELS:
        return
    base = name.removeprefix("aten::").partition(".")[0]
    if base in _RECURRENT | _FUSED_CELLS:
        return
    reference = REFERENCES.get(name)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    if composite and reference is None:
        for key in (_NPU, _NPU_AUTOGRAD) if has_autograd else (_NPU,):
            implement(operator, decomposition(operator, "CompositeImplicitAutograd"), key)
        return
    if base == "convolution":  # torch.jit.trace records its only part, _convolution, in its place
        implement(operator, decomposition(operator, "CompositeExplicitAutograd"), _NPU)
        return
    function = reference.function if reference is not None else precision.widened(operator)
    random = torch.Tag.nondeterministic_seeded in operator.tags
    kernel = cpu_kernel(name, operator._schema, function, random)
    implement(operator, kernel, _NPU)
    if has_autograd and composite:  # its standard autograd would be its parts; one with a reference has no gradient
        implement(operator, kernel, _NPU_AUTOGRAD)
    elif has_autograd:
        implement(operator, standard_autograd(operator), _NPU_AUTOGRAD, with_keyset=True)


def _is_view(operator: torch._ops.OpOverload) -> bool:
    return any(result.alias_info is not None and not result.alias_info.is_write for result in operator._schema.returns)
