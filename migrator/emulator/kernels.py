"""Makes NPU kernels out of CPU operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import rng
from .memory import CPU, as_cpu, follow, to_npu

Kernel = Callable[..., Any]

# Operators that may take tensors of the host or of several devices beside each other, as on a real NPU.
_MIXES_DEVICES = re.compile(
    r"(copy_|_to_copy|_copy_from.*|set_|is_set_to"
    r"|_has_compatible_shallow_copy_type|_local_scalar_dense|.*foreach.*|_amp_.*|_fused_.*"
    r"|_pack_padded_sequence(_backward)?|lstm|gru|rnn_tanh|rnn_relu)"
)
# Operators whose lists, which are indices, may hold tensors of the host.
_INDEXES = re.compile(r"index(_put_?)?|_index_put_impl_|_unsafe_index.*")
_PLAIN = frozenset({int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format})

# Which of an operator's results stays a tensor of the host.
_HOST_RESULT = {"_pack_padded_sequence": 1}


def cpu_kernel(name: str, schema: torch.FunctionSchema, operator: Callable[..., Any], random: bool = False) -> Kernel:
    """A kernel that runs `operator`, which takes and returns CPU tensors, on NPU tensors.

    The kernel lends it the NPU's memory as CPU tensors, and returns the NPU tensors that it was
    given where the operator returned (changed) arguments, and new ones for the rest. `random` operators
    draw from the NPU's generators. RuntimeError when the tensors are on different devices.
    """
    base = name.partition("::")[2].partition(".")[0]
    mixes = _MIXES_DEVICES.fullmatch(base) is not None
    indexes = _INDEXES.fullmatch(base) is not None
    host_result = _HOST_RESULT.get(base)
    mutates = schema.is_mutable
    outputs = [
        argument.name for argument in schema.arguments if argument.is_out and argument.type.kind() == "TensorType"
    ]
    written = [
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.is_write and argument.type.kind() == "TensorType"
    ]
    takes_generator = any(argument.name == "generator" for argument in schema.arguments)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # What is written to may lie in the memory of what is read; the operator's own check needs to see that.
        call = _Call(name, mixes, indexes, {} if written else None)
        lent = [value if type(value) in _PLAIN else call.lend(value) for value in args]
        named = {key: call.lend(value) for key, value in kwargs.items() if key != "pin_memory"} if kwargs else kwargs
        if call.device is not None and not mixes:
            # A host tensor without dimensions may be read, as a number, but not be written to.
            results = (args[place] if place < len(args) else kwargs[key] for place, key in written)
            if call.host is not None or any(result.is_cpu for result in results):
                raise call.mismatch(call.host or CPU)
        if random:
            result = rng.draw(operator, takes_generator, call.generator, call.target(), lent, named)
        elif outputs:
            result = call.growing(operator, outputs, lent, named)
        else:
            result = operator(*lent, **named)
        if mutates:
            for alias, tensor in call.lendings:
                follow(tensor, alias)
        if kwargs and kwargs.get("device") == CPU:
            return result
        if host_result is None:
            return call.hand_back(result)
        return tuple(value if i == host_result else call.hand_back(value) for i, value in enumerate(result))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if torch._C._get_tracing_state() is None and not torch._C._len_torch_function_stack():
            return run(args, kwargs)
        return _undisturbed(run, args, kwargs)

    kernel.__name__ = f"emulated_{base}"
    return kernel


def decomposition(operator: torch._ops.OpOverload, composite: str) -> Kernel:
    """A kernel that runs a composite operator as its parts, each on the NPU."""
    key = getattr(torch._C.DispatchKey, composite)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return operator._op_dk(key, *args, **kwargs)

    return kernel


def standard_autograd(operator: torch._ops.OpOverload) -> Kernel:
    """An autograd kernel (that takes the key set) differentiating an operator as on every other device."""
    keys = torch._C.DispatchKey

    def kernel(keyset: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        # AutogradOther has PyTorch's own formulas, and like AutogradPrivateUse1 leads on to the NPU's kernel.
        keyset = keyset.remove(keys.AutogradPrivateUse1).add(keys.AutogradOther)
        return operator.redispatch(keyset, *args, **kwargs)

    return kernel


def whole_on_cpu(operator: torch._ops.OpOverload) -> Kernel:
    """A kernel that copies to the CPU and back, both differentiably, for operators without a backward operator."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        device: torch.device | None = None

        def to_cpu(value: Any) -> Any:
            nonlocal device
            if isinstance(value, Tensor) and not value.is_cpu:
                device = value.device
                return value.to(CPU)
            return value

        args, kwargs = torch.utils._pytree.tree_map(to_cpu, (args, kwargs))
        result = operator(*args, **kwargs)
        return torch.utils._pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), result)

    return kernel


def _undisturbed(run: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a kernel whose inner operators no trace may record and no function mode may see."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with torch._C.DisableTorchFunction():
            return run(args, kwargs)
    finally:
        torch._C._set_tracing_state(state)


class _Call:
    """One call of a kernel: which NPU tensors are lent out as CPU tensors, and on which device."""

    __slots__ = ("device", "generator", "host", "indexes", "lendings", "mixes", "name", "requested", "storages")

    def __init__(self, name: str, mixes: bool, indexes: bool, storages: dict[int, Any] | None) -> None:
        self.name = name
        self.storages = storages
        self.mixes = mixes
        self.indexes = indexes
        self.lendings: list[tuple[Tensor, Tensor]] = []
        self.device: torch.device | None = None
        self.requested: torch.device | None = None
        self.host: torch.device | None = None
        self.generator: torch.Generator | None = None

    def lend(self, value: Any) -> Any:
        """The argument as the CPU operator is to see it."""
        if isinstance(value, Tensor):
            return self._lend_tensor(value)
        if isinstance(value, (list, tuple)):
            host = self.host
            lent = [item if type(item) in _PLAIN else self.lend(item) for item in value]
            if self.indexes:
                self.host = host
            return lent
        if isinstance(value, torch.device):
            if value.type == "npu":
                self.requested = _with_index(value)
                return CPU
        elif isinstance(value, torch.Generator) and value.device.type == "npu":
            self.generator = value
        return value

    def _lend_tensor(self, tensor: Tensor) -> Tensor:
        device = tensor.device
        if tensor.is_cpu:
            if tensor.dim():
                self.host = device
            return tensor
        if self.device is None:
            self.device = device
        elif device != self.device and not self.mixes:
            raise self.mismatch(device)
        alias = as_cpu(tensor, self.storages)
        self.lendings.append((alias, tensor))
        return alias

    def growing(self, operator: Callable[..., Any], outputs: list[str], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an operator that may have to enlarge its `outputs`, which the memory of an NPU tensor cannot do."""
        try:
            return operator(*args, **kwargs)
        except RuntimeError as error:
            if "not resizable" not in str(error):
                raise
        fresh = {name: torch.empty(0, dtype=kwargs[name].dtype, device=CPU) for name in outputs}
        for name, output in fresh.items():
            self.lendings = [(output if alias is kwargs[name] else alias, tensor) for alias, tensor in self.lendings]
        return operator(*args, **{**kwargs, **fresh})

    def mismatch(self, other: torch.device) -> RuntimeError:
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{self.device} and {other}! (when checking arguments of {self.name})"
        )

    def target(self) -> torch.device:
        """Where results belong."""
        return self.requested or self.device or _with_index(torch.device("npu"))

    def hand_back(self, value: Any) -> Any:
        """The result as the caller is to see it."""
        if isinstance(value, Tensor):
            for alias, tensor in self.lendings:
                if value is alias:
                    return tensor
            if value.layout not in (torch.strided, torch.sparse_coo) or value.is_quantized:
                kind = "quantized" if value.is_quantized else value.layout
                raise NotImplementedError(f"{self.name}: the emulated NPU has no reference for {kind} results")
            return to_npu(value, self.target())
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.hand_back, value))
        return value


def _with_index(device: torch.device) -> torch.device:
    return device if device.index is not None else torch.device("npu", torch.npu.current_device())
