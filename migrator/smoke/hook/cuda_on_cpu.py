"""Lets code that hard-codes CUDA run on the CPU: the reference for what it computes.

"cuda" names the CPU, the functions of torch.cuda answer as if there were devices, nccl is gloo and autocast and
GradScaler work on the CPU. To code outside torch, tensors say that they are on "cuda:0", so that its branches
are those that it takes on a GPU. `.cuda()` returns the tensor itself, where a GPU would have a copy.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import cuda_functions
from .places import called_by_torch

_CPU = torch.device("cpu")
_CUDA_TYPE = re.compile(r"torch\.cuda\.(\w+Tensor)")
_NARROW = (torch.float16, torch.bfloat16)
_WIDE_IN_AUTOCAST = frozenset(
    (
        *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt"),
        *("sinh", "tan", "pow", "__pow__", "__rpow__", "square", "softplus", "layer_norm", "group_norm", "norm"),
        *("cosine_similarity", "kl_div", "logsumexp", "dist", "renorm", "prod", "softmax", "softmin", "log_softmax"),
        *("cumprod", "cumsum", "sum", "binary_cross_entropy_with_logits", "soft_margin_loss", "multi_margin_loss"),
    )
)
"""What autocast computes in float32 on CUDA and on the NPU, but not on the CPU."""
_modes: list[TorchFunctionMode] = []


def install(devices: int) -> None:
    """Make this process believe that it has that many CUDA devices. To be called once, after torch was imported."""
    cuda_functions.install(devices)
    mode = _OnCpu()
    mode.__enter__()
    _modes.append(mode)
    _tensors()
    _loading()
    _mixed_precision()
    _parallel()
    _distributed()


def _on_cpu(value: Any) -> Any:
    """A device argument with the CPU in place of CUDA; anything else as it is."""
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    return value


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Changes the device arguments of torch's functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = _CPU if _is_index(kwargs["device"]) else _on_cpu(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to:
            args = tuple(_CPU if place and _is_index(value) else _on_cpu(value) for place, value in enumerate(args))
        elif func is torch.Tensor.type:
            args = tuple(_CUDA_TYPE.sub(r"torch.\1", value) if isinstance(value, str) else value for value in args)
        if getattr(func, "__name__", None) in _WIDE_IN_AUTOCAST and torch.is_autocast_enabled("cpu"):
            args = tuple(_widened(value) for value in args)
        return func(*args, **kwargs)


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value


def _itself(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self


def _tensors() -> None:
    tensor, module = torch.Tensor, torch.nn.Module
    for owner in (tensor, module, torch.UntypedStorage, torch.TypedStorage):
        owner.cuda = _itself
    tensor.pin_memory = _itself
    tensor.record_stream = cuda_functions.nothing()
    tensor.get_device = cuda_functions.constant(0)
    tensor.device = _seen_from_outside(tensor.device, torch.device("cuda", 0))
    tensor.is_cuda = _seen_from_outside(tensor.is_cuda, True)
    move = module.to

    @functools.wraps(move)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_CPU if _is_index(value) else _on_cpu(value) for value in args)
        if "device" in kwargs:
            kwargs["device"] = _CPU if _is_index(kwargs["device"]) else _on_cpu(kwargs["device"])
        return move(self, *args, **kwargs)

    module.to = to


def _seen_from_outside(real: Any, pretended: Any) -> property:
    """A property with its real value for torch itself."""

    def value(self: Any) -> Any:
        true = real.__get__(self)
        return true if called_by_torch() or self.is_meta else pretended

    return property(value)


def _loading() -> None:
    load, set_device, init = torch.load, torch.set_default_device, torch.utils.data.DataLoader.__init__

    @functools.wraps(load)
    def load_on_cpu(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(file, "cpu" if map_location is not None else None, *args, **kwargs)

    class Generator(torch.Generator):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, _CPU if _is_index(device) else _on_cpu(device))

        def __init__(self, device: Any = "cpu") -> None:
            pass

    @functools.wraps(init)
    def without_pinning(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "pin_memory": False})

    torch.load = load_on_cpu
    torch.set_default_device = lambda device: set_device(_on_cpu(device))
    torch.Generator = Generator
    torch.utils.data.DataLoader.__init__ = without_pinning


def _mixed_precision() -> None:
    autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
    enter_region, make_scaler = autocast.__init__, scaler.__init__

    @functools.wraps(enter_region)
    def region(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        enter_region(self, device_type, dtype, *args, **kwargs)

    @functools.wraps(make_scaler)
    def scale(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        make_scaler(self, _on_cpu(device), *args, **kwargs)

    autocast.__init__ = region
    scaler.__init__ = scale


def _parallel() -> None:
    parallel = torch.nn.parallel
    make_distributed = parallel.DistributedDataParallel.__init__

    @functools.wraps(make_distributed)
    def distributed(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        make_distributed(self, module, None, None, *args, **kwargs)

    def data_parallel(self: Any, module: Any, *_args: Any, **_kwargs: Any) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.device_ids = []  # its forward hands over to the module then

    parallel.DistributedDataParallel.__init__ = distributed
    parallel.DataParallel.__init__ = data_parallel
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = classmethod(lambda _cls, module, *_args: module)


def _distributed() -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        return

    def with_gloo(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def run(*args: Any, **kwargs: Any) -> Any:
            args = tuple("gloo" if isinstance(value, str) and "nccl" in value.lower() else value for value in args)
            if "nccl" in str(kwargs.get("backend") or "").lower():
                kwargs["backend"] = "gloo"
            kwargs.pop("device_id", None)
            return make(*args, **kwargs)

        return run

    get_backend, barrier = distributed.get_backend, distributed.barrier

    @functools.wraps(get_backend)
    def backend(*args: Any, **kwargs: Any) -> Any:
        return get_backend(*args, **kwargs) if called_by_torch() else "nccl"

    @functools.wraps(barrier)
    def wait(*args: Any, **kwargs: Any) -> Any:
        return barrier(*args, **{**kwargs, "device_ids": None})

    distributed.init_process_group = with_gloo(distributed.init_process_group)
    distributed.new_group = with_gloo(distributed.new_group)
    distributed.get_backend = backend
    distributed.barrier = wait
    distributed.is_nccl_available = cuda_functions.constant(True)
