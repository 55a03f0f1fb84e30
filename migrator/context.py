"""Everything that is known about the file in hand; what matches and the modules behind them work on."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING

from migrator import api
from migrator.names import Binding, Names
from migrator.project import Project
from migrator.roles import Roles
from migrator.source import Source
from migrator.tree import Tree

if TYPE_CHECKING:
    from migrator.moves import Move
    from migrator.target import Target


class FileContext:
    """One parsed file, with its names, its strings' roles, and the repository and target around it."""

    def __init__(self, source: Source, path: str, target: Target, project: Project) -> None:
        self.source, self.path, self.target, self.project = source, path, target, project
        self.tree = Tree(source)
        self.moves: dict[Binding, Move | None] = {}

    @cached_property
    def names(self) -> Names:
        """Scopes and references."""
        return Names(self.tree, self.path, self.project.canonical, star_names)

    @cached_property
    def roles(self) -> Roles:
        """What the file's strings are for."""
        return Roles(self)


@cache
def star_names(module: str) -> frozenset[str] | None:
    """The names that `from module import *` brings, as far as the CUDA map knows the module."""
    prefix = module + "."
    found = {row.cuda[len(prefix) :] for row in api.mappings() if row.cuda.startswith(prefix)}
    return frozenset(name for name in found if name.isidentifier() and not name.startswith("_")) or None
