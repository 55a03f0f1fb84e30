"""A wheel read as source: what each of its modules binds, and where a name is really defined.

Nothing is imported or executed; modules are parsed with ast when somebody asks for them.
"""

from __future__ import annotations

import ast
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

ROOT = "torch_npu"
NATIVE = "torch_npu._C"
"""The C extension: its content cannot be parsed, names imported from it are believed."""


class WheelError(Exception):
    """A file is no readable torch_npu wheel."""


@dataclass(frozen=True)
class Import:
    """``from module import attribute``, or ``import module`` when there is no attribute."""

    module: str
    attribute: str | None


Binding = ast.AST | Import


@dataclass(frozen=True)
class Definition:
    """Where a name ends after following imports and aliases inside the package."""

    kind: Literal["function", "class", "value", "module", "native"]
    module: str
    name: str
    node: ast.AST | None = None


@dataclass
class Module:
    """The module-level bindings of one file."""

    name: str
    tree: ast.Module
    is_package: bool
    bindings: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    exports: list[str] | None = None
    """``__all__``; not proof that a name is bound: some wheels list names that they do not have."""
    class_extras: dict[str, list[str]] = field(default_factory=dict)
    """Members added from outside the class body, as in ``mstx.annotate = annotate``."""

    def __post_init__(self) -> None:
        self._collect(self.tree.body, fallback=False)

    def _collect(self, statements: Iterable[ast.stmt], *, fallback: bool) -> None:
        for statement in statements:
            self._statement(statement, fallback=fallback)

    def _statement(self, node: ast.stmt, *, fallback: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bind(node.name, node, fallback)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node, fallback)
            case ast.AnnAssign() | ast.AugAssign():
                self._assign(node.target, node, fallback)
            case ast.Import():
                for alias in node.names:
                    module = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._bind(alias.asname or module, Import(module, None), fallback)
            case ast.ImportFrom():
                base = self._absolute(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(base)
                    else:
                        self._bind(alias.asname or alias.name, Import(base, alias.name), fallback)
            case ast.If():
                test = ast.unparse(node.test)
                if "TYPE_CHECKING" not in test and "__name__" not in test:
                    self._collect(node.body, fallback=fallback)
                self._collect(node.orelse, fallback=True)
            case ast.Try():
                self._collect(node.body, fallback=fallback)
                for handler in node.handlers:
                    self._collect(handler.body, fallback=True)
                self._collect(node.orelse + node.finalbody, fallback=fallback)
            case ast.With() | ast.For() | ast.While():
                self._collect(node.body, fallback=fallback)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.bindings.pop(target.id, None)

    def _bind(self, name: str, value: Binding, fallback: bool) -> None:
        if not (fallback and name in self.bindings):
            self.bindings[name] = value

    def _assign(self, target: ast.expr, node: ast.Assign | ast.AnnAssign | ast.AugAssign, fallback: bool) -> None:
        match target:
            case ast.Name(id="__all__"):
                self.exports = (self.exports or []) + strings(node.value)
            case ast.Name(id=name):
                self._bind(name, node, fallback)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self._assign(element, node, fallback)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                self.class_extras.setdefault(owner, []).append(attribute)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *filter(None, [node.module])])


def strings(node: ast.AST | None) -> list[str]:
    """The string constants inside a list, tuple, set or sum of them, in order."""
    if node is None:
        return []
    found = (n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [str(n.value) for n in found]


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` of a chain of attributes; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


class Package:
    """The torch_npu package inside a wheel file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise WheelError(f"{path.name} is not a readable wheel: {error}") from error
        self._files = {
            file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file
            for file in self._zip.namelist()
            if file.startswith(f"{ROOT}/") and file.endswith(".py")
        }
        if ROOT not in self._files:
            raise WheelError(f"{path.name} has no {ROOT}/__init__.py: it is no torch_npu wheel")
        self._modules: dict[str, Module] = {}

    def close(self) -> None:
        self._zip.close()

    @cached_property
    def version(self) -> str:
        """Version from the wheel's metadata."""
        metadata = next((f for f in self._zip.namelist() if f.endswith(".dist-info/METADATA")), None)
        if metadata is None:
            raise WheelError(f"{self.path.name} has no METADATA file")
        for line in self._read(metadata).decode("utf-8", "replace").splitlines():
            if line.startswith("Version:"):
                return line.partition(":")[2].strip()
        raise WheelError(f"{self.path.name} does not tell its version")

    def __contains__(self, module: str) -> bool:
        return module in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def module(self, name: str) -> Module:
        """The parsed module; raises WheelError when its source is damaged."""
        if name not in self._modules:
            file = self._files[name]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about escapes in somebody else's strings
                    tree = ast.parse(self._read(file))
            except (SyntaxError, ValueError) as error:
                raise WheelError(f"{self.path.name}: {file} cannot be parsed: {error}") from error
            self._modules[name] = Module(name, tree, file.endswith("/__init__.py"))
        return self._modules[name]

    def libraries(self) -> Iterator[bytes]:
        """Content of the shared libraries that hold torch_npu's own native code."""
        for file in sorted(self._zip.namelist()):
            stem = file.rpartition("/")[2]
            if file.startswith(f"{ROOT}/") and stem.startswith((f"lib{ROOT}.", "_C.")) and ".so" in stem:
                yield self._read(file)

    def declared_operators(self, *sections: str) -> set[str]:
        """Operators in these sections of the lists that the wheel's code generator worked from."""
        found: set[str] = set()
        for file in self._zip.namelist():
            if file.startswith(f"{ROOT}/csrc/aten/") and file.endswith(".yaml"):
                section = None
                for line in self._read(file).decode("utf-8", "replace").splitlines():
                    heading = re.fullmatch(r"(\w+):\s*", line)
                    entry = re.match(r"\s*- (\w+)(?:\.\w+)?\s*$|.*\bfunc: (\w+)", line)
                    if heading:
                        section = heading[1]
                    elif entry and section in sections:
                        found.add(entry[1] or entry[2])
        return found

    def _read(self, file: str) -> bytes:
        try:
            return self._zip.read(file)
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise WheelError(f"{self.path.name} is damaged at {file}: {error}") from error

    def visible(self, module: str) -> list[str]:
        """Names bound in a module, star imports included, in a stable order."""
        return sorted(self._visible(module, frozenset()))

    def _visible(self, module: str, seen: frozenset[str]) -> set[str]:
        if module in seen or module not in self:
            return set()
        content = self.module(module)
        names = set(content.bindings)
        for star in content.stars:
            if star in self:
                names |= self._starred(star, seen | {module})
        return names

    def _starred(self, module: str, seen: frozenset[str]) -> set[str]:
        names = self._visible(module, seen)
        exports = self.module(module).exports
        return {n for n in names if (n in exports if exports is not None else not n.startswith("_"))}

    def resolve(self, module: str, name: str) -> Definition | None:
        """Definition behind ``module.name``; None when it comes from outside torch_npu or does not exist."""
        return self._resolve(module, name, frozenset())

    def _resolve(self, module: str, name: str, seen: frozenset[tuple[str, str]]) -> Definition | None:
        if (module, name) in seen or module not in self:
            return None
        seen |= {(module, name)}
        content = self.module(module)
        binding = content.bindings.get(name)
        if binding is None:
            for star in content.stars:
                if star in self and name in self._starred(star, frozenset({module})):
                    return self._resolve(star, name, seen)
            submodule = f"{module}.{name}"
            return Definition("module", submodule, name) if submodule in self else None
        if isinstance(binding, Import):
            return self._imported(binding, name, seen)
        if isinstance(binding, ast.ClassDef):
            return Definition("class", module, name, binding)
        if isinstance(binding, ast.FunctionDef | ast.AsyncFunctionDef):
            return Definition("function", module, name, binding)
        alias = dotted(binding.value) if isinstance(binding, ast.Assign) else None
        target = self._dotted(module, alias, seen) if alias else None
        return target or Definition("value", module, name, binding)

    def _imported(self, binding: Import, name: str, seen: frozenset[tuple[str, str]]) -> Definition | None:
        if (binding.module + ".").startswith(NATIVE + "."):
            return Definition("native", binding.module, binding.attribute or name)
        if binding.module not in self:
            return None
        if binding.attribute is None:
            return Definition("module", binding.module, name)
        if binding.module == ROOT and binding.attribute == NATIVE.rpartition(".")[2]:
            return None
        return self._resolve(binding.module, binding.attribute, seen)

    def evaluate(self, module: str, expression: ast.AST) -> Definition | None:
        """Definition of an expression such as ``npu_config._npuConfig`` seen from a module."""
        path = dotted(expression)
        return self._dotted(module, path, frozenset()) if path else None

    def _dotted(self, module: str, path: str, seen: frozenset[tuple[str, str]]) -> Definition | None:
        if path.startswith(NATIVE + "."):
            return Definition("native", NATIVE, path.rpartition(".")[2])
        head, *rest = path.split(".")
        found = Definition("module", ROOT, ROOT) if head == ROOT else self._resolve(module, head, seen)
        # "from .npu_config import *" also makes npu_config itself an attribute of the package.
        if found is None and f"{module}.{head}" in self:
            found = Definition("module", f"{module}.{head}", head)
        for part in rest:
            if found is None or found.kind != "module":
                return None
            found = self._resolve(found.module, part, seen)
        return found
