"""Imports that move to torch_npu, and how a migrated name is then spelled.

An import statement and the uses of what it binds change together or not at all: `from torch import cuda`
becomes `from torch_npu import npu` only if each `cuda.x` in the file is changed to an NPU counterpart: it has
one, no comment keeps it, and it guards nothing.  Otherwise the import stays, and the uses that can change spell
their new name in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from migrator.edits import Edit
from migrator.names import Binding, Reference, dotted
from migrator.texts import names_in_text

if TYPE_CHECKING:
    from migrator.context import FileContext
    from migrator.target import Target

CUDA, NPU, NPU_PACKAGE = "torch.cuda", "torch.npu", "torch_npu.npu"
MSTX = "torch.npu.mstx."  # nvtx's counterpart is a class, and nothing can be imported from a class


@dataclass(frozen=True)
class Move:
    """Where an imported thing moves: its new qualified name, and the name it is bound to afterwards."""

    qualified: str
    local: str

    @property
    def module(self) -> str:
        """The new name as an import statement spells it: `torch_npu.npu` is importable by itself."""
        return importable(self.qualified)


def importable(qualified: str) -> str:
    """torch.npu.x → torch_npu.npu.x: `torch.npu` is a module only once torch_npu has been imported."""
    return NPU_PACKAGE + qualified[len(NPU) :] if _below(qualified, NPU) else qualified


def destination(qualified: str, target: Target) -> str | None:
    """What a CUDA name becomes for the target, or None where nothing of the same meaning exists there."""
    if qualified == CUDA:
        return NPU
    row = target.mapping(qualified)
    if row is not None:
        renamed = row.kind.value == "rename" and row.npu is not None and target.can(row)
        return _attribute_style(row.npu) if renamed and row.npu else None
    parent, _, last = qualified.rpartition(".")
    if not _below(parent, CUDA):
        return None
    above = destination(parent, target)
    if above is None:
        return None
    found = f"{above}.{last}"
    # Below a class (Stream.priority_range) the data knows nothing; below a module it knows everything.
    return found if target.has(found) or _is_class(above) else None


def _is_class(qualified: str) -> bool:
    return qualified.rpartition(".")[2][:1].isupper()


def _attribute_style(qualified: str) -> str:
    return NPU + qualified[len(NPU_PACKAGE) :] if _below(qualified, NPU_PACKAGE) else qualified


def _below(qualified: str, module: str) -> bool:
    return qualified == module or qualified.startswith(module + ".")


def move_of(file: FileContext, binding: Binding) -> Move | None:
    """Where what this binding binds moves to; None: it stays."""
    known = file.memo(_known)
    if binding not in known:
        known[binding] = None  # an alias of an alias must not recurse for ever
        known[binding] = _move(file, binding)
    return known[binding]


def plan(file: FileContext, binding: Binding, move: Move) -> None:
    """Have a binding move as a rule knows it must, whatever the CUDA map says of each use."""
    file.memo(_known)[binding] = move


def _known(file: FileContext) -> dict[Binding, Move | None]:
    """The moves found so far in a file."""
    return {}


def _move(file: FileContext, binding: Binding) -> Move | None:
    qualified = file.names.meaning(binding)
    if qualified is None or qualified == "torch" or not qualified.startswith("torch."):
        return None
    if binding.qualified is not None and not binding.qualified.startswith("torch"):
        # Re-exported by another file of the repository, whose own import moves and keeps the name.
        new = destination(qualified, file.target)
        return Move(new, binding.name) if new else None
    new = destination(qualified, file.target) or _module_counterpart(file, qualified)
    if new is None or (binding.is_import and new.startswith(MSTX)):
        return None
    if not file.acts(binding):
        return None
    for use in file.names.uses(binding):
        found = destination(use.qualified, file.target)
        if found is None or not _below(found, new) or not file.acts(use):
            return None
    return Move(new, _local_name(file, binding, new))


def _module_counterpart(file: FileContext, qualified: str) -> str | None:
    """A module that has no row of its own kind but a counterpart for some of its names: nvtx → mstx."""
    row = file.target.mapping(qualified)
    if row is None or row.npu is None or row.kind.value != "manual" or not file.target.has(row.npu):
        return None
    names = [b for s in file.names.scopes() for bs in s.bindings.values() for b in bs if b.qualified == qualified]
    return row.npu if any(file.names.uses(b) for b in names) else None


def _local_name(file: FileContext, binding: Binding, new: str) -> str:
    """The new name, where nothing but plain uses in this file can know the old one."""
    name, new_last = binding.name, new.rpartition(".")[2]
    kept = (
        not isinstance(binding.node, cst.ImportAlias)
        or binding.node.asname is not None
        or isinstance(binding.scope.node, cst.ClassDef)
        or len(binding.scope.bindings[name]) > 1
        or any(name in scope.outer for scope in file.names.scopes())
        or name in file.memo(names_in_text)
        or file.project.is_imported_elsewhere(file.path, name)
        or file.names.is_bound(new_last)
    )
    return name if kept else new_last


def respell(file: FileContext, reference: Reference, node: cst.BaseExpression, qualified: str) -> list[Edit]:
    """The smallest edits that make `node` (the reference or the front of it) name something else.

    An empty list: no edit is needed, since the import that binds its root moves.
    """
    old = (dotted(node) or reference.root.value).split(".")
    new = _spelling(file, reference, qualified).split(".")
    if old == new:
        return []
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    if front == len(old) - back or front == len(new) - back:
        front = max(front - 1, 0)
        if front == len(old) - back or front == len(new) - back:
            back = max(back - 1, 0)
    tokens = _tokens(node)
    start, _ = file.tree.span(tokens[front])
    _, end = file.tree.span(tokens[len(old) - back - 1])
    return [Edit(start, end, ".".join(new[front : len(new) - back]))]


def _spelling(file: FileContext, reference: Reference, qualified: str) -> str:
    binding = reference.binding
    if binding is not None and reference.qualified:
        move = move_of(file, binding)
        if isinstance(binding.node, cst.ImportStar) and binding.qualified:
            if not binding.qualified.startswith("torch"):
                # Another file of the repository passes the name on, and keeps it when its own import moves.
                root = file.names.canonical(f"{binding.qualified}.{reference.root.value}")
                new = destination(root, file.target) or root
                return reference.root.value + qualified[len(new) :] if _below(qualified, new) else importable(qualified)
            return qualified.rpartition(".")[2] if move is not None else importable(qualified)
        if move is not None and _below(qualified, move.qualified):
            return move.local + qualified[len(move.qualified) :]
        base = file.names.meaning(binding)
        if move is None and base is not None and _below(qualified, base) and base != CUDA:
            return reference.root.value + qualified[len(base) :]
    return importable(qualified)


def _tokens(node: cst.BaseExpression) -> list[cst.Name]:
    found: list[cst.Name] = []
    current: cst.BaseExpression = node
    while isinstance(current, cst.Attribute):
        found.append(current.attr)
        current = current.value
    if isinstance(current, cst.Name):
        found.append(current)
    return found[::-1]
