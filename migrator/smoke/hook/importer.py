"""python importer.py REQUEST: import the modules that a JSON file names, each in a fork of this process.

torch_npu is loaded once, beforehand, and hidden from each module until that imports it itself. Writes one JSON
object a line for each module.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    """Import all modules of the request."""
    request = json.loads(Path(sys.argv[1]).read_text())
    sys.path.pop(0)  # this folder
    try:
        import torch
        import torch_npu  # noqa: F401
    except ImportError:
        pass
    else:
        sys.meta_path.insert(0, _Hidden(torch))
    for module in request["modules"]:
        answer = _in_fork(module, request["root"], request["seconds"])
        print(json.dumps({"path": module["path"], **answer}), flush=True)


class _Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Takes torch_npu away as if it had not been imported, and gives it back when it is."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._npu = torch.npu
        del torch.npu
        names = [name for name in sys.modules if name.startswith(("torch_npu.", "torch.npu.")) or name == "torch.npu"]
        self._modules = {name: sys.modules.pop(name) for name in ["torch_npu", *names]}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_npu":
            return None
        sys.meta_path.remove(self)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._modules["torch_npu"]

    def exec_module(self, module: ModuleType) -> None:
        sys.modules.update(self._modules)
        self._torch.npu = self._npu


def _in_fork(module: dict[str, Any], root: str, seconds: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        answer = _import(module, root)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    text = _read(reading, seconds)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text is None:
        return {"error": f"still running after {seconds:g} seconds"}
    if not text:
        code = os.waitstatus_to_exitcode(status)
        return {"error": f"ended the process with signal {-code}" if code < 0 else f"ended the process with {code}"}
    return dict(json.loads(text))


def _read(pipe: int, seconds: float) -> str | None:
    """All that the child writes; None when it takes too long."""
    deadline = time.monotonic() + seconds
    text = b""
    with os.fdopen(pipe, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = file.read(1 << 16)
            if not part:
                return text.decode()
            text += part
    return None


def _import(module: dict[str, Any], root: str) -> dict[str, Any]:
    sys.path[:0] = list(dict.fromkeys([module["folder"], root]))
    path = Path(root, module["path"])
    sys.argv = [str(path)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        if module["statements"] is None:
            importlib.import_module(module["name"])
        else:
            names: dict[str, Any] = {"__name__": module["name"], "__file__": str(path)}
            for statement in module["statements"]:
                exec(compile(statement, str(path), "exec"), names)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _describe(error, root)
    return {}


def _describe(error: BaseException, root: str) -> dict[str, Any]:
    """The error with the innermost line in the tree."""
    message = str(error).strip().partition("\n")[0]
    answer: dict[str, Any] = {"error": f"{type(error).__name__}: {message}"}
    if isinstance(error, SystemExit):
        answer["error"] = f"exits when it is imported (code {error.code})"
    if isinstance(error, ModuleNotFoundError):
        answer["missing"] = error.name
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    for filename, line in reversed(places):
        if filename.startswith(root + os.sep):
            return {**answer, "file": os.path.relpath(filename, root), "line": line}
    return answer


if __name__ == "__main__":
    main()
