"""Code that was ported before.

Where a branch, operand, entry or case for the NPU stands beside code for CUDA, that code is right as it is: changed,
it would do the NPU's work twice or shadow the branch that was written for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import libcst as cst

from migrator.guards import leaves, says_not

if TYPE_CHECKING:
    from migrator.context import FileContext

_NPU = re.compile(r"(?<![a-z])(npu|hccl|ascend)(?![a-z])", re.IGNORECASE)
_CUDA = re.compile(r"cuda|nccl|gpu", re.IGNORECASE)
_CUDA_CALL = re.compile(r"\bcuda\.(\w+)\(")


def ported_branch(file: FileContext, node: cst.CSTNode) -> bool:
    """Whether the code stands beside code for the NPU."""
    child = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, (cst.FunctionDef, cst.ClassDef)):
            return False
        if isinstance(parent, cst.If):
            found = _chain_names_npu(file, parent, child)
        elif isinstance(parent, (cst.IndentedBlock, cst.Module)):
            found = _statement_beside(file, child, parent.body)
        else:
            found = any(_NPU.search(file.tree.text(other)) for other in _beside(file, child, parent))
        if found:
            return True
        child = parent
    return False


def _chain_names_npu(file: FileContext, branch: cst.If, child: cst.CSTNode) -> bool:
    """Whether another branch of `if … elif … else …` is for the NPU, as seen from a test, a body or the else."""
    top = branch
    while isinstance(parent := file.tree.parents.get(top), cst.If) and parent.orelse is top:
        top = parent
    link: cst.If | cst.Else | None = top
    while isinstance(link, cst.If):
        # The branch's own test speaks of the branch itself, unless it says which device it is not.
        other = link is not branch or isinstance(child, cst.Else) or (child is link.body and says_not(link.test))
        if other and _NPU.search(file.tree.text(link.test)):
            return True
        link = link.orelse
    return False


def _statement_beside(file: FileContext, statement: cst.CSTNode, block: Iterable[cst.CSTNode]) -> bool:
    """Whether an `if` for the NPU in the same block leaves it before or as this statement does, or does the same."""
    before = True
    for other in block:
        if other is statement:
            before = False
        elif isinstance(other, cst.If) and not says_not(other.test) and _NPU.search(file.tree.text(other.test)):
            left = leaves(other.body)
            if left and (before or (isinstance(statement, cst.If) and leaves(statement.body))):
                return True
            call = isinstance(statement, cst.SimpleStatementLine) and _CUDA_CALL.search(file.tree.text(statement))
            if call and re.search(rf"npu\.{call[1]}\(", file.tree.text(other.body)):
                return True
    return False


def _beside(file: FileContext, child: cst.CSTNode, parent: cst.CSTNode) -> list[cst.CSTNode]:
    """What stands beside a part of an expression and says what the part is for."""
    if isinstance(parent, cst.BooleanOperation):
        found: list[cst.CSTNode] = [parent.left, parent.right]
    elif isinstance(parent, cst.IfExp):
        # A test speaks of what it guards: of the other branch where it says which device it is not.
        other, negated = parent.body if child is parent.orelse else parent.orelse, says_not(parent.test)
        found = [other, parent.test] if child is (parent.body if negated else parent.orelse) else [other]
    elif isinstance(parent, (cst.List, cst.Tuple, cst.Set)):
        found = list(parent.elements)
    elif isinstance(parent, cst.Dict) and isinstance(child, cst.DictElement) and _is_cuda(file, child.key):
        found = [e.key for e in parent.elements if isinstance(e, cst.DictElement)]
    elif isinstance(parent, cst.Call) and isinstance(child, cst.Arg) and _is_cuda(file, child.keyword):
        found = [arg.keyword for arg in parent.args if arg.keyword]
    elif isinstance(parent, cst.Match) and isinstance(child, cst.MatchCase):
        found = [case.pattern for case in parent.cases if case is not child]
    elif isinstance(parent, cst.Try) and isinstance(child, cst.ExceptHandler):
        imports = [*file.tree.all(cst.Import), *file.tree.all(cst.ImportFrom)]
        found = [statement for statement in imports if parent.body in file.tree.ancestors(statement)]
    else:
        found = []
    return [other for other in found if other is not child]


def _is_cuda(file: FileContext, key: cst.CSTNode | None) -> bool:
    return key is not None and _CUDA.search(file.tree.text(key)) is not None
