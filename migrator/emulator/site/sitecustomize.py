"""Python imports this at start-up when the emulator's folder is on PYTHONPATH.

It loads the emulator under a name of its own, by location: the program that runs needs neither this
package on its path nor a free name `migrator`. Then it hands on to the sitecustomize that the
environment already had, if any.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _install_emulator() -> None:
    package = _HERE.parent
    spec = importlib.util.spec_from_file_location(
        "_npu_emulator", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is not None:
        _load(spec)
        importlib.import_module("_npu_emulator.hook").install()


def _run_next_sitecustomize() -> None:
    path = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None:
        _load(spec)


def _load(spec: importlib.machinery.ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if spec.loader is not None:
        spec.loader.exec_module(module)


_install_emulator()
_run_next_sitecustomize()
