"""What the modules of a repository pass on from torch: imported names, aliases, star imports."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from migrator.names import module_name
from migrator.programs import absolute_module
from migrator.syntax import Syntax

_MAX_CHAIN = 8  # longer chains of re-exports than this are loops


def follow(exports: dict[str, str], qualified: str) -> str:
    """Where a name comes from in the end: `repo.amp.autocast` → `torch.cuda.amp.autocast`."""
    for _ in range(_MAX_CHAIN):
        if qualified in exports:
            qualified = exports[qualified]
            continue
        head, _, tail = qualified.rpartition(".")
        if head not in exports:
            break
        qualified = f"{exports[head]}.{tail}"
    return qualified


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Modules by the names that they have from the innermost folder that is no package: src.pkg.a → pkg.a.

    Programs start there, or have that folder on their path.  Names that several modules would have are left out.
    """
    full = {module_name(path): path for path in paths}
    packages = {module for module, path in full.items() if path.endswith("__init__.py")}
    found = {module: ".".join(_below_root(module.split("."), packages)) for module in full}
    times = Counter(found.values())
    return {module: short for module, short in found.items() if times[short] == 1 and short not in full}


def _below_root(parts: list[str], packages: set[str]) -> list[str]:
    start = len(parts) - 1
    while start and ".".join(parts[:start]) in packages:
        start -= 1
    return parts[start:]


@dataclass
class Exports:
    """Gathered file by file.

    sources  qualified name → what it is imported from or stands for
    stars    (module, module of which it imports everything)
    """

    sources: dict[str, str] = field(default_factory=dict)
    stars: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, found: Syntax) -> None:
        """Take in one file."""
        module = module_name(path)
        for statement in _statements(found.tree.body):
            if isinstance(statement, ast.ImportFrom):
                self._from(module, absolute_module(path, statement), statement.names)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.sources.setdefault(f"{module}.{alias.asname or name}", name)
            elif isinstance(statement, ast.Assign):
                self._alias(module, found, statement)

    def _from(self, module: str, source: str, names: list[ast.alias]) -> None:
        for alias in names:
            if alias.name == "*":
                self.stars.append((module, source))
            else:
                self.sources.setdefault(f"{module}.{alias.asname or alias.name}", f"{source}.{alias.name}")

    def _alias(self, module: str, found: Syntax, statement: ast.Assign) -> None:
        """`tc = torch.cuda`, the only assignment to `tc`."""
        target, value = statement.targets[0], statement.value
        parts: list[str] = []
        while isinstance(value, ast.Attribute):
            parts.insert(0, value.attr)
            value = value.value
        if not parts or not isinstance(value, ast.Name) or not isinstance(target, ast.Name):
            return
        stores = [n for n in found.all(ast.Name) if n.id == target.id and isinstance(n.ctx, ast.Store)]
        root = self.sources.get(f"{module}.{value.id}")
        if root is not None and len(stores) == 1:
            self.sources.setdefault(f"{module}.{target.id}", ".".join([root, *parts]))

    def resolved(self, short: dict[str, str]) -> dict[str, str]:
        """Everything that comes from torch in the end, by each of its names; `short` as of `short_names`."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        for qualified in self.sources:
            module, _, name = qualified.rpartition(".")
            if not name.startswith("_"):
                names[module].add(name)
        exports, full = dict(self.sources), {name: module for module, name in short.items()}
        for _ in range(_MAX_CHAIN if self.stars else 0):
            for module, source in self.stars:
                origin = full.get(source, source)
                exports.update((f"{module}.{name}", f"{origin}.{name}") for name in names[origin] - names[module])
                names[module] |= names[origin]
        for qualified in list(exports):
            module, _, name = qualified.rpartition(".")
            if module in short:
                exports[f"{short[module]}.{name}"] = exports[qualified]
        origins = {name: follow(exports, name) for name in exports}
        return {name: origin for name, origin in origins.items() if origin.partition(".")[0] == "torch"}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, conditional ones too, a `try:` before its handlers."""
    for statement in body:
        if isinstance(statement, (ast.Try, ast.If)):
            handlers = [part for handler in getattr(statement, "handlers", ()) for part in handler.body]
            yield from _statements([*statement.body, *statement.orelse, *handlers])
        else:
            yield statement
