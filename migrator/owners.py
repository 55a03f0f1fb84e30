"""Who owns this `.cuda`?  torch, a class of the user's own, an options object, or another library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import libcst as cst

from migrator.names import Binding

if TYPE_CHECKING:
    from migrator.context import FileContext


class OwnerKind(Enum):
    """Who gives an attribute its meaning."""

    TORCH = "torch"  # a tensor, module, storage …; also what nothing speaks against
    USER = "user"  # a class or attribute of the repository itself
    OPTION = "option"  # a field of an options object: args.cuda
    LIBRARY = "library"  # numba.cuda, cupy.cuda, …


@dataclass(frozen=True)
class Owner:
    """An owner and the name that a report gives it (a class, an object, a library)."""

    kind: OwnerKind
    name: str = ""


_TORCH = Owner(OwnerKind.TORCH)
# Their tensors have a `.cuda()` of their own.
OTHER_FRAMEWORKS = frozenset("caffe2 cupy jax jittor megengine mxnet oneflow paddle tensorflow".split())
_OPTION_WORDS = frozenset(
    [
        "args",
        "arg",
        "opt",
        "opts",
        "options",
        "option",
        "cfg",
        "config",
        "conf",
        "configs",
        "hparams",
        "hps",
        "flags",
        "FLAGS",
        "params",
        "settings",
        "argv",
    ]
)


def owner_of(file: FileContext, attribute: cst.Attribute) -> Owner:
    """The owner of `receiver.attribute`."""
    name, receiver = attribute.attr.value, attribute.value
    qualified = file.names.resolve(receiver)
    if qualified is not None and not qualified.startswith("torch"):
        if file.project.is_class_owner(qualified.rpartition(".")[2], name):
            return Owner(OwnerKind.USER, qualified.rpartition(".")[2])
        if not file.project.defines(qualified):
            return Owner(OwnerKind.LIBRARY, qualified)
    parent = file.tree.parents.get(attribute)
    if isinstance(parent, cst.Attribute):
        # `x.cuda.y`: a namespace, where a method or property would have no use.
        return Owner(OwnerKind.OPTION, file.tree.text(receiver))
    cls = class_of(file, receiver)
    if cls is not None and file.project.is_stored(cls, name):
        return Owner(OwnerKind.OPTION, cls)
    if cls is not None:
        return Owner(OwnerKind.USER, cls) if file.project.is_class_owner(cls, name) else _TORCH
    called = isinstance(parent, cst.Call)
    if not called and (_is_options(file, receiver, name) or _is_flag(file, attribute)):
        return Owner(OwnerKind.OPTION, file.tree.text(receiver))
    named = _named_after(file, receiver, name)
    if named is None and (library := _other_framework(file, receiver)) is not None:
        return Owner(OwnerKind.LIBRARY, library)
    return Owner(OwnerKind.USER, named) if named else _TORCH


def _other_framework(file: FileContext, receiver: cst.CSTNode) -> str | None:
    """The framework that made a tensor: the file imports no other, or its function is what was called."""
    packages = {file.names.imported_name(binding).partition(".")[0] for binding in file.names.import_bindings}
    others = packages & OTHER_FRAMEWORKS
    if others and "torch" not in packages:
        return min(others)
    values = [b.value for b in file.names.bindings_of(receiver)] if isinstance(receiver, cst.Name) else [receiver]
    for value in values if others else ():
        made_by = file.names.resolve(value.func) if isinstance(value, cst.Call) else None
        if made_by is not None and made_by.partition(".")[0] in others:
            return made_by
    return None


def class_of(file: FileContext, node: cst.CSTNode, depth: int = 0) -> str | None:
    """The class of the repository that an expression is an instance of, where that can be seen."""
    if depth > 4:
        return None
    if isinstance(node, cst.Call):
        name = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", None)
        if not isinstance(name, str):
            return None
        return name if file.project.is_class(name) else _returned(file, name)
    if isinstance(node, cst.Name):
        if node.value in {"self", "cls"}:
            cls = file.tree.enclosing(node, cst.ClassDef)
            return cls.name.value if cls else None
        found = {_class_of_binding(file, binding, depth) for binding in file.names.bindings_of(node)}
        return found.pop() if len(found) == 1 else None
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self":
        values = [
            assign.value
            for assign in file.tree.all(cst.Assign)
            for target in assign.targets
            if isinstance(target.target, cst.Attribute) and target.target.attr.value == node.attr.value
        ]
        classes = {class_of(file, value, depth + 1) for value in values}
        return classes.pop() if len(classes) == 1 else None
    return None


def _class_of_binding(file: FileContext, binding: Binding, depth: int) -> str | None:
    if isinstance(binding.node, cst.AnnAssign) and (cls := _annotated(file, binding.node.annotation)):
        return cls
    if binding.value is not None:
        return class_of(file, binding.value, depth + 1)
    if isinstance(binding.node, cst.Param):
        return _annotated(file, binding.node.annotation)
    if isinstance(binding.node, (cst.ClassDef, cst.ImportAlias)) and file.project.is_class(binding.name):
        return binding.name
    return None


def _annotated(file: FileContext, annotation: cst.Annotation | None) -> str | None:
    name = getattr(annotation.annotation, "value", None) if annotation is not None else None
    return name if isinstance(name, str) and file.project.is_class(name) else None


def _returned(file: FileContext, function: str) -> str | None:
    """The class that every function of this name in the file is annotated to return."""
    functions = [f for f in file.tree.all(cst.FunctionDef) if f.name.value == function]
    classes = {_annotated(file, f.returns) for f in functions}
    return classes.pop() if len(classes) == 1 else None


def _named_after(file: FileContext, receiver: cst.CSTNode, attribute: str) -> str | None:
    """A class of this file that owns the attribute and after which the receiver is named: `packed` and Packed."""
    last = receiver.attr.value if isinstance(receiver, cst.Attribute) else getattr(receiver, "value", None)
    if not isinstance(last, str):
        return None
    plain = last.replace("_", "").lower()
    return next(
        (
            name
            for name in file.project.class_owners(attribute)
            if name.lower().strip("_") == plain and _is_near(file, name) and not file.project.is_torch_class(name)
        ),
        None,
    )


def _is_near(file: FileContext, cls: str) -> bool:
    """Whether a class is defined or imported here, or the file imports something else of its module."""
    if file.names.is_bound(cls):
        return True
    imported = {(binding.qualified or "").rpartition(".")[0] for binding in file.names.import_bindings}
    return bool(imported & file.project.homes(cls))


def _is_options(file: FileContext, node: cst.CSTNode, attribute: str) -> bool:
    """Whether an expression is an options object: args, self.opt, cfg.train, what parse_args() gave …"""
    last = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
    if (last, attribute) in file.project.fields:
        return True
    while isinstance(node, cst.Attribute):
        if node.attr.value in _OPTION_WORDS:
            return True
        node = node.value
    return isinstance(node, cst.Name) and (
        node.value in _OPTION_WORDS
        or any(
            isinstance(binding.value, cst.Call) and "parse" in file.tree.text(binding.value.func)
            for binding in file.names.bindings_of(node)
        )
    )


def _is_flag(file: FileContext, attribute: cst.Attribute) -> bool:
    """Whether the attribute is tested for truth: a method never is, `is_cuda` always may be."""
    if attribute.attr.value.startswith("is_"):
        return False
    parent = file.tree.parents.get(attribute)
    if isinstance(parent, cst.IfExp):
        return parent.test is attribute
    if isinstance(parent, cst.UnaryOperation):
        return isinstance(parent.operator, cst.Not)
    return isinstance(
        parent, (cst.If, cst.While, cst.BooleanOperation, cst.Comparison, cst.ComparisonTarget, cst.Assert)
    )
