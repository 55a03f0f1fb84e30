"""Everything that is known about the file in hand; what matches and the modules behind them work on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from migrator import api
from migrator.names import Binding, Names, Reference
from migrator.project import Project
from migrator.source import Source
from migrator.tree import Tree

if TYPE_CHECKING:
    from migrator.target import Target

T = TypeVar("T")


class FileContext:
    """One parsed file with its names, and the repository and target around it.

    acts    whether the active rules will change a use, or an import statement: nothing keeps it as it is
    """

    acts: Callable[[Reference | Binding], bool] = staticmethod(lambda _: True)

    def __init__(self, source: Source, path: str, target: Target, project: Project) -> None:
        self.source, self.path, self.target, self.project = source, path, target, project
        self.tree = Tree(source)
        self._memo: dict[Any, Any] = {}

    @cached_property
    def names(self) -> Names:
        """Scopes and references."""
        return Names(self.tree, self.path, self.project.canonical, self._star_names)

    def _star_names(self, module: str) -> frozenset[str] | None:
        return star_names(module) or self.project.passed_on(module) or None

    def memo(self, make: Callable[[FileContext], T]) -> T:
        """What `make` finds out about the file, found out once."""
        if make not in self._memo:
            self._memo[make] = make(self)
        found: T = self._memo[make]
        return found


@cache
def star_names(module: str) -> frozenset[str] | None:
    """The names that `from module import *` brings, as far as the CUDA map knows the module."""
    prefix = module + "."
    found = {row.cuda[len(prefix) :] for row in api.mappings() if row.cuda.startswith(prefix)}
    return frozenset(name for name in found if name.isidentifier() and not name.startswith("_")) or None
