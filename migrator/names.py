"""Import table and scopes: which fully qualified name does a name in the code stand for?

`import torch.cuda as tc`, `from torch import cuda`, `tc = torch.cuda`, a star import of a known module and a
re-export elsewhere in the repository all resolve to the same qualified name; a local variable, parameter or
function of that spelling resolves to nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from migrator.tree import Tree

ScopeNode = (
    cst.Module,
    cst.ClassDef,
    cst.FunctionDef,
    cst.Lambda,
    cst.GeneratorExp,
    cst.ListComp,
    cst.SetComp,
    cst.DictComp,
)
_COMPREHENSIONS = (cst.GeneratorExp, cst.ListComp, cst.SetComp, cst.DictComp)


@dataclass(eq=False)
class Binding:
    """One place that gives a name its meaning.

    node       the statement part that binds: ImportAlias, ImportStar, AssignTarget, Param, FunctionDef, …
    qualified  what an import binds, as written (relative imports made absolute where the path is known)
    value      the expression assigned, where the whole of it goes to this one name
    """

    name: str
    node: cst.CSTNode
    scope: Scope
    qualified: str | None = None
    value: cst.BaseExpression | None = None

    @property
    def is_import(self) -> bool:
        """Whether an import statement binds the name."""
        return isinstance(self.node, cst.ImportAlias)


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension, with what it binds.

    outer   names that a `global` or `nonlocal` statement gives to a scope further out
    """

    node: cst.CSTNode
    parent: Scope | None
    bindings: defaultdict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    outer: dict[str, Scope] = field(default_factory=dict)

    def owner(self, name: str) -> Scope:
        """The scope that an assignment to `name` in this one binds it in."""
        scope = self
        while name in scope.outer:
            scope = scope.outer[name]
        return scope

    def lookup(self, name: str) -> list[Binding]:
        """The bindings that a use of `name` in this scope can see (Python's rules: class bodies are skipped)."""
        start: Scope = self.owner(name)
        scope: Scope | None = start
        while scope is not None:
            visible = scope is start or not isinstance(scope.node, cst.ClassDef)
            if visible and name in scope.bindings:
                return scope.bindings[name]
            scope = scope.parent
        return []


@dataclass(eq=False)
class Reference:
    """The longest dotted expression that starts at a resolved name: `tc.amp.autocast`.

    root       its first name; `binding` is what that name is bound to
    parts      the attribute names behind the root
    qualified  the whole, e.g. torch.cuda.amp.autocast
    """

    root: cst.Name
    node: cst.BaseExpression
    binding: Binding | None
    parts: tuple[str, ...]
    qualified: str


def dotted(node: cst.CSTNode | None) -> str | None:
    """`a.b.c` for a chain of names, None for anything else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def module_name(path: str) -> str:
    """The dotted module name of a posix path relative to the import root: `pkg/sub/__init__.py` → `pkg.sub`."""
    parts = path.removesuffix(".py").removesuffix(".pyi").split("/")
    if parts and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


class Names:
    """Scopes and references of one file.

    path        posix path of the file below the repository root, for relative imports
    canonical   follows re-exports of other files: qualified name → qualified name (project.py)
    star_names  the public names of a module, for `from module import *` (None: unknown module)
    """

    def __init__(
        self,
        tree: Tree,
        path: str = "",
        canonical: Callable[[str], str] = lambda name: name,
        star_names: Callable[[str], frozenset[str] | None] = lambda module: None,
    ) -> None:
        self.tree, self.path, self.canonical = tree, path, canonical
        self._star_names = star_names
        self._scopes: dict[cst.CSTNode, Scope] = {}
        self._resolved: dict[cst.Name, tuple[str, Binding] | None] = {}
        self.module_scope = self._scope_of(tree.module)
        self.stars: list[tuple[str, Binding]] = []
        self._bind_all()

    # --- scopes -------------------------------------------------------------------------------------------

    def _scope_of(self, node: cst.CSTNode) -> Scope:
        found = self._scopes.get(node)
        if found is None:
            parent = None if isinstance(node, cst.Module) else self.scope_at(node)
            found = self._scopes[node] = Scope(node, parent)
        return found

    def scope_at(self, node: cst.CSTNode) -> Scope:
        """The scope in which a node's names are looked up."""
        child = node
        for parent in self.tree.ancestors(node):
            if isinstance(parent, (cst.FunctionDef, cst.Lambda)):
                # Defaults, decorators and annotations belong to the scope around the function.
                if child is parent.body or (child is parent.params and self._is_param_name(node)):
                    return self._scope_of(parent)
            elif isinstance(parent, cst.ClassDef):
                if child is parent.body:
                    return self._scope_of(parent)
            elif isinstance(parent, _COMPREHENSIONS):
                # The first iterable is evaluated outside; treating it as inside only hides shadowed names.
                return self._scope_of(parent)
            elif isinstance(parent, cst.Module):
                return self._scope_of(parent)
            child = parent
        return self._scope_of(self.tree.module)

    def _is_param_name(self, node: cst.CSTNode) -> bool:
        parent = self.tree.parents.get(node)
        return isinstance(node, cst.Param) or (isinstance(parent, cst.Param) and parent.name is node)

    def _function_scope(self, node: cst.CSTNode) -> Scope:
        scope = self.scope_at(node)
        while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
        return scope

    def _bind(self, name: str, node: cst.CSTNode, scope: Scope, **facts: object) -> None:
        scope = scope.owner(name)
        scope.bindings[name].append(Binding(name, node, scope, **facts))  # type: ignore[arg-type]

    def _bind_target(self, target: cst.CSTNode, node: cst.CSTNode, value: cst.BaseExpression | None) -> None:
        if isinstance(target, cst.Name):
            self._bind(target.value, node, self._function_scope(node), value=value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            values = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
            paired = len(values) == len(target.elements)
            for i, element in enumerate(target.elements):
                self._bind_target(element.value, node, values[i].value if paired else None)
        elif isinstance(target, cst.StarredElement):
            self._bind_target(target.value, node, None)

    def _bind_all(self) -> None:
        every = self.tree.all
        for declared in every(cst.Global):
            if (scope := self.scope_at(declared)) is not self.module_scope:
                scope.outer.update((item.name.value, self.module_scope) for item in declared.names)
        for freed in every(cst.Nonlocal):
            scope = self.scope_at(freed)
            around = scope.parent
            while around is not None and isinstance(around.node, cst.ClassDef):
                around = around.parent
            if around is not None:
                scope.outer.update((item.name.value, around) for item in freed.names)
        for statement in every(cst.Import):
            for alias in statement.names:
                full = dotted(alias.name) or ""
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                    self._bind(alias.asname.name.value, alias, self.scope_at(statement), qualified=full)
                else:
                    head = full.partition(".")[0]
                    self._bind(head, alias, self.scope_at(statement), qualified=head)
        for from_statement in every(cst.ImportFrom):
            self._bind_import_from(from_statement)
        for assign in every(cst.Assign):
            for target in assign.targets:
                self._bind_target(target.target, target, assign.value)
        for annotated in every(cst.AnnAssign):
            self._bind_target(annotated.target, annotated, annotated.value)
        for walrus in every(cst.NamedExpr):
            self._bind_target(walrus.target, walrus, walrus.value)
        loops: list[cst.For | cst.CompFor] = [*every(cst.For), *every(cst.CompFor)]
        for loop in loops:
            target_scope = self.scope_at(loop)
            if isinstance(loop.target, cst.Name):
                self._bind(loop.target.value, loop, target_scope)
            else:
                self._bind_target(loop.target, loop, None)
        for item in every(cst.AsName):
            if not isinstance(self.tree.parents.get(item), cst.ImportAlias):
                self._bind_target(item.name, item, None)
        for param in every(cst.Param):
            self._bind(param.name.value, param, self.scope_at(param.name))
        for function in every(cst.FunctionDef):
            self._bind(function.name.value, function, self.scope_at(function))
        for cls in every(cst.ClassDef):
            self._bind(cls.name.value, cls, self.scope_at(cls))
        captures: list[cst.MatchAs | cst.MatchStar] = [*every(cst.MatchAs), *every(cst.MatchStar)]
        for capture in captures:
            if capture.name is not None:
                self._bind(capture.name.value, capture, self._function_scope(capture))

    def _bind_import_from(self, statement: cst.ImportFrom) -> None:
        module = self.imported_module(statement)
        scope = self.scope_at(statement)
        if isinstance(statement.names, cst.ImportStar):
            self.stars.append((module, Binding("*", statement.names, scope, qualified=module)))
            return
        for alias in statement.names:
            name = dotted(alias.name) or ""
            bound = alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else name
            self._bind(bound, alias, scope, qualified=f"{module}.{name}")

    def imported_module(self, statement: cst.ImportFrom) -> str:
        """The absolute dotted name of the module that a from-import names."""
        module = dotted(statement.module) or ""
        if not statement.relative:
            return module
        package = module_name(self.path).split(".")
        keep = len(package) - len(statement.relative) + self.path.endswith("__init__.py")
        return ".".join([*package[: max(keep, 0)], *([module] if module else [])])

    # --- resolution ---------------------------------------------------------------------------------------

    def bindings_of(self, name: cst.Name) -> list[Binding]:
        """What a name in the code may be bound to, in the scope that wins."""
        return self.scope_at(name).lookup(name.value)

    def resolve(self, node: cst.CSTNode | None) -> str | None:
        """The qualified name of a dotted expression, or None where it is not (surely) an imported thing."""
        if isinstance(node, cst.Name):
            found = self._resolve_name(node)
            return found[0] if found else None
        if isinstance(node, cst.Attribute):
            base = self.resolve(node.value)
            return self.canonical(f"{base}.{node.attr.value}") if base else None
        if isinstance(node, cst.Call):
            return self._resolve_lookup(node)
        return None

    def _resolve_lookup(self, node: cst.Call) -> str | None:
        """Calls that name modules: getattr(torch, "cuda"), get_device_module("cuda"), import_module("torch.cuda")."""
        values = [a.value.evaluated_value for a in node.args if isinstance(a.value, cst.SimpleString)]
        texts = [value for value in values if isinstance(value, str)]
        if not texts:
            return None
        if isinstance(node.func, cst.Name) and node.func.value == "getattr" and len(node.args) >= 2:
            base = self.resolve(node.args[0].value)
            return self.canonical(f"{base}.{texts[0]}") if base else None
        function = self.resolve(node.func)
        if function == "torch.get_device_module" and texts[0] == "cuda":
            return "torch.cuda"
        return texts[0] if function == "importlib.import_module" and not texts[0].startswith(".") else None

    def _resolve_name(self, name: cst.Name) -> tuple[str, Binding] | None:
        if name in self._resolved:
            return self._resolved[name]
        self._resolved[name] = None  # a = a.b must not recurse for ever
        bindings = self.scope_at(name).lookup(name.value)
        found = self._agreed(bindings) if bindings else self._from_star(name)
        self._resolved[name] = found
        return found

    def _agreed(self, bindings: list[Binding]) -> tuple[str, Binding] | None:
        """The one thing that all bindings mean; a fallback for a missing package (None, a stub) does not count."""
        found: dict[str, Binding] = {}
        for binding in bindings:
            if self._is_fallback(binding, bindings):
                continue
            qualified = self.meaning(binding)
            if qualified is None:
                return None
            found.setdefault(qualified, binding)
        return next(iter(found.items())) if len(found) == 1 else None

    def meaning(self, binding: Binding) -> str | None:
        """The qualified name that an import or an alias assignment binds."""
        if binding.qualified is not None:
            return self.canonical(binding.qualified)
        return self._alias_of(binding.value) if binding.value is not None else None

    def _alias_of(self, value: cst.BaseExpression) -> str | None:
        if isinstance(value, (cst.Name, cst.Attribute)) and dotted(value):
            return self.resolve(value)
        return self._resolve_lookup(value) if isinstance(value, cst.Call) else None

    def _is_fallback(self, binding: Binding, bindings: list[Binding]) -> bool:
        """Whether a binding only stands in where another one fails: a stub, None, what an except clause imports."""
        if isinstance(binding.node, (cst.FunctionDef, cst.ClassDef)):
            return bool(self.tree.enclosing(binding.node, cst.Try, cst.ExceptHandler, cst.If, cst.Else))
        if isinstance(binding.value, cst.Name) and binding.value.value == "None":
            return True
        handler = self.tree.enclosing(binding.node, cst.ExceptHandler)
        if handler is None or not (binding.is_import or _is_constant(binding.value)):
            return False
        whole = self.tree.parents[handler]
        assert isinstance(whole, (cst.Try, cst.TryStar))
        return any(whole.body in self.tree.ancestors(other.node) for other in bindings)

    def _from_star(self, name: cst.Name) -> tuple[str, Binding] | None:
        for module, binding in self.stars:
            public = self._star_names(module)
            if public and name.value in public:
                return self.canonical(f"{module}.{name.value}"), binding
        return None

    def spelled(self, name: str) -> tuple[str, Binding] | None:
        """What a string means that spells a name of the module: the qualified name and where it is bound."""
        return self._agreed(self.module_scope.bindings.get(name, []))

    # --- references ---------------------------------------------------------------------------------------

    @cached_property
    def references(self) -> list[Reference]:
        """Every use of an imported name, or of an alias of one, with the attributes behind it."""
        return [found for name in self.tree.all(cst.Name) if (found := self._reference(name))]

    @cached_property
    def _interesting(self) -> set[str]:
        """Names that some scope binds to an import or alias: all others need no look-up."""
        found = {"getattr"}
        aliased: list[tuple[str, cst.BaseExpression]] = []
        for scope in self._scopes.values():
            for name, bindings in scope.bindings.items():
                for binding in bindings:
                    if binding.qualified is not None:
                        found.add(name)
                    elif isinstance(binding.value, (cst.Name, cst.Attribute, cst.Call)):
                        aliased.append((name, binding.value))
        before = -1
        while len(found) != before:
            before = len(found)
            found |= {name for name, value in aliased if _root(value) in found}
        return found

    def _reference(self, name: cst.Name) -> Reference | None:
        if name.value not in self._interesting and not self.stars:
            return None
        if not self.is_use(name):
            return None
        found = self._resolve_name(name)
        if found is None:
            return None
        return self._extended(name, *found)

    def _extended(self, name: cst.Name, qualified: str, binding: Binding) -> Reference:
        """The reference that starts at a name of this meaning."""
        node: cst.BaseExpression = name
        parts: list[str] = []
        while isinstance(parent := self.tree.parents.get(node), cst.Attribute) and parent.value is node:
            parts.append(parent.attr.value)
            qualified = self.canonical(f"{qualified}.{parent.attr.value}")
            node = parent
        return Reference(name, node, binding, tuple(parts), qualified)

    def is_use(self, name: cst.Name) -> bool:
        """Whether the name is read (not bound, not an attribute or keyword name, not part of an import)."""
        parent = self.tree.parents.get(name)
        if isinstance(parent, cst.Attribute):
            return parent.value is name
        if isinstance(parent, (cst.Param, cst.FunctionDef, cst.ClassDef, cst.MatchAs, cst.MatchStar)):
            return parent.name is not name
        if isinstance(parent, cst.Arg):
            return parent.value is name
        if isinstance(parent, (cst.NamedExpr, cst.AnnAssign, cst.For, cst.CompFor)):
            return parent.target is not name
        return not isinstance(parent, (cst.AsName, cst.NameItem, cst.AssignTarget, cst.MatchKeywordElement))

    def uses(self, binding: Binding) -> list[Reference]:
        """The places that this binding gives their meaning, alone or beside others, each with that meaning."""
        return self._uses.get(binding, [])

    @cached_property
    def _uses(self) -> dict[Binding, list[Reference]]:
        found: dict[Binding, list[Reference]] = defaultdict(list)
        for name in self.tree.all(cst.Name):
            if name.value in self._interesting and self.is_use(name):
                for binding in self.bindings_of(name):
                    if (qualified := self.meaning(binding)) is not None:
                        found[binding].append(self._extended(name, qualified, binding))
        for reference in self.references if self.stars else ():
            if reference.binding is not None and isinstance(reference.binding.node, cst.ImportStar):
                found[reference.binding].append(reference)
        return found

    def bindings_in(self, statement: cst.Import | cst.ImportFrom, module: str) -> list[Binding]:
        """What an import statement names of a module or of what lies below it; re-exports elsewhere do not count."""
        nodes: set[cst.CSTNode] = (
            {statement.names} if isinstance(statement.names, cst.ImportStar) else set(statement.names)
        )
        found = [binding for binding in self.import_bindings if binding.node in nodes]
        return [
            binding
            for binding in found
            if (full := self.imported_name(binding)) == module or full.startswith(module + ".")
        ]

    def imported_name(self, binding: Binding) -> str:
        """The full name that an import names: torch.cuda for `import torch.cuda`, which binds torch."""
        alias = binding.node
        if isinstance(alias, cst.ImportAlias) and isinstance(self.tree.parents.get(alias), cst.Import):
            return dotted(alias.name) or ""
        return binding.qualified or ""

    @cached_property
    def import_bindings(self) -> list[Binding]:
        """What all import statements of the file bind."""
        return [
            *(b for scope in self._scopes.values() for bs in scope.bindings.values() for b in bs if b.is_import),
            *(binding for _, binding in self.stars),
        ]

    def is_bound(self, name: str) -> bool:
        """Whether any scope of the file binds this name."""
        return any(name in scope.bindings for scope in self._scopes.values())

    def unused(self, name: str) -> str:
        """`name`, or `name_2`, … : one that the file does not use."""
        taken = {node.value for node in self.tree.all(cst.Name)}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 10**6))) if n not in taken)

    def scopes(self) -> Iterator[Scope]:
        """Every scope that binds something."""
        return iter(self._scopes.values())


def _is_constant(value: cst.CSTNode | None) -> bool:
    return isinstance(value, cst.Name) and value.value in ("None", "True", "False")


def _root(value: cst.CSTNode) -> str | None:
    while isinstance(value, (cst.Attribute, cst.Call)):
        if isinstance(value, cst.Call):
            if isinstance(value.func, cst.Name) and value.func.value == "getattr":
                return "getattr"
            value = value.func
        else:
            value = value.value
    return value.value if isinstance(value, cst.Name) else None
