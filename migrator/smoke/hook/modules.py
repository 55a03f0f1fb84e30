"""Names of modules and parameters, and the outputs of modules in the first steps."""

from __future__ import annotations

import weakref
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from .settings import Settings
from .summaries import name_of, norm, tensors_in, thinned
from .writer import Writer

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
MAX_RECORDS = 20_000
MAX_ELEMENTS = 1 << 20
"""Of a saved tensor; larger ones are thinned."""
MAX_BYTES = 256 << 20
"""Of all saved tensors of a process."""


class Modules:
    """Knows every module that ran, and records what it returned.

    Names are those of `named_modules`, behind the class of the outermost module: `Net.layer1.conv`. They are the
    same in a wrapper for several devices, which the code for one kind of device may have and for another not.
    """

    def __init__(self, settings: Settings, writer: Writer) -> None:
        self._settings = settings
        self._writer = writer
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self._roots: list[tuple[weakref.ref[nn.Module], str]] = []
        self._calls: dict[tuple[int, str], int] = {}
        self._records = 0
        self._bytes = 0
        self.step = 0
        """How many backward passes were done."""

    def before(self, module: nn.Module, _inputs: Any) -> None:
        """A global forward pre-hook: outer modules come first, so an unknown one is an outermost one."""
        self._name(module)

    def after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A global forward hook: inner modules come first."""
        if self._records >= MAX_RECORDS or _is_traced():
            return
        name = self._name(module)
        outputs = list(tensors_in(output))
        if not outputs:
            return
        self._records += 1
        call = self._calls.get((self.step, name), 0)
        self._calls[self.step, name] = call + 1
        event: dict[str, Any] = {
            "step": self.step,
            "call": call,
            "name": name,
            "type": type(module).__name__,
            "dtype": name_of(outputs[0].dtype),
            "norms": [norm(tensor) for tensor in outputs],
            "inputs": [norm(tensor) for tensor in tensors_in(inputs)],
        }
        if self._is_chosen(module, name):
            event["file"] = self._save(inputs, outputs)
        self._writer.write("module", **event)

    def parameter_names(self) -> dict[int, str]:
        """id of a parameter → its name, for all modules that ran and are alive."""
        names: dict[int, str] = {}
        for reference, root in self._roots:
            module = reference()
            if module is not None:
                for name, parameter in module.named_parameters():
                    names.setdefault(id(parameter), f"{root}.{name}")
        return names

    def _name(self, module: nn.Module) -> str:
        known = self._names.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        if isinstance(module, _WRAPPERS):
            name = f"{type(module).__name__} of {self._name(module.module)}"
            self._names[id(module)] = weakref.ref(module), name
            return name
        root = type(module).__name__
        alike = sum(name.partition("#")[0] == root for _, name in self._roots)
        root += f"#{alike + 1}" if alike else ""
        self._roots.append((weakref.ref(module), root))
        for name, inner in module.named_modules():
            self._names[id(inner)] = weakref.ref(inner), f"{root}.{name}" if name else root
        return root

    def _is_chosen(self, module: nn.Module, name: str) -> bool:
        pattern = self._settings.modules
        if pattern is None or self._bytes >= MAX_BYTES:
            return False
        if not pattern:
            return next(module.children(), None) is None
        return fnmatchcase(name, pattern) or fnmatchcase(type(module).__name__, pattern)

    def _save(self, inputs: Any, outputs: list[Tensor]) -> str:
        saved = {
            "inputs": [thinned(tensor, MAX_ELEMENTS) for tensor in tensors_in(inputs)],
            "outputs": [thinned(tensor, MAX_ELEMENTS) for tensor in outputs],
        }
        self._bytes += sum(tensor.nbytes for tensors in saved.values() for tensor in tensors)
        folder = self._writer.stem.with_suffix(".modules")
        folder.mkdir(exist_ok=True)
        path = folder / f"{self._records:06}.pt"
        torch.save(saved, path)
        return f"{folder.name}/{path.name}"


def _is_traced() -> bool:
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return torch._C._get_tracing_state() is not None or bool(compiling and compiling())
