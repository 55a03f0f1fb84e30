"""Strings that Python or a type checker reads as code: annotations in quotes, and the names in `__all__`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from migrator.sinks import last_name

if TYPE_CHECKING:
    from migrator.context import FileContext

_TAKES_A_TYPE = frozenset({"cast", "TypeVar", "NewType", "ForwardRef"})
_NOT_A_TYPE = frozenset({"Literal", "Annotated"})
_FIRST_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


def is_annotation(file: FileContext, text: cst.CSTNode) -> bool:
    """Whether a string stands where a type is written."""
    for parent in file.tree.ancestors(text):
        if isinstance(parent, cst.Annotation):
            return True
        if isinstance(parent, cst.Call):
            return last_name(parent.func) in _TAKES_A_TYPE
        if isinstance(parent, cst.Subscript) and last_name(parent) in _NOT_A_TYPE:
            return False
        if isinstance(parent, (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Lambda)):
            return False
    return False


def names_in_text(file: FileContext) -> frozenset[str]:
    """The names of the file that its strings speak of: renamed, they would no longer be found."""
    exports = "__all__" in file.source.text
    read = [
        text for text in file.tree.all(cst.SimpleString)
        if is_annotation(file, text) or (exports and _is_exported(file, text))
    ]  # fmt: skip
    return frozenset(name for text in read for name in _FIRST_NAME.findall(str(text.evaluated_value)))


def _is_exported(file: FileContext, text: cst.CSTNode) -> bool:
    for parent in file.tree.ancestors(text):
        if isinstance(parent, cst.Assign):
            return any(last_name(target.target) == "__all__" for target in parent.targets)
        if isinstance(parent, (cst.AugAssign, cst.AnnAssign)):
            return last_name(parent.target) == "__all__"
    return False
