"""Facts about the whole repository that single files cannot see.

Which classes own a `.cuda()`, which options and parameters end up as devices or backends, what other modules
re-export, and who imports what from whom.  Gathered with the standard library's parser in one quick pass over
the files that matter; plain data, so that workers get it with their work.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from migrator import syntax
from migrator.exports import Exports, follow, short_names
from migrator.names import module_name
from migrator.programs import ModuleFacts, Programs, absolute_module, read_module
from migrator.source import SourceError, decode

# Attributes whose meaning changes when the user's code defines them.
OWNED = frozenset({"cuda", "is_cuda", "npu", "is_npu"})
# Classes whose instances torch_npu gives an `.npu()`.
_TORCH_BASES = frozenset(
    {"Module", "Tensor", "Parameter", "Sequential", "ModuleList", "PackedSequence", "DataParallel"}
)
# Modules that are compiled for CUDA, by their names.
EXTENSION = re.compile(r"([\w.]*(_ext|_cuda|_C|ext_module|_kernels?))")
_NEUTRAL = frozenset({"type", "dtype", "name", "data", "value", "args", "self", "x", "index", "float", "half"})


@dataclass(frozen=True)
class Project:
    """What is known of a repository; see the module docstring.

    bases      class → names of its bases
    owned      class → methods of OWNED names that it defines
    defined_in the same classes → modules that define one of that name
    stored     class → attributes of OWNED names that it assigns on self or declares
    fields     (object, attribute) of OWNED names assigned on anything else: `args.cuda = …`
    kernels    autograd functions whose methods call a compiled extension or a Triton kernel
    functions  function or class → its parameter lists
    sinks      "device", "backend" → attributes, keys and options used as one
    exports    qualified name in the repository → what of torch it stands for
    imported   qualified names that some file imports from another
    modules    the repository's own modules
    programs   what runs together, and how it trains
    linted     whether linters object to imports that nothing uses
    """

    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    owned: dict[str, frozenset[str]] = field(default_factory=dict)
    defined_in: dict[str, frozenset[str]] = field(default_factory=dict)
    stored: dict[str, frozenset[str]] = field(default_factory=dict)
    fields: frozenset[tuple[str, str]] = frozenset()
    kernels: frozenset[str] = frozenset()
    functions: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    sinks: dict[str, frozenset[str]] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    imported: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    programs: Programs = field(default_factory=Programs)
    linted: bool = False

    @classmethod
    def empty(cls) -> Project:
        """Nothing known: a single file from standard input."""
        return cls()

    @classmethod
    def scan(cls, files: Iterable[tuple[str, bytes]]) -> Project:
        """Gather the facts of files (posix path below the root, bytes); broken files are passed over."""
        gatherer = _Gatherer()
        for path, raw in files:
            gatherer.add(path, raw)
        return gatherer.project()

    # --- classes ----------------------------------------------------------------------------------------------

    def is_class(self, name: str) -> bool:
        """Whether the repository defines a class of this name."""
        return name in self.bases

    def is_torch_class(self, name: str, depth: int = 0) -> bool:
        """Whether a class is a Module, a Tensor or the like, as far as the repository shows its bases."""
        if name in _TORCH_BASES or name.endswith("Module"):
            return True
        return depth < 10 and any(
            self.is_torch_class(base, depth + 1) for base in self.bases.get(name, ()) if base != name
        )

    def is_class_owner(self, name: str, attribute: str, depth: int = 0) -> bool:
        """Whether a class that is no Module or Tensor defines this attribute itself (or inherits it in the repo)."""
        if depth == 0 and self.is_torch_class(name):
            return False
        if attribute in self.owned.get(name, ()):
            return True
        return depth < 10 and any(
            self.is_class_owner(base, attribute, depth + 1) for base in self.bases.get(name, ()) if base != name
        )

    def is_stored(self, name: str, attribute: str) -> bool:
        """Whether a class assigns or declares this attribute as a plain field."""
        return attribute in self.stored.get(name, ())

    def class_owners(self, attribute: str) -> list[str]:
        """The classes that own an attribute, by name."""
        return sorted(name for name in self.bases if self.is_class_owner(name, attribute))

    def homes(self, name: str) -> frozenset[str]:
        """The modules that define a class with a method of an owned name, by the class's name."""
        return self.defined_in.get(name, frozenset())

    # --- values -----------------------------------------------------------------------------------------------

    def parameters(self, function: str) -> tuple[tuple[str, ...], ...]:
        """The parameter names (without self) of each function or class of this name."""
        return self.functions.get(function, ())

    def reaches(self, sink: str, name: str) -> bool:
        """Whether an attribute, option or parameter of this name is used as a device or backend somewhere."""
        return name in self.sinks.get(sink, ())

    # --- modules ----------------------------------------------------------------------------------------------

    def canonical(self, qualified: str) -> str:
        """Follow re-exports: `repo.amp.autocast` → `torch.cuda.amp.autocast`."""
        return follow(self.exports, qualified)

    def passed_on(self, module: str) -> frozenset[str]:
        """The names that `from module import *` brings of what comes from torch."""
        return frozenset(name for home, _, name in (q.rpartition(".") for q in self.exports) if home == module)

    def defines(self, qualified: str) -> bool:
        """Whether a qualified name lies in a module of the repository."""
        while qualified:
            if qualified in self.modules:
                return True
            qualified = qualified.rpartition(".")[0]
        return False

    def is_imported_elsewhere(self, path: str, name: str) -> bool:
        """Whether another file imports `name` from the module at `path`."""
        module = module_name(path).split(".")
        known_as = [".".join(module[start:]) for start in range(len(module))]  # wherever the path starts
        return any(f"{own}.{what}" in self.imported for own in known_as for what in (name, "*"))


class _Gatherer:
    def __init__(self) -> None:
        self._bases: dict[str, tuple[str, ...]] = {}
        self._owned: defaultdict[str, set[str]] = defaultdict(set)
        self._defined_in: defaultdict[str, set[str]] = defaultdict(set)
        self._module = ""
        self._stored: defaultdict[str, set[str]] = defaultdict(set)
        self._fields: set[tuple[str, str]] = set()
        self._kernels: set[str] = set()
        self._functions: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
        self._sinks: defaultdict[str, set[str]] = defaultdict(set)
        self._exports = Exports()
        self._imported: set[str] = set()
        self._paths: dict[str, None] = {}
        self._programs: dict[str, ModuleFacts] = {}

    def project(self) -> Project:
        """What was gathered."""
        short = short_names(self._paths)
        modules = {module_name(path) for path in self._paths}
        packages = {module_name(path) for path in self._paths if path.endswith("__init__.py")}
        # A lone script's name says little: `apex` elsewhere need not be the script apex.py.
        modules |= {name for module, name in short.items() if "." in name or module in packages}
        return Project(
            bases=self._bases,
            owned={name: frozenset(found) for name, found in self._owned.items()},
            defined_in={name: frozenset(found) for name, found in self._defined_in.items()},
            stored={name: frozenset(found) for name, found in self._stored.items()},
            fields=frozenset(self._fields),
            kernels=frozenset(self._kernels),
            functions={name: tuple(sorted(found)) for name, found in self._functions.items()},
            sinks={sink: frozenset(found - _NEUTRAL) for sink, found in self._sinks.items()},
            exports=self._exports.resolved(short),
            imported=frozenset(self._imported),
            modules=frozenset(modules),
            programs=Programs(self._programs),
        )

    def add(self, path: str, raw: bytes) -> None:
        """Take in one file."""
        if not path.endswith((".py", ".pyi")):
            return
        module = module_name(path)
        self._paths[path] = None
        self._module = module
        try:
            found = syntax.parse(decode(raw).text)
        except (SyntaxError, ValueError, SourceError, RecursionError, MemoryError):
            return
        self._exports.add(path, found)
        self._programs[module] = read_module(path, found)
        for call in found.all(ast.Call):
            self._call(call)
        for cls in found.all(ast.ClassDef):
            self._class(cls)
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
            *found.all(ast.FunctionDef),
            *found.all(ast.AsyncFunctionDef),
        ]
        for function in functions:
            self._function(function)
        self._kernels |= set(_kernel_classes(found))
        for attribute in found.all(ast.Attribute):
            if attribute.attr in OWNED and isinstance(attribute.ctx, ast.Store):
                self._store(found, attribute)
        for origin in found.all(ast.ImportFrom):
            self._import(path, origin)

    def _class(self, node: ast.ClassDef) -> None:
        bases = tuple(filter(None, map(_last, node.bases)))
        self._bases[node.name] = tuple(dict.fromkeys((*self._bases.get(node.name, ()), *bases)))
        for part in node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if part.name in OWNED:
                    self._owned[node.name].add(part.name)
                    self._defined_in[node.name].add(self._module)
                if part.name == "__init__":
                    self._functions[node.name].add(_parameters(part))
            elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                self._stored[node.name] |= {t.id for t in targets if isinstance(t, ast.Name) and t.id in OWNED}

    def _store(self, found: syntax.Syntax, attribute: ast.Attribute) -> None:
        """`self.cuda = …` belongs to the classes around it, `args.cuda = …` to the object."""
        owner = _last(attribute.value)
        if owner != "self":
            self._fields.add((owner, attribute.attr))
            return
        for node in found.ancestors(attribute):
            if isinstance(node, ast.ClassDef):
                self._stored[node.name].add(attribute.attr)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        parameters = _parameters(node)
        if parameters:
            self._functions[node.name].add(parameters)

    def _call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in {"device", "map_location", "device_type"}:
                self._sinks["device"] |= _value_names(keyword.value)
            elif keyword.arg == "backend":
                self._sinks["backend"] |= _value_names(keyword.value)
        name = _last(node.func)
        if node.args and name in {"device", "to", "set_default_device"}:
            self._sinks["device"] |= _value_names(node.args[0])
        elif node.args and name == "init_process_group":
            self._sinks["backend"] |= _value_names(node.args[0])

    def _import(self, path: str, node: ast.ImportFrom) -> None:
        module = absolute_module(path, node)
        self._imported |= {f"{module}.{alias.name}" for alias in node.names}


def _is_compiled(name: str) -> bool:
    return EXTENSION.fullmatch(name) is not None and "kernel" not in name  # make_kernel() is an ordinary function


def _kernel_classes(found: syntax.Syntax) -> Iterator[str]:
    """The autograd functions that call a compiled extension or a Triton kernel, and not only if something holds."""
    origins: list[ast.Import | ast.ImportFrom] = [*found.all(ast.Import), *found.all(ast.ImportFrom)]
    names = {a.asname or a.name for origin in origins for a in origin.names if _is_compiled(a.name)}
    for function in found.all(ast.FunctionDef):
        if any("triton" in ast.unparse(decorator) for decorator in function.decorator_list):
            names.add(function.name)
    for use in found.all(ast.Name) if names else ():
        if use.id in names:
            outer = (ast.ClassDef, ast.If, ast.IfExp, ast.Try)
            inner = next((node for node in found.ancestors(use) if isinstance(node, outer)), None)
            if isinstance(inner, ast.ClassDef) and any(_last(base) == "Function" for base in inner.bases):
                yield inner.name


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    return tuple(names[1:] if names[:1] in (["self"], ["cls"]) else names)


def _value_names(node: ast.expr) -> set[str]:
    """The attribute, key or option that a value comes from: `args.where`, `cfg["where"]`."""
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return {node.slice.value}
    if isinstance(node, ast.IfExp):
        return _value_names(node.body) | _value_names(node.orelse)
    return set()
