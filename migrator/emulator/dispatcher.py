"""The few things that the emulator asks of PyTorch's dispatcher."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

_libraries: dict[str, Any] = {}


def implement(operator: torch._ops.OpOverload, kernel: Callable[..., Any], key: str, with_keyset: bool = False) -> None:
    """Register a kernel for a dispatch key in place of the one that is there, if any.

    It stays to the very end of the process. A torch.library.Library would take its kernels away in an
    exit handler, before those that the program registered first have run.
    """
    name, namespace = operator.name(), operator.namespace
    if namespace not in _libraries:
        _libraries[namespace] = torch._C._dispatch_library("IMPL", namespace, "", __file__, 0)
    _libraries[namespace].impl(name, key, kernel, with_keyset)


def overload(name: str) -> torch._ops.OpOverload | None:
    """The operator with a name such as aten::add.Tensor, or None when it has no schema."""
    namespace, _, rest = name.partition("::")
    base, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload_name or "default", None)


def overloads(name: str) -> list[torch._ops.OpOverload]:
    """All operators with a name such as aten::lstm."""
    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base)
    return [getattr(packet, overload_name) for overload_name in packet.overloads()]


def is_out(operator: torch._ops.OpOverload) -> bool:
    """Whether the operator writes to an argument called out."""
    return any(argument.is_out for argument in operator._schema.arguments)


@contextlib.contextmanager
def without_override_warnings() -> Iterator[None]:
    """Keep C++ from writing to stderr that kernels are overridden; it asks no Python warning filter."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
