"""Facts of one torch_npu wheel: public names, signatures and operator schemas."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from migrator.api._package import ROOT, Definition, Import, Module, Package, dotted, strings
from migrator.api._versions import parse

INTERNAL = (
    "torch_npu._inductor",
    "torch_npu._op_plugin_docs",
    "torch_npu.asd",
    "torch_npu.csrc",
    "torch_npu.dynamo.npugraph_ex",
    "torch_npu.dynamo.torchair",
    "torch_npu.meta",
    "torch_npu.onnx",
    "torch_npu.op_plugin",
    "torch_npu.testing",
)
"""Modules that users do not import; the largest are generated and would cost seconds to parse."""

DEVICE_MODULE = "torch_npu.npu"
"""The module behind torch.npu. CUDA code also uses private names of torch.cuda, so its private ones count too."""

NATIVE_MEMBERS = {
    "_NPUStreamBase": ("npu_stream", "device", "device_index", "stream_id", "priority"),
    "_NPUEventBase": ("npu_event", "device"),
    "ProfilerActivity": ("CPU", "NPU"),
}
"""Members of classes in the C extension; each is looked up in the shared libraries before it is believed."""

GENERATED = {
    "for_tensor": ("torch.Tensor.npu", "torch.Tensor.is_npu"),
    "for_module": ("torch.nn.Module.npu",),
    "for_storage": (
        "torch.TypedStorage.npu",
        "torch.TypedStorage.is_npu",
        "torch.UntypedStorage.npu",
        "torch.UntypedStorage.is_npu",
    ),
}
"""What torch.utils.generate_methods_for_privateuse1_backend adds for each argument that torch_npu gives it."""

PACKED_SEQUENCE = ("torch.nn.utils.rnn.PackedSequence.npu", "torch.nn.utils.rnn.PackedSequence.is_npu")
"""What it adds by itself from torch 2.4 on, where its argument for_packed_sequence is on by default."""

GENERATED_SIGNATURES = {
    "torch.Tensor.npu": "device=None, non_blocking=False, **kwargs",
    "torch.nn.Module.npu": "device=None",
    "torch.TypedStorage.npu": "device=None, non_blocking=False, **kwargs",
    "torch.UntypedStorage.npu": "device=None, non_blocking=False",
}

_SCHEMA = re.compile(rb"(?<=\0)([A-Za-z_]\w*)((?:\.\w+)?)(\([^\0\n]*\) ?-> ?[^\0]{1,300})(?=\0)")


@dataclass
class WheelFacts:
    """What one wheel offers; names are spelled with torch_npu, signatures without ``self`` and annotations."""

    version: str
    names: set[str] = field(default_factory=set)
    signatures: dict[str, str] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)
    """Operators of torch itself (without overload names) that have an NPU kernel."""
    operators: dict[str, list[str]] = field(default_factory=dict)
    """Sorted schemas per operator of torch.ops.npu: ``(Tensor self) -> Tensor``, ``.out(Tensor self, ...``."""


def read_wheel(path: Path) -> WheelFacts:
    """Read a wheel file without importing anything from it; raises WheelError when it is damaged."""
    package = Package(path)
    try:
        return _Reader(package).read()
    finally:
        package.close()


class _Reader:
    def __init__(self, package: Package) -> None:
        self.package = package
        self.facts = WheelFacts(package.version)
        self.libraries = list(package.libraries())

    def read(self) -> WheelFacts:
        public: dict[str, Definition] = {}
        for module in self.package:
            if self._is_public(module) and not self._is_shadowed(module):
                self.facts.names.add(module)
                public.update(self._module(module))
        shortest: dict[tuple[str, str], str] = {}
        for name, found in sorted(public.items(), key=lambda item: (item[0].count("."), item[0])):
            shortest.setdefault((found.module, found.name), name)
        for name, found in public.items():
            of_device = name.startswith(f"{DEVICE_MODULE}.")
            self._name(name, found, members=of_device or shortest[found.module, found.name] == name)
        self._tensor_types()
        self._operators()
        self.facts.kernels = self.package.declared_operators("supported", "autograd")
        for module in self.package:
            if not _inside(module, INTERNAL):
                self._patches(self.package.module(module))
        return self.facts

    def _is_public(self, module: str) -> bool:
        if _inside(module, INTERNAL):
            return False
        return _is_device_module(module) or not any(part.startswith("_") for part in module.split("."))

    def _is_shadowed(self, module: str) -> bool:
        """Whether the parent binds another thing under the module's name, as torch_npu.npu does with mstx."""
        parent, _, leaf = module.rpartition(".")
        found = self.package.resolve(parent, leaf) if parent else None
        return found is not None and found.kind != "module"

    def _module(self, module: str) -> Iterator[tuple[str, Definition]]:
        """Names that a module offers, apart from submodules and helpers that it only imports for itself."""
        exports = self.package.module(module).exports or []
        for name in self.package.visible(module):
            found = self.package.resolve(module, name)
            if found is None or found.kind == "module" or name.startswith("__"):
                continue
            if name.startswith("_"):
                device_private = _is_device_module(module) and found.kind in ("function", "class")
                if not device_private and name not in exports:
                    continue
            if name in exports or not self._is_borrowed(module, name, found):
                yield f"{module}.{name}", found

    def _is_borrowed(self, module: str, name: str, found: Definition) -> bool:
        """Whether the name is a private helper of another package, imported under its own name (ErrCode ...)."""
        binding = self.package.module(module).bindings.get(name)
        if not isinstance(binding, Import) or found.kind == "native":
            return False
        source, _, leaf = binding.module.rpartition(".")
        package = module if self.package.module(module).is_package else module.rpartition(".")[0]
        return leaf.startswith("_") and source != package

    def _name(self, name: str, found: Definition, *, members: bool = True) -> None:
        self.facts.names.add(name)
        members = members and not any(part.startswith("_") for part in name.split("."))
        match found.node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.facts.signatures[name] = _parameters(found.node.args, bound=False)
            case ast.ClassDef():
                self._class(name, found, members=members)
            case ast.Assign(value=ast.Call(func=factory)) if members:
                made = self.package.evaluate(found.module, factory)
                if made is not None and made.kind == "class":
                    self._members(name, made)
        if found.kind == "native":
            self._native(name, found.name)

    def _class(self, name: str, found: Definition, *, members: bool) -> None:
        if members:
            self._members(name, found)
        methods = self._methods(found)
        for constructor in ("__init__", "__new__"):
            if constructor in methods:
                self.facts.signatures[name] = _parameters(methods[constructor].args, bound=True)
                return

    def _methods(self, found: Definition) -> dict[str, ast.FunctionDef]:
        """Methods of a class, inherited ones included."""
        owners = (owner.node.body for owner in self._lineage(found) if isinstance(owner.node, ast.ClassDef))
        return {s.name: s for body in owners for s in body if isinstance(s, ast.FunctionDef)}

    def _members(self, name: str, found: Definition) -> None:
        """Record the public members of a class below ``name``."""
        for owner in self._lineage(found):
            assert isinstance(owner.node, ast.ClassDef)
            module = self.package.module(owner.module)
            for base in owner.node.bases:
                base_name = dotted(base)
                if base_name:
                    self._native(name, base_name.rpartition(".")[2])
            for member in (*_class_names(owner.node), *module.class_extras.get(owner.node.name, [])):
                if not member.startswith("_"):
                    self.facts.names.add(f"{name}.{member}")
        for method, node in self._methods(found).items():
            if not method.startswith("_") and not _is_property(node):
                static = "staticmethod" in map(dotted, node.decorator_list)
                self.facts.signatures[f"{name}.{method}"] = _parameters(node.args, bound=not static)

    def _lineage(self, found: Definition) -> Iterator[Definition]:
        """The class and its bases inside the package, bases first."""
        if not isinstance(found.node, ast.ClassDef):
            return
        for base in found.node.bases:
            parent = self.package.evaluate(found.module, base)
            if parent is not None and parent.node is not found.node:
                yield from self._lineage(parent)
        yield found

    def _native(self, name: str, native: str) -> None:
        for member in NATIVE_MEMBERS.get(native, ()):
            # Only the end is marked by a zero: linkers store a string as the tail of a longer one.
            if any(member.encode() + b"\0" in library for library in self.libraries):
                self.facts.names.add(f"{name}.{member}")

    def _tensor_types(self) -> None:
        """torch.npu.FloatTensor and its kin: the C extension makes them, the module only lists them."""
        if any(b"\0torch.npu\0" in library for library in self.libraries) and DEVICE_MODULE in self.package:
            listed = self.package.module(DEVICE_MODULE).exports or []
            self.facts.names |= {f"{DEVICE_MODULE}.{name}" for name in listed if name.endswith("Tensor")}

    def _operators(self) -> None:
        declared = self.package.declared_operators("custom", "quant")
        schemas: dict[str, set[str]] = {}
        for library in self.libraries:
            for match in _SCHEMA.finditer(library):
                name, overload, schema = (group.decode("utf-8", "replace") for group in match.groups())
                if name in declared:
                    schemas.setdefault(name, set()).add(overload + schema)
        # "(" sorts before ".": the schema without an overload name comes first.
        self.facts.operators = {name: sorted(schemas[name]) for name in sorted(schemas)}
        self.facts.names |= {f"{ROOT}.{name}" for name in schemas}

    def _patches(self, module: Module) -> None:
        """Names that code adds from outside, to torch_npu (``torch_npu.Format = ...``) and to torch."""
        for node in ast.walk(module.tree):
            match node:
                case ast.Assign(targets=[ast.Attribute() as target]):
                    self._patched(module, dotted(target), node.value)
                case ast.Assign(targets=[ast.Subscript(value=space, slice=ast.Constant(value=str(key)))]):
                    if ast.unparse(space) in ("globals()", "globals_dict") and not key.startswith("__"):
                        self._patched(module, f"{ROOT}.{key}", node.value)
                case ast.Assign(targets=[ast.Name(id="_LAZY_PYTHON_SYMBOLS")], value=ast.Dict() as table):
                    self._lazy(table)
                case ast.Call():
                    self._registered(node)
                case ast.List(elts=[ast.Constant(value="distributed"), source]):
                    if dotted(source) == f"{ROOT}.distributed":
                        for name in self.package.module(f"{ROOT}.distributed").exports or []:
                            self._patched(module, f"torch.distributed.{name}", ast.Attribute(source, name))
                case ast.Tuple(elts=[ast.Constant(value=str(path)), ast.Constant(value=str(source))]):
                    if path.startswith("distributed."):
                        self._patched(module, f"torch.{path}", ast.parse(f"{ROOT}.{source}", mode="eval").body)

    def _patched(self, module: Module, name: str | None, value: ast.AST) -> None:
        if name is None:
            return
        leaf = name.rpartition(".")[2]
        own = name.startswith(f"{ROOT}.") and name.count(".") == 1 and not leaf.startswith("_")
        added = name.startswith("torch.") and ("npu" in leaf or "hccl" in leaf) and not leaf.startswith("_")
        if own or added:
            self.facts.names.add(name)
            found = self.package.evaluate(module.name, value)
            if found is None:
                return
            self._name(name, found)
            if added and isinstance(found.node, ast.FunctionDef) and name.split(".")[-2].istitle():
                self.facts.signatures[name] = _parameters(found.node.args, bound=True)

    def _lazy(self, table: ast.Dict) -> None:
        for key, value in zip(table.keys, table.values, strict=True):
            source = strings(value)
            found = self.package.resolve(*source) if len(source) == 2 else None
            if found is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._name(f"{ROOT}.{key.value}", found)

    def _registered(self, call: ast.Call) -> None:
        function = (dotted(call.func) or "").rpartition(".")[2]
        arguments = [a.value for a in call.args if isinstance(a, ast.Constant)]
        if function == "generate_methods_for_privateuse1_backend":
            for keyword in call.keywords:
                for name in GENERATED.get(keyword.arg or "", ()):
                    self.facts.names.add(name)
                    if name in GENERATED_SIGNATURES:
                        self.facts.signatures.setdefault(name, GENERATED_SIGNATURES[name])
            if parse(self.facts.version) >= parse("2.4"):
                self.facts.names.update(PACKED_SEQUENCE)
        elif function == "register_backend" and arguments[:1] in (["hccl"], ["lccl"]):
            self.facts.names.add(f"torch.distributed.Backend.{str(arguments[0]).upper()}")
        elif function == "setattr" and call.args and dotted(call.args[0]) == "ProfilerActivity":
            self.facts.names.add("torch.profiler.ProfilerActivity.NPU")


def _inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def _is_device_module(module: str) -> bool:
    return module == DEVICE_MODULE or module.rpartition(".")[0] == DEVICE_MODULE


def _class_names(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
                if name in ("__setattr__", "__getattr__"):
                    yield from _compared(statement)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name


def _compared(node: ast.AST) -> Iterator[str]:
    """Strings that ``name`` is compared with: the attributes of a class that answers by hand."""
    for part in ast.walk(node):
        match part:
            case ast.Compare(left=ast.Name(id="name"), comparators=[ast.Constant(value=str(text))]):
                yield text


def _is_property(node: ast.FunctionDef) -> bool:
    names = [dotted(d) or "" for d in node.decorator_list]
    return any(n in ("property", "classproperty") or n.endswith((".setter", ".getter")) for n in names)


def _parameters(arguments: ast.arguments, *, bound: bool) -> str:
    """Source text of a parameter list without annotations; ``bound`` drops the first one (self)."""
    copy: ast.arguments = ast.parse(f"def f({ast.unparse(arguments)}): ...").body[0].args  # type: ignore[attr-defined]
    for arg in (*copy.posonlyargs, *copy.args, *copy.kwonlyargs, copy.vararg, copy.kwarg):
        if arg is not None:
            arg.annotation = None
    if bound and copy.posonlyargs:
        copy.posonlyargs.pop(0)
    elif bound and copy.args:
        copy.args.pop(0)
    return ast.unparse(copy)
