"""Where `import torch_npu` goes.

Right after the top-level statement with the first torch import that runs (after the whole `try:` when torch
is imported in one; inside the block of an `if`, and then again behind the first import that runs without it),
never inside TYPE_CHECKING; in a file that imports torch only inside functions, into those functions; else behind
the imports that the file begins with, or below its docstring.  Where linters would take it out again, because
nothing else names it, it says that it is meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import libcst as cst

from migrator.context import FileContext
from migrator.edits import Edit
from migrator.names import dotted

PACKAGE = "torch_npu"
NOT_UNUSED = "  # noqa: F401"
Statement: TypeAlias = cst.Import | cst.ImportFrom


def place(file: FileContext, changed: Iterable[cst.CSTNode], edits: Sequence[Edit], required: bool) -> list[Edit]:
    """The edits that make torch_npu imported wherever `changed` nodes run.

    edits     what is changed in the file: an import statement may itself move to torch_npu
    required  also in a file that does not import torch itself (it names torch_npu or calls `.npu()`)
    """
    imports: list[Statement] = [*file.tree.all(cst.Import), *file.tree.all(cst.ImportFrom)]
    runs = [statement for statement in imports if _root_packages(statement) and not _type_checking(file, statement)]
    if any(PACKAGE in _root_packages(s) and _function(file, s) is None for s in runs):
        return []
    nodes = list(changed)
    torch: defaultdict[cst.CSTNode | None, list[cst.Import | cst.ImportFrom]] = defaultdict(list)
    for statement in runs:
        if "torch" in _root_packages(statement):
            torch[_function(file, statement)].append(statement)
    has_it = {_function(file, s) for s in runs if PACKAGE in _root_packages(s)}
    blocks = {None} if None in torch else {_function(file, node) for node in nodes}
    line = f"import {PACKAGE}" + (NOT_UNUSED if file.project.linted and not _names_it(file, edits) else "")
    inserted = [
        _after(file, statement, nodes, line)
        for block in blocks - has_it
        for statement in _first(file, torch.get(block, []))
        if not _moves(file, statement, edits)
    ]
    return [*inserted, _at_top(file, line)] if required and blocks - set(torch) else inserted


def _first(file: FileContext, statements: list[Statement]) -> Iterator[Statement]:
    """The imports that come first on some path through the `if` statements around them."""
    seen: list[tuple[tuple[str, bool], ...]] = []
    for statement in sorted(statements, key=file.tree.span):
        path = _conditions(file, statement)
        if not any(path[: len(before)] == before for before in seen):
            seen.append(path)
            yield statement


def _conditions(file: FileContext, statement: cst.CSTNode) -> tuple[tuple[str, bool], ...]:
    """The tests that lead to a statement, outermost first, each with its answer."""
    found: list[tuple[str, bool]] = []
    child = statement
    for parent in file.tree.ancestors(statement):
        if isinstance(parent, cst.If):
            found.append((file.tree.text(parent.test), child is parent.body))
        elif isinstance(parent, cst.FunctionDef):
            break
        child = parent
    return tuple(reversed(found))


def _moves(file: FileContext, statement: cst.CSTNode, edits: Sequence[Edit]) -> bool:
    """Whether an import of torch becomes one of torch_npu, and nothing else asks for that name."""
    start, end = file.tree.span(statement)
    end = file.source.past_comment(end)
    moves = any(PACKAGE in edit.text and start <= edit.start and edit.end <= end for edit in edits)
    return moves and not _names_it(file, edits)


def _names_it(file: FileContext, edits: Sequence[Edit]) -> bool:
    """Whether edits outside of import statements write `torch_npu.…`."""
    statements = (*file.tree.all(cst.Import), *file.tree.all(cst.ImportFrom))
    imports = [(first, file.source.past_comment(last)) for first, last in map(file.tree.span, statements)]
    return any(
        PACKAGE + "." in edit.text and not any(first <= edit.start and edit.end <= last for first, last in imports)
        for edit in edits
    )


def _root_packages(statement: Statement) -> set[str]:
    if isinstance(statement, cst.Import):
        return {(dotted(alias.name) or "").partition(".")[0] for alias in statement.names}
    return set() if statement.relative else {(dotted(statement.module) or "").partition(".")[0]}


def _function(file: FileContext, node: cst.CSTNode) -> cst.CSTNode | None:
    """The outermost function around a node: code below module level that runs later."""
    return next((a for a in reversed(list(file.tree.ancestors(node))) if isinstance(a, cst.FunctionDef)), None)


def _type_checking(file: FileContext, statement: cst.CSTNode) -> bool:
    child = statement
    for parent in file.tree.ancestors(statement):
        if isinstance(parent, cst.If) and "TYPE_CHECKING" in (test := file.tree.text(parent.test)):
            return (child is parent.body) != test.startswith("not ")
        child = parent
    return False


def _after(file: FileContext, statement: Statement, changed: Sequence[cst.CSTNode], line: str) -> Edit:
    """The import on a line of its own behind a statement, or behind the whole `try:` around it.

    On the statement's own line where something behind it on that line is changed.
    """
    anchor: cst.CSTNode = file.tree.parents[statement]
    for parent in file.tree.ancestors(statement):
        if isinstance(parent, (cst.Try, cst.TryStar)):
            anchor = parent
        elif isinstance(parent, cst.FunctionDef):
            break
    _, end = file.tree.span(statement)
    beside = any(anchor in file.tree.ancestors(node) and file.tree.span(node)[0] > end for node in changed)
    if isinstance(anchor, cst.SimpleStatementSuite) or (isinstance(anchor, cst.SimpleStatementLine) and beside):
        return Edit(end, end, f"; {line.partition('  #')[0]}")
    start, _ = file.tree.span(anchor)
    _, end = file.tree.span(_last_statement(anchor))
    return _new_line(file, end, _indent(file, start) + line)


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


def _new_line(file: FileContext, end: int, line: str) -> Edit:
    text, newline = file.source.text, file.source.newline
    while end < len(text) and (text[end] not in "\r\n" or text[end - 1] == "\\"):
        end += 1
    if end == len(text):
        return Edit(end, end, newline + line)
    end += 2 if text.startswith("\r\n", end) else 1
    return Edit(end, end, line + newline)


def _at_top(file: FileContext, line: str) -> Edit:
    """In a file that does not import torch: behind the imports that it begins with.

    Where it begins with none: below the docstring, else above the first statement, between blank lines.
    """
    body, newline, text = file.tree.module.body, file.source.newline, file.source.text
    imported, anchor = False, None
    for index, statement in enumerate(body):
        imports = _is_import(statement)
        if not imports and not (index == 0 and _is_docstring(statement)):
            break
        imported, anchor = imports, statement
    if anchor is not None:
        edit = _new_line(file, file.tree.span(anchor)[1], line)
        if imported:
            return edit
        after = newline if re.match(r"[^\r\n]", text[edit.end :]) else ""
        return Edit(edit.start, edit.end, newline + edit.text + after)
    starts = [*getattr(body[0], "decorators", ()), body[0]] if body else []
    first, _ = file.source.position(file.tree.span(starts[0])[0] if starts else 0)
    above = first
    while above > 1 and file.source.line_text(above - 1).startswith("#"):
        above -= 1
    heads_file = above == 1 and first > 1  # a licence, an encoding: no comment on the statement below it
    offset = sum(len(file.source.line_text(number)) for number in range(1, first if heads_file else above))
    return Edit(offset, offset, newline * heads_file + line + 2 * newline)


def _is_import(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and all(
        isinstance(part, (cst.Import, cst.ImportFrom)) for part in line.body
    )


def _is_docstring(line: cst.CSTNode) -> bool:
    first = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    return isinstance(first, cst.Expr) and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))
