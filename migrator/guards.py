"""Tests that guard CUDA-only machinery.

`if x.is_cuda:` around a call of a compiled CUDA plugin, a Triton kernel, `torch.version.cuda` parsing or
cuDNN must keep its `cuda`: renamed, it would send the NPU down that path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from migrator.names import Reference
from migrator.project import EXTENSION
from migrator.sinks import last_name, words_of
from migrator.tree import NodeT

if TYPE_CHECKING:
    from migrator.context import FileContext

# Packages and names that only work on NVIDIA hardware, whatever the device string says.
CUDA_ONLY = (
    "triton", "cupy", "cupyx", "pycuda", "numba.cuda", "bitsandbytes", "apex", "amp_C", "xformers", "flash_attn",
    "tensorrt", "torch2trt", "torch_tensorrt", "pynvml", "py3nvml", "nvidia", "transformer_engine",
    "torch.backends.cudnn.is_acceptable", "torch.utils.cpp_extension", "torch.cuda.get_arch_list",
    "torch.cuda.cudart", "transformers.BitsAndBytesConfig",
)  # fmt: skip
# None on an NPU: harmless in a log line, fatal where it is compared or taken apart.
_VERSIONS = ("torch.version.cuda", "torch.backends.cudnn.version")
# Works badly or not at all, but does not make an NPU's other work in the same place wrong.
_POOR = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.cuda.get_device_capability")
_HELPER_WORDS = frozenset(
    "to move batch send put on get is use set seed has with no check manual empty try".split()
)  # fmt: skip
_LOADS = re.compile(r"(load\w*|import_module|get_plugin)$")
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_NEGATIONS = (cst.NotEqual, cst.NotIn, cst.IsNot)


def cuda_only_reason(file: FileContext, node: cst.CSTNode) -> str | None:
    """Why a test that contains `node` must keep its `cuda`: what it guards, or None."""
    test, statement = _test_of(file, node)
    if test is None:
        return None
    for operand in _conjuncts(test):
        if not _contains(file, operand, node) and (found := _machinery(file, operand, (*CUDA_ONLY, *_POOR))):
            return f"the same test reads {found}"
    regions = list(_guarded(file, statement, node))
    for region in regions:
        if found := _machinery(file, region, CUDA_ONLY):
            return f"it guards {found}"
    for region in regions:
        if (found := _machinery(file, region, _POOR)) and not _works_on_device(file, region):
            return f"it guards {found}"
    return _spoken_of(file, statement, node)


def uses_cuda_only(file: FileContext) -> bool:
    """Whether the file imports anything that only works on NVIDIA hardware."""
    return any(_below(file.names.imported_name(binding), CUDA_ONLY) for binding in file.names.import_bindings)


def _spoken_of(file: FileContext, statement: cst.CSTNode, node: cst.CSTNode) -> str | None:
    """`if device != "cuda": return False` in a function that otherwise speaks of something CUDA-only.

    Its messages name a CUDA-only package, or it answers yes or no and asks for cuDNN on the way.
    """
    function = file.tree.enclosing(statement, cst.FunctionDef)
    left = isinstance(statement, cst.If) and _negated(file, node, statement) and leaves(statement.body)
    if function is None or not left:
        return None
    if _answers_yes_or_no(file, function):
        for reference in file.names.references:
            if reference.qualified.startswith("torch.backends.cudnn.") and _contains(file, function, reference.node):
                return "it guards cuDNN, which the same function asks for"
    for text in _inside(file, function, cst.SimpleString):
        for package in ("bitsandbytes", "xformers", "flash-attn", "flash_attn", "triton"):
            if package in text.value and isinstance(file.tree.enclosing(text, cst.Arg), cst.Arg):
                return f"it guards {package}, which the messages here speak of"
    return None


def _answers_yes_or_no(file: FileContext, function: cst.FunctionDef) -> bool:
    values = [r.value for r in file.tree.all(cst.Return) if file.tree.enclosing(r, cst.FunctionDef) is function]
    return bool(values) and all(isinstance(v, cst.Name) and v.value in ("True", "False") for v in values)


def says_not(test: cst.CSTNode) -> bool:
    """Whether a test is a negation: `not x`, `x != y`, `x not in y`."""
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not)
    comparisons = test.comparisons if isinstance(test, cst.Comparison) else ()
    return any(isinstance(target.operator, _NEGATIONS) for target in comparisons)


def _test_of(file: FileContext, node: cst.CSTNode) -> tuple[cst.CSTNode | None, cst.CSTNode]:
    """The whole test that a condition belongs to, and the statement or expression that it decides."""
    child = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, (cst.If, cst.While, cst.IfExp, cst.Assert)):
            return (child, parent) if child is parent.test else (None, parent)
        if isinstance(parent, cst.Decorator):
            return child, parent
        if isinstance(parent, (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Lambda)):
            # `use_kernel = x.is_cuda and …`: only the expression itself is decided here.
            return (child, parent) if isinstance(child, cst.BooleanOperation) else (None, parent)
        child = parent
    return None, node


def _conjuncts(test: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The operands of a test, down through and, or, not and the call around them."""
    if isinstance(test, cst.BooleanOperation):
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    elif isinstance(test, cst.UnaryOperation):
        yield from _conjuncts(test.expression)
    elif isinstance(test, cst.Call) and any(isinstance(a.value, cst.BooleanOperation) for a in test.args):
        for arg in test.args:
            yield from _conjuncts(arg.value)
    else:
        yield test


def _contains(file: FileContext, whole: cst.CSTNode, node: cst.CSTNode) -> bool:
    return whole is node or any(ancestor is whole for ancestor in file.tree.ancestors(node))


def _guarded(file: FileContext, statement: cst.CSTNode, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The code that runs when the test says CUDA."""
    if isinstance(statement, cst.IfExp):
        yield statement.orelse if _negated(file, node, statement) else statement.body
    elif isinstance(statement, (cst.If, cst.While)):
        if not _negated(file, node, statement):
            yield statement.body
        elif statement.orelse is not None:
            yield statement.orelse
        elif leaves(statement.body):
            yield from _following(file, statement)
    elif isinstance(statement, cst.Assert):
        yield from _following(file, statement)


def _negated(file: FileContext, node: cst.CSTNode, stop: cst.CSTNode) -> bool:
    negations = 0
    for parent in (node, *file.tree.ancestors(node)):
        if parent is stop:
            break
        negations += says_not(parent)
    return negations % 2 == 1


def leaves(body: cst.BaseSuite) -> bool:
    """Whether a block ends with return, raise, continue or break."""
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        return any(isinstance(part, _LEAVES) for part in last.body)
    return isinstance(last, _LEAVES)


def _following(file: FileContext, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    line = statement if isinstance(statement, cst.BaseCompoundStatement) else file.tree.parents[statement]
    block = file.tree.parents.get(line)
    if isinstance(block, (cst.IndentedBlock, cst.Module)) and not isinstance(block, cst.Module):
        body = list(block.body)
        yield from body[body.index(line) + 1 :]  # type: ignore[arg-type]


def _inside(file: FileContext, region: cst.CSTNode, node_type: type[NodeT]) -> Iterator[NodeT]:
    start, end = file.tree.span(region)
    for node in file.tree.all(node_type):
        if start <= file.tree.span(node)[0] < end:
            yield node


def _references(file: FileContext, region: cst.CSTNode) -> Iterator[Reference]:
    start, end = file.tree.span(region)
    return (r for r in file.names.references if start <= file.tree.span(r.root)[0] < end)


def _below(name: str, prefixes: tuple[str, ...]) -> str | None:
    return next((prefix for prefix in prefixes if name == prefix or name.startswith(prefix + ".")), None)


def _machinery(file: FileContext, region: cst.CSTNode, names: tuple[str, ...]) -> str | None:
    """The first of these names, or of the CUDA code that the repository compiles or writes itself, in a region."""
    for reference in _references(file, region):
        if found := _below(reference.qualified, names):
            return found
        if _below(reference.qualified, _VERSIONS) and _taken_apart(file, reference.node):
            return reference.qualified
        binding = reference.binding
        imported = binding.qualified or "" if binding is not None and binding.is_import else ""
        if not imported.startswith("torch.") and EXTENSION.fullmatch(imported):
            return f"the compiled extension {reference.root.value}"
    for call in _inside(file, region, cst.Call):
        root = call.func.value if isinstance(call.func, cst.Attribute) else None
        if isinstance(root, cst.Name) and _is_extension(file, root):
            return f"the compiled extension {root.value}"
        if (kernel := _kernel_class(file, call.func)) is not None:
            return f"the compiled kernel in {kernel}"
        name = last_name(call.func)
        if name != "cuda" and name.endswith("_cuda") and not words_of(name) & _HELPER_WORDS:
            return f"{name}()"
    return None


def _kernel_class(file: FileContext, function: cst.CSTNode) -> str | None:
    """The class that `Attention.apply(…)`, or `attend(…)` after `attend = Attention.apply`, runs a kernel of."""
    if isinstance(function, cst.Name):
        values = [binding.value for binding in file.names.bindings_of(function) if binding.value is not None]
        function = values[0] if len(values) == 1 else function
    if not isinstance(function, cst.Attribute) or function.attr.value != "apply":
        return None
    return name if (name := last_name(function.value)) in file.project.kernels else None


def _taken_apart(file: FileContext, node: cst.CSTNode) -> bool:
    """Whether a version is compared, indexed or parsed, not just shown."""
    for parent in file.tree.ancestors(node):
        if isinstance(parent, (cst.Comparison, cst.Subscript)):
            return True
        if isinstance(parent, cst.Attribute) or (
            isinstance(parent, cst.Call) and words_of(last_name(parent.func)) & {"version", "parse", "float", "int"}
        ):
            return True
        if not isinstance(parent, (cst.Call, cst.Arg)):
            return False
    return False


def _is_extension(file: FileContext, name: cst.Name) -> bool:
    """Whether a name is a compiled extension: named like one, and imported or loaded (no tensor called x_cuda)."""
    if not EXTENSION.fullmatch(name.value):
        return False
    bindings = file.names.bindings_of(name)
    return not bindings or any(
        b.is_import or (isinstance(b.value, cst.Call) and _LOADS.search(file.tree.text(b.value.func))) for b in bindings
    )


def _works_on_device(file: FileContext, region: cst.CSTNode) -> bool:
    """Whether the guarded code also does what an NPU can do as well, so that it must get there."""
    if any(r.qualified.startswith("torch.cuda.") and not _below(r.qualified, _POOR) for r in _references(file, region)):
        return True
    return any(
        node.attr.value in {"cuda", "to"} and isinstance(file.tree.parents.get(node), cst.Call)
        for node in _inside(file, region, cst.Attribute)
    )
