"""What stands beside a string and says what it is: the `"cpu"` in `"cuda" if … else "cpu"` or `["cpu", "cuda"]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import libcst as cst

from migrator.sinks import SINKS, last_name

if TYPE_CHECKING:
    from migrator.context import FileContext


def reason(file: FileContext, node: cst.CSTNode, sink: str) -> str | None:
    """Why a value is a device (or backend) by what stands beside it, or None."""
    for other in (leaf for value in _beside(file, node) for leaf in _alternatives(value)):
        if isinstance(other, cst.SimpleString) and other.evaluated_value in SINKS[sink].siblings:
            return f"it stands beside {other.value}"
        if isinstance(other, cst.Call) and file.names.resolve(other.func) == "torch.device" and sink == "device":
            return "it stands beside a torch.device"
    return None


def literal_values(file: FileContext, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The values of the `Literal["cpu", "cuda"]` that a string stands in; none elsewhere."""
    index = file.tree.parents.get(node)
    whole = file.tree.parents[file.tree.parents[index]] if isinstance(index, cst.Index) else None
    if not isinstance(whole, cst.Subscript) or last_name(whole) != "Literal":
        return []
    return [element.slice.value for element in whole.slice if isinstance(element.slice, cst.Index)]


def _beside(file: FileContext, node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    parent = file.tree.parents.get(node)
    if isinstance(parent, cst.IfExp) and node is not parent.test:
        return [parent.orelse if node is parent.body else parent.body]
    if isinstance(parent, cst.BooleanOperation):
        return [parent.left, parent.right]
    if isinstance(parent, cst.Element) or (isinstance(parent, cst.DictElement) and node is parent.value):
        return [e.value for e in getattr(file.tree.parents[parent], "elements", ())]
    return literal_values(file, node)


def _alternatives(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The values that an expression may have: those of `a if x else b if y else c`, or the expression itself."""
    if isinstance(node, cst.IfExp):
        yield from _alternatives(node.body)
        yield from _alternatives(node.orelse)
    else:
        yield node
