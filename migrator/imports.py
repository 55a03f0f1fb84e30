"""Where `import torch_npu` goes.

Right after the top-level statement with the first torch import that runs (after the whole `try:` when torch
is imported in one, inside the block of an `if`), never inside TYPE_CHECKING; in a file that imports torch
only inside functions, into those functions; else below `__future__` imports and the docstring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from migrator.context import FileContext
from migrator.edits import Edit
from migrator.names import dotted

PACKAGE = "torch_npu"


def place(file: FileContext, changed: Iterable[cst.CSTNode], edits: Sequence[Edit], required: bool) -> list[Edit]:
    """The edits that make torch_npu imported wherever `changed` nodes run.

    edits     what is changed in the file: an import statement may itself move to torch_npu
    required  also in a file that does not import torch itself (it names torch_npu or calls `.npu()`)
    """
    imports: list[cst.Import | cst.ImportFrom] = [*file.tree.all(cst.Import), *file.tree.all(cst.ImportFrom)]
    runs = [statement for statement in imports if _root_packages(statement) and not _type_checking(file, statement)]
    if any(PACKAGE in _root_packages(s) and _function(file, s) is None for s in runs):
        return []
    torch = [s for s in runs if "torch" in _root_packages(s)]
    top = next((s for s in torch if _function(file, s) is None), None)
    if top is not None:
        return [] if _moves(file, top, edits) else [_after(file, top)]
    blocks = {_function(file, node) for node in changed}
    local = [
        next(s for s in torch if _function(file, s) is function)
        for function in blocks
        if function is not None and any(_function(file, s) is function for s in torch)
    ]
    local = [
        s
        for s in local
        if not any(PACKAGE in _root_packages(o) and _function(file, o) is _function(file, s) for o in runs)
    ]
    covered = {_function(file, s) for s in torch}
    inserted = [_after(file, statement) for statement in local if not _moves(file, statement, edits)]
    return [*inserted, _below_docstring(file)] if required and blocks - covered else inserted


def _moves(file: FileContext, statement: cst.CSTNode, edits: Sequence[Edit]) -> bool:
    """Whether an import of torch becomes one of torch_npu, and nothing else asks for that name."""
    start, end = file.tree.span(statement)
    inside = [edit for edit in edits if start <= edit.start and edit.end <= end]
    named = any(PACKAGE + "." in edit.text for edit in edits if edit not in inside and "import " not in edit.text)
    return not named and any(PACKAGE in edit.text for edit in inside)


def _root_packages(statement: cst.Import | cst.ImportFrom) -> set[str]:
    if isinstance(statement, cst.Import):
        return {(dotted(alias.name) or "").partition(".")[0] for alias in statement.names}
    return set() if statement.relative else {(dotted(statement.module) or "").partition(".")[0]}


def _function(file: FileContext, node: cst.CSTNode) -> cst.CSTNode | None:
    """The outermost function around a node: code below module level that runs later."""
    return next((a for a in reversed(list(file.tree.ancestors(node))) if isinstance(a, cst.FunctionDef)), None)


def _type_checking(file: FileContext, statement: cst.CSTNode) -> bool:
    child = statement
    for parent in file.tree.ancestors(statement):
        if isinstance(parent, cst.If) and child is parent.body and "TYPE_CHECKING" in file.tree.text(parent.test):
            return True
        child = parent
    return False


def _after(file: FileContext, statement: cst.Import | cst.ImportFrom) -> Edit:
    """An import on a line of its own behind a statement, or behind the whole `try:` around it."""
    anchor: cst.CSTNode = file.tree.parents[statement]
    for parent in file.tree.ancestors(statement):
        if isinstance(parent, (cst.Try, cst.TryStar)):
            anchor = parent
        elif isinstance(parent, cst.FunctionDef):
            break
    if isinstance(anchor, cst.SimpleStatementSuite):
        _, end = file.tree.span(statement)
        return Edit(end, end, f"; import {PACKAGE}")
    start, _ = file.tree.span(anchor)
    _, end = file.tree.span(_last_statement(anchor))
    return _new_line(file, end, _indent(file, start))


def _last_statement(node: cst.CSTNode) -> cst.CSTNode:
    """The last simple statement inside a compound one: where its text ends before comments and blank lines."""
    if isinstance(node, (cst.Try, cst.TryStar)):
        last = node.finalbody or node.orelse or (node.handlers[-1] if node.handlers else node)
        return _last_statement(last.body) if last is not node else node
    if isinstance(node, cst.BaseSuite):
        return _last_statement(node.body[-1]) if node.body else node
    if isinstance(node, cst.If) and node.orelse is not None:
        return _last_statement(node.orelse)
    body = getattr(node, "body", None)
    return _last_statement(body) if isinstance(body, cst.BaseSuite) else node


def _indent(file: FileContext, offset: int) -> str:
    text = file.source.text
    line = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    return text[line:offset] if text[line:offset].isspace() else ""


def _new_line(file: FileContext, end: int, indent: str) -> Edit:
    text, newline = file.source.text, file.source.newline
    while end < len(text) and text[end] not in "\r\n":
        end += 1
    statement = f"{indent}import {PACKAGE}"
    if end == len(text):
        return Edit(end, end, newline + statement)
    end += 2 if text.startswith("\r\n", end) else 1
    return Edit(end, end, statement + newline)


def _below_docstring(file: FileContext) -> Edit:
    anchor: cst.CSTNode | None = None
    for index, line in enumerate(file.tree.module.body):
        if not isinstance(line, cst.SimpleStatementLine):
            break
        first = line.body[0]
        docstring = (
            index == 0
            and isinstance(first, cst.Expr)
            and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))
        )
        future = isinstance(first, cst.ImportFrom) and dotted(first.module) == "__future__"
        if not docstring and not future:
            break
        anchor = line
    if anchor is not None:
        return _new_line(file, file.tree.span(anchor)[1], "")
    start = file.tree.span(file.tree.module.body[0])[0] if file.tree.module.body else 0
    return Edit(start, start, f"import {PACKAGE}{file.source.newline}")
