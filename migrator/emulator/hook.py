"""Puts the emulator under torch_npu at the moment when torch_npu is imported."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import io
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

from . import check, requirements, stubs
from .errors import EmulatorError

_CANN_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")


def install() -> None:
    """Arrange for the next import of torch_npu to be emulated."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_npu":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            check()
        except EmulatorError as error:
            raise ImportError(str(error)) from error
        wheel = requirements.require_wheels()
        for name in _CANN_VARIABLES:  # a real CANN must not mix with the stand-ins
            os.environ.pop(name, None)
        stubs.load_libraries(stubs.library_dir(wheel))
        with _without_warning_about_cann():
            self._loader.exec_module(module)
        from . import activate

        activate.activate()


@contextlib.contextmanager
def _without_warning_about_cann() -> Iterator[None]:
    """Drop the line that the wheel prints to stdout when there is no CANN: here that is the point."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        for line in printed.getvalue().splitlines(keepends=True):
            if "ASCEND_HOME_PATH" not in line:
                sys.stdout.write(line)
