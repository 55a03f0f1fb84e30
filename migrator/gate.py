"""The last check before a change is kept: every NPU name that it writes exists in the target, and is bound.

A wrong row in the CUDA map, or a mistake in a user's own rule, must never reach the user's code.  The check
looks at the text around each edit, so that it also sees names of which an edit wrote only a part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from migrator.context import FileContext
from migrator.edits import Edit
from migrator.moves import NPU, NPU_PACKAGE

_BEFORE = re.compile(r"[\w.]*\Z")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_IMPORT = re.compile(r"(?:^|[;:]\s*|^\s+)(?:from\s+(?P<module>[\w.]+)\s+)?import\s+(?P<names>[\w., *(]+)", re.MULTILINE)
_WINDOW = 200  # characters on either side: longer dotted names do not occur


def invented(file: FileContext, text: str, start: int, edit: Edit, edits: Sequence[Edit]) -> str | None:
    """What is wrong with a name at an edit, or None.

    text   the file with all edits made
    start  where this edit's text begins in it
    edits  all edits of the round: the import of torch_npu may be one of them
    """
    end = start + len(edit.text)
    before = _BEFORE.search(text[max(start - _WINDOW, 0) : start])
    begin = start - len(before.group()) if before else start
    after = re.match(r"[\w.]*", text[end : end + _WINDOW])
    region = text[begin : end + (after.end() if after else 0)]
    statements = list(_IMPORT.finditer(_statement(text, start, end)))
    for statement in statements:
        if problem := _imported(file, statement):
            return problem
    if statements:
        return None
    bound = file.names.is_bound("torch_npu") or any("import torch_npu" in e.text for e in edits)
    for name in _NAME.findall(region):
        if problem := _problem(file, name):
            return problem
        if name.startswith("torch_npu.") and not bound and not _in_string(file, edit):
            return f"{name} is written where torch_npu is not imported"
    return None


def _in_string(file: FileContext, edit: Edit) -> bool:
    spans = (file.tree.span(text) for text in file.tree.all(cst.SimpleString))
    return any(start < edit.start and edit.end < end for start, end in spans)


def _statement(text: str, start: int, end: int) -> str:
    """The lines that an edit touches."""
    stop = text.find("\n", end)
    return text[text.rfind("\n", 0, start) + 1 : len(text) if stop < 0 else stop]


def _imported(file: FileContext, statement: re.Match[str]) -> str | None:
    module = statement["module"]
    for name in re.findall(r"([\w.]+)(?:\s+as\s+\w+)?", statement["names"]):
        full = f"{module}.{name}" if module else name
        if _is_npu(full) and not _exists(file, full):
            return f"{full} does not exist in torch_npu {file.target.torch_npu}"
    return None


def _problem(file: FileContext, name: str) -> str | None:
    root, _, rest = name.partition(".")
    bound = [b.qualified for b in file.names.module_scope.bindings.get(root, []) if b.qualified]
    full = f"{bound[0]}.{rest}" if bound and rest else name
    if not _is_npu(full):
        return None
    if not _exists(file, full):
        return f"{full} does not exist in torch_npu {file.target.torch_npu}"
    return None


def _is_npu(name: str) -> bool:
    return name.startswith((NPU + ".", "torch_npu."))


def _exists(file: FileContext, name: str) -> bool:
    """Whether a name exists; attributes of a class are only known by the class."""
    if name in (NPU_PACKAGE, "torch_npu") or file.target.has(name):
        return True
    parent = name.rpartition(".")[0]
    return parent.rpartition(".")[2][:1].isupper() and file.target.has(parent)
