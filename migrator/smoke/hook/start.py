"""Puts the hook under torch at the moment when torch is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import random
import sys
from collections.abc import Sequence
from types import ModuleType

from .settings import Settings, from_environment


def install() -> None:
    """Arrange for the next import of torch to be hooked; nothing when the process is not part of a run."""
    settings = from_environment()
    if settings is not None:
        sys.meta_path.insert(0, _Finder(settings))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._settings)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, settings: Settings) -> None:
        self._loader = loader
        self._settings = settings

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _after_torch(self._settings)


def _after_torch(settings: Settings) -> None:
    if settings.transfer:
        import torch_npu  # noqa: F401
        from torch_npu.contrib import transfer_to_npu  # noqa: F401
    if settings.cuda_devices:
        from . import cuda_on_cpu

        cuda_on_cpu.install(settings.cuda_devices)
    if settings.seed is not None:
        _seed(settings.seed)
    from . import recorder

    recorder.install(settings)


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)
