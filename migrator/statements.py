"""Rewrites of whole statements that rules share: import statements, overrides, attribute look-ups by name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from migrator import moves
from migrator.edits import Edit
from migrator.names import Binding, dotted
from migrator.ported import ported_branch

if TYPE_CHECKING:
    from migrator.context import FileContext
    from migrator.match import Import, Match, Method, Name, Text


@dataclass
class Moved:
    """The names of an import statement that move, and the edits that move them."""

    names: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)


def rewrite_import(match: Import) -> tuple[Moved, list[str]]:
    """Edits for what an import statement binds, and the names that have to stay."""
    if isinstance(match.node, cst.Import):
        return _rewrite_import(match, match.node)
    return _rewrite_from(match, match.node)


def _rewrite_import(match: Import, statement: cst.Import) -> tuple[Moved, list[str]]:
    moved, stays = Moved(), []
    needless: list[cst.CSTNode] = []
    others = len(match.bindings) < len(statement.names)
    for binding in match.bindings:
        alias = binding.node
        assert isinstance(alias, cst.ImportAlias)
        if alias.asname is None:
            # `import torch.cuda` binds torch, and `import torch` gives all of it.
            moved.names.append(match.file.tree.text(alias.name))
            if (others or _has_own_line(match.file, statement)) and _is_imported_before(match.file, binding):
                needless.append(alias)
            else:
                moved.edits.append(match.replace(alias.name, "torch"))
            continue
        move = moves.move_of(match.file, binding)
        if move is None:
            stays.append(match.file.tree.text(alias.name))
            continue
        moved.names.append(match.file.tree.text(alias.name))
        if len(statement.names) == 1 and moves.destination(binding.qualified or "", match.file.target) is None:
            # mstx, the counterpart of the nvtx module, is a class.
            package, _, last = move.module.rpartition(".")
            moved.edits.append(match.replace(statement, f"from {package} import {_as(last, move.local)}"))
        else:
            moved.edits.append(match.replace(alias.name, move.module))
    if needless:
        moved.edits += drop_imported(match.file, needless)
    return moved, stays


def _is_imported_before(file: FileContext, binding: Binding) -> bool:
    """Whether the same name has been imported before in the same block, or in one around it."""
    tree, start = file.tree, file.tree.span(binding.node)[0]
    around = list(tree.ancestors(binding.node))
    return any(
        other.is_import and tree.span(other.node)[0] < start and _block(file, other.node) in around
        for other in binding.scope.bindings[binding.name]
    )


def _block(file: FileContext, node: cst.CSTNode) -> cst.CSTNode | None:
    return next((a for a in file.tree.ancestors(node) if isinstance(a, (cst.Module, cst.BaseSuite))), None)


def _rewrite_from(match: Import, statement: cst.ImportFrom) -> tuple[Moved, list[str]]:
    file, moved, stays = match.file, Moved(), []
    targets: dict[cst.CSTNode, moves.Move] = {}
    for binding in match.bindings:
        move = moves.move_of(file, binding)
        if move is None:
            stays.append(binding.name if binding.name != "*" else f"everything of {binding.qualified}")
        else:
            targets[binding.node] = move
            moved.names.append(f"{binding.qualified}" if binding.name != "*" else f"{binding.qualified}.*")
    if not targets:
        return moved, stays
    if isinstance(statement.names, cst.ImportStar):
        assert statement.module is not None
        return Moved(moved.names, [match.replace(statement.module, next(iter(targets.values())).module)]), stays
    parents = {move.module.rpartition(".")[0] for move in targets.values()}
    if len(targets) == len(statement.names) and len(parents) == 1 and statement.module is not None:
        moved.edits.append(match.replace(statement.module, parents.pop()))
        moved.edits += [edit for alias, move in targets.items() if (edit := _alias_edit(match, alias, move))]
    else:
        moved.edits += split_import(match, statement, targets)
    return moved, stays


def _alias_edit(match: Import, alias: cst.CSTNode, move: moves.Move) -> Edit | None:
    new = _as(move.module.rpartition(".")[2], move.local)
    return None if match.file.tree.text(alias) == new else match.replace(alias, new)


def _as(name: str, local: str) -> str:
    return name if name == local else f"{name} as {local}"


def split_import(match: Import, statement: cst.ImportFrom, targets: Mapping[cst.CSTNode, moves.Move]) -> list[Edit]:
    """Take the moved names out of the statement and import them in statements of their own behind it."""
    assert not isinstance(statement.names, cst.ImportStar)
    file = match.file
    by_module: dict[str, list[str]] = defaultdict(list)
    for move in targets.values():
        package, _, last = move.module.rpartition(".")
        by_module[package].append(_as(last, move.local))
    new = [f"from {package} import {', '.join(names)}" for package, names in by_module.items()]
    start, end = file.tree.span(statement)
    if all(alias in targets for alias in statement.names):
        return [Edit(start, end, file.source.joined(start, new))]
    added = file.source.joined(start, ["", *new])
    if not added.startswith(";"):
        end = file.source.past_comment(end)
    return [*_taken_out(file, statement.names, targets), Edit(end, end, added)]


def _taken_out(file: FileContext, names: Sequence[cst.ImportAlias], leaving: Container[cst.CSTNode]) -> list[Edit]:
    """Edits that take some names, but not all, out of an import statement; a comment goes with its name."""
    text, edits = file.source.text, []
    statement = file.tree.parents[names[0]]
    in_parentheses = isinstance(statement, cst.ImportFrom) and statement.lpar is not None
    for index, alias in enumerate(names):
        if alias not in leaving:
            continue
        start, end = file.tree.span(alias)
        first, rest = _line_start(text, start), _REST_OF_LINE.match(text, end)
        if in_parentheses and rest and not text[first:start].strip():
            start, end = first, rest.end()
        elif any(later not in leaving for later in names[index + 1 :]):
            end = file.tree.span(names[index + 1])[0]
        elif "#" not in text[file.tree.span(names[index - 1])[1] : start]:
            start = file.tree.span(names[index - 1])[1]
        edits.append(Edit(start, end, ""))
    return edits


_REST_OF_LINE = re.compile(r"[ \t]*,?[ \t]*(#[^\r\n]*)?(\r\n|\r|\n)")


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def is_stored(match: Method) -> bool:
    """Whether the attribute is assigned or deleted here, not read."""
    parent = match.parent()
    return isinstance(parent, (cst.AssignTarget, cst.Del, cst.AugAssign)) or (
        isinstance(parent, cst.AnnAssign) and parent.target is match.node
    )


def overriding_methods(file: FileContext, name: str) -> Iterator[tuple[str, cst.FunctionDef]]:
    """Methods of this name in classes that are Modules or Tensors: (class, method)."""
    for method in file.tree.all(cst.FunctionDef):
        if method.name.value != name:
            continue
        cls = file.tree.enclosing(method, cst.ClassDef, cst.FunctionDef)
        if isinstance(cls, cst.ClassDef) and is_torch_class(file, cls):
            yield cls.name.value, method


def is_torch_class(file: FileContext, cls: cst.ClassDef) -> bool:
    """Whether a class is a Module, a Tensor or the like."""
    bases = [dotted(base.value) or "" for base in cls.bases]
    return any(file.project.is_torch_class(base.rpartition(".")[2]) for base in bases)


def attribute_lookup(match: Text) -> str | None:
    """For the name in `getattr(x, "name")`: the qualified name of x, "" where x is no module, None elsewhere."""
    arg = match.parent()
    call = match.file.tree.parents.get(arg) if arg is not None else None
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        return None
    if call.func.value not in {"getattr", "hasattr"} or len(call.args) < 2 or call.args[1] is not arg:
        return None
    return match.file.names.resolve(call.args[0].value) or ""


def attribute_asked_for(match: Name) -> tuple[cst.SimpleString, bool] | None:
    """For the x in `getattr(x, "name")`: the string, and whether x may lack it (hasattr, or with a default)."""
    arg = match.parent()
    call = match.file.tree.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or len(call.args) < 2:
        return None
    text, asks = call.args[1].value, call.func.value in {"getattr", "hasattr"} and call.args[0] is arg
    if not asks or not isinstance(text, cst.SimpleString):
        return None
    return text, call.func.value == "hasattr" or len(call.args) > 2


def drop_arguments(file: FileContext, call: cst.Call, dropped: Sequence[cst.Arg]) -> list[Edit]:
    """Take arguments out of a call, each with the comma that stood before it (or behind it, for the first)."""
    args, edits = list(call.args), []
    spans = [file.tree.span(arg) for arg in args]
    if dropped and len(dropped) == len(args):
        return [Edit(spans[0][0], file.tree.span(call)[1] - 1, "")]
    for i, arg in enumerate(args):
        if arg not in dropped:
            continue
        start, end = spans[i]
        if all(before in dropped for before in args[:i]):
            end = spans[i + 1][0]
        elif "#" in file.source.text[spans[i - 1][1] : start]:
            # The comment belongs to the argument before: cut from the end of its line.
            start = max(file.source.text.rfind("\n", 0, start), spans[i - 1][1])
            end += isinstance(arg.comma, cst.Comma)
        else:
            start = spans[i - 1][1]
        edits.append(Edit(start, end, ""))
    return edits


def binding_value(match: Match, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a name was assigned, where it was assigned once; else the node itself."""
    if isinstance(node, cst.Name):
        values: list[Binding] = match.file.names.bindings_of(node)
        if len(values) == 1 and values[0].value is not None:
            return values[0].value
    return node


def is_integer(file: FileContext, node: cst.BaseExpression) -> bool:
    """Whether an expression surely is an integer: a literal, `int(…)`, or a name that is only assigned those."""
    if isinstance(node, cst.Integer):
        return True
    if isinstance(node, cst.Call):
        name = node.func.value if isinstance(node.func, cst.Name) else dotted(node.func) or ""
        return name == "int" or (isinstance(name, str) and name.endswith((".get_rank", ".current_device")))
    if isinstance(node, cst.Name):
        bindings = file.names.bindings_of(node)
        return bool(bindings) and all(
            isinstance(b.value, (cst.Integer, cst.Call)) and is_integer(file, b.value) for b in bindings
        )
    return False


def handler_of(match: Match) -> cst.ExceptHandler | None:
    """The except clause that catches just this name, where no later clause could have caught the rest."""
    handler = match.parent()
    if not isinstance(handler, cst.ExceptHandler) or handler.type is not match.node:
        return None
    whole = match.file.tree.parents[handler]
    if (
        not isinstance(whole, cst.Try)
        or whole.handlers[-1] is not handler
        or not isinstance(handler.body, cst.IndentedBlock)
    ):
        return None
    return handler


def first_line_edit(match: Match, handler: cst.ExceptHandler, lines: list[str]) -> Edit:
    """Lines in front of the first statement of a block; their own extra indentation in units of four blanks."""
    file, body = match.file, handler.body
    assert isinstance(body, cst.IndentedBlock)
    start, _ = file.tree.span(body.body[0])
    text = file.source.text
    indent = text[_line_start(text, start) : start]
    unit = body.indent or file.tree.module.default_indent
    shown = [line.replace("    ", unit, 1) if line.startswith("    ") else line for line in lines]
    return Edit(start, start, "".join(f"{line}{file.source.newline}{indent}" for line in shown))


def rename_imported(match: Import, names: Mapping[str, str]) -> tuple[list[Edit], list[str]]:
    """Edits that import another name of the same module, and what they rename."""
    edits: list[Edit] = []
    shown: list[str] = []
    for binding in match.bindings:
        alias, new = binding.node, names.get(binding.qualified or "")
        if isinstance(alias, cst.ImportAlias) and new is not None:
            edits.append(match.replace(alias.name, new.rpartition(".")[2]))
            shown.append(f"{binding.qualified} → {new}")
    return edits, shown


_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_AVAILABLE = re.compile(r"(?<!cuda\.is_)available|find_spec|installed|\bha(s|ve)_", re.IGNORECASE)


def falls_back(file: FileContext, node: cst.CSTNode) -> bool:
    """Whether an import may fail here: a `try:` passes over it, a test for the package stands before it, or a branch
    for the NPU beside it.
    """
    if ported_branch(file, node):
        return True
    child = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, cst.Try) and child is parent.body:
            if any(_passes_over(file, handler) for handler in parent.handlers):
                return True
        elif isinstance(parent, cst.If) and child is parent.body:
            if _AVAILABLE.search(file.tree.text(parent.test)):
                return True
        elif isinstance(parent, cst.FunctionDef):
            return False
        child = parent
    return False


def _passes_over(file: FileContext, handler: cst.ExceptHandler) -> bool:
    caught = [] if handler.type is None else list(file.tree.text(handler.type).strip("()").split(","))
    catches = handler.type is None or any(name.strip().rpartition(".")[2] in _IMPORT_ERRORS for name in caught)
    return catches and not any(handler in file.tree.ancestors(raised) for raised in file.tree.all(cst.Raise))


def drop_imported(file: FileContext, aliases: Sequence[cst.CSTNode]) -> list[Edit]:
    """Edits that take names out of one import statement, and the statement's line with the last of them."""
    statement = file.tree.parents[aliases[0]]
    assert isinstance(statement, (cst.Import, cst.ImportFrom)) and not isinstance(statement.names, cst.ImportStar)
    if all(alias in aliases for alias in statement.names):
        return [_without(file, statement)]
    return _taken_out(file, statement.names, aliases)


def _has_own_line(file: FileContext, statement: cst.CSTNode) -> bool:
    """Whether a statement shares its line with no other, and is not all of a block."""
    line = file.tree.parents[statement]
    block = file.tree.parents.get(line)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return alone and not (isinstance(block, cst.IndentedBlock) and len(block.body) == 1)


def _without(file: FileContext, statement: cst.CSTNode) -> Edit:
    """Delete a statement: its line where it has one of its own and is not all of a block, else `pass`."""
    start, end = file.tree.span(statement)
    if not _has_own_line(file, statement):
        return Edit(start, end, "pass")
    text = file.source.text
    first = _line_start(text, start)
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    end += 2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0
    return Edit(first, end, "")
