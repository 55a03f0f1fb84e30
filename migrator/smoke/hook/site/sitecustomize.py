"""Python imports this at start-up when this folder is on PYTHONPATH.

It loads the hook under a name of its own, by location, and then hands on to the next sitecustomize on the path.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _install_hook() -> None:
    package = _HERE.parent
    spec = importlib.util.spec_from_file_location(
        "_npu_smoke", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is not None:
        _load(spec)
        importlib.import_module("_npu_smoke.start").install()


def _run_next_sitecustomize() -> None:
    folders = [Path(entry or ".").resolve() for entry in sys.path]
    behind = sys.path[folders.index(_HERE) + 1 :] if _HERE in folders else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None:
        _load(spec)


def _load(spec: importlib.machinery.ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if spec.loader is not None:
        spec.loader.exec_module(module)


_install_hook()
_run_next_sitecustomize()
