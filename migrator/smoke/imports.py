"""Imports every module of a tree, each in a process of its own."""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from migrator.discover import discover
from migrator.smoke import launcher

MODULE_SECONDS = 60
_IMPORTER = Path(__file__).parent / "hook" / "importer.py"
_ENDS_IMPORT = frozenset({"exit", "parse_args", "parse_known_args", "input", "setup", "backward", "step", "spawn"})
"""Calls at the top level that say: this file is a program, not a module."""


class Outcome(str, Enum):
    """What became of an import."""

    OK = "ok"
    SCRIPT = "script"
    """A program without a main guard: only its import statements were executed, and went well."""
    NEEDS = "needs a package"
    FAILED = "failed"


@dataclass(frozen=True)
class Imported:
    """One module: its file relative to the tree, what became of it, and in `detail` why.

    line  of the same tree where it went wrong, in `place`; None where that is not known
    """

    path: str
    outcome: Outcome
    detail: str = ""
    place: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class _Module:
    path: str
    name: str
    folder: str
    tree: ast.Module | None

    @property
    def work_line(self) -> int | None:
        """The line at which importing it would start work; None for a module."""
        return next(_work(self.tree), None) if self.tree else None


def check(root: Path, variables: Mapping[str, str], timeout: float | None, echo: bool = False) -> list[Imported]:
    """Import all modules below `root`; `timeout` limits the whole. Raises LaunchError."""
    modules = [_module(root, Path(file.display)) for file in discover([root]).files if file.path.suffix == ".py"]
    used = {name for module in modules for name in _imported_names(module)}
    started_at: dict[str, int] = {}
    work = []
    for module in modules:
        line = module.work_line if module.name not in used else None
        if line is not None:
            started_at[module.path] = line
        statements = _imports(module, line)
        work.append({"path": module.path, "name": module.name, "folder": module.folder, "statements": statements})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as request:
        json.dump({"root": str(root), "seconds": MODULE_SECONDS, "modules": work}, request)
        request.flush()
        run = launcher.run(
            [sys.executable, str(_IMPORTER), request.name],
            cwd=root,
            variables={**variables, "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=timeout,
            echo=echo,
        )
    answers = {answer["path"]: answer for answer in _answers(run.stdout)}
    own = {module.name.partition(".")[0] for module in modules}
    return [_outcome(module.path, answers.get(module.path), own, started_at, run) for module in modules]


def _answers(text: str) -> Iterator[dict[str, object]]:
    for line in text.splitlines():
        if line.startswith('{"path"'):
            yield json.loads(line)


def _outcome(
    path: str, answer: Mapping[str, object] | None, own: set[str], started_at: Mapping[str, int], run: launcher.Run
) -> Imported:
    if answer is None:
        reason = "the time limit ended the check" if run.exit_code is None else _last_line(run.stderr)
        return Imported(path, Outcome.FAILED, f"not reached: {reason}")
    missing = str(answer.get("missing") or "").partition(".")[0]
    place, line = str(answer["file"]) if answer.get("file") else None, answer.get("line")
    if missing and missing not in own:
        return Imported(path, Outcome.NEEDS, missing)
    if answer.get("error"):
        return Imported(path, Outcome.FAILED, str(answer["error"]), place, line if isinstance(line, int) else None)
    if path in started_at:
        what = f"starts work when it is imported (line {started_at[path]}), so only its imports were tried"
        return Imported(path, Outcome.SCRIPT, what)
    return Imported(path, Outcome.OK)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the process ended"


def _module(root: Path, path: Path) -> _Module:
    try:
        tree = ast.parse((root / path).read_bytes())
    except (SyntaxError, ValueError, OSError):
        tree = None  # importing it says what is wrong
    folder = path.parent
    while folder != Path() and (root / folder / "__init__.py").exists():
        folder = folder.parent
    if tree is not None and any(isinstance(node, ast.ImportFrom) and node.level for node in tree.body):
        folder = folder if folder != path.parent else Path()  # a namespace package
    parts = list(path.relative_to(folder).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return _Module(path.as_posix(), ".".join(parts), str(root / folder), tree)


def _imported_names(module: _Module) -> Iterator[str]:
    """Names of modules that a module imports, as far as they are absolute or beside it."""
    for node in ast.walk(module.tree) if module.tree else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.name.split(".")[: -node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _imports(module: _Module, line: int | None) -> list[str] | None:
    """The import statements of a program; None: import the whole module."""
    if module.tree is None or line is None:
        return None
    kinds = (ast.Import, ast.ImportFrom)
    found = [node for node in module.tree.body if isinstance(node, kinds)]
    return ["\n" * (node.lineno - 1) + ast.unparse(node) for node in found]


def _work(tree: ast.Module) -> Iterator[int]:
    """Lines at the top level that start a program's work."""
    own = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in tree.body:
        if isinstance(node, ast.While):
            yield node.lineno
        if isinstance(node, (ast.Expr, ast.Assign, ast.For, ast.With)):
            names = [_called(call) for call in ast.walk(node) if isinstance(call, ast.Call)]
            bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            first = _called(node.value) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else ""
            if _ENDS_IMPORT.intersection(names) or (bare and first in own):
                yield node.lineno


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def failed(results: Sequence[Imported]) -> list[Imported]:
    """Those that went wrong."""
    return [result for result in results if result.outcome is Outcome.FAILED]
