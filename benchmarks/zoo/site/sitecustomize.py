"""Runs at the start of every Python process of a recipe: lets torchvision work on the recipes' small data.

- The Python part of a torchvision wheel whose compiled part was built for another torch is of use without
  that part, but declares operators that only the compiled part has. Those declarations are skipped.
- The generated CIFAR-10 does not have the published checksums, so checksums are not looked at.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Loader(importlib.abc.Loader):
    """The real loader of torchvision, with something done before and after."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        import torch

        register = torch.library.register_fake
        torch.library.register_fake = _only_existing(register)
        try:
            self._real.exec_module(module)
        finally:
            torch.library.register_fake = register
        sys.modules["torchvision.datasets.utils"].check_md5 = lambda *_args, **_kwargs: True


def _only_existing(register: Callable[..., Any]) -> Callable[..., Any]:
    """torch.library.register_fake that leaves out operators of torchvision that were not loaded."""

    def register_existing(operator: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if isinstance(operator, str) and operator.startswith("torchvision::"):
            namespace, _, name = operator.partition("::")
            if not hasattr(getattr(torch.ops, namespace), name):
                return lambda function: function
        return register(operator, *args, **kwargs)

    return register_existing


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torchvision":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
