"""Which modules make up a program: what each one imports, whether it uses a device, and how it trains.

A fact about one file seldom settles anything: a training loop may live in one module, its optimizer in another
and the call that breaks both in a third.  Rules ask here for everything that runs together with a file.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from migrator.names import module_name
from migrator.syntax import Syntax
from migrator.training import Training, read_training

_DEVICE = re.compile(r"(cuda|npu)(:.*)?|nccl|hccl", re.DOTALL)
_DEVICE_NAMES = frozenset({"cuda", "npu", "is_cuda", "is_npu", "GradScaler", "NCCL", "HCCL"})
_DEVICE_WORDS = re.compile(r"cuda|npu|GradScaler|[NHnh][Cc][Cc][Ll]|pin_memory")
_NUMBERED = re.compile(r"(cuda|npu):(?!0$)")
_NUMBER_NAME = re.compile(r"rank|gpu", re.IGNORECASE)
_TEST_PATH = re.compile(r"(^|/)tests?/|(^|/)conftest\.py$")
_TEST_NAME = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")  # research code also calls its evaluation so
_TEST_CODE = re.compile(r"^\s*def test(_\w+)?\(|^\s*(import|from) (pytest|unittest)\b", re.MULTILINE)


@dataclass(frozen=True)
class ModuleFacts:
    """One module.

    path          posix, below the folder that imports count from
    imports       qualified names of what its import statements name, relative ones made absolute
    device        whether its code names an accelerator
    compile_mode  whether it calls set_compile_mode
    sets_device   whether it calls set_device
    numbered      the first line that names a device by another number than 0; 0: none
    training      what it does with optimizers and gradients; None: nothing
    is_test       whether the file is a test, which is part of no program
    """

    path: str
    imports: frozenset[str] = frozenset()
    device: bool = False
    compile_mode: bool = False
    sets_device: bool = False
    numbered: int = 0
    training: Training | None = None
    is_test: bool = False

    @property
    def uses_torch(self) -> bool:
        """Whether it imports torch or torch_npu."""
        return any(name.partition(".")[0] in ("torch", "torch_npu") for name in self.imports)


@dataclass(frozen=True)
class Programs:
    """The modules of a repository by dotted name, and who imports whom."""

    modules: dict[str, ModuleFacts] = field(default_factory=dict)

    def around(self, path: str) -> list[ModuleFacts]:
        """Everything that may run in one process with the file: the modules that lead to it, and all they import."""
        start = module_name(path)
        leading = self._closure([start], self._imported_by)
        found = self._closure(leading, self._imports)
        rest = [self.modules[name] for name in sorted(found - {start}) if not self.modules[name].is_test]
        return [self.modules[start], *rest] if start in self.modules else rest

    def below(self, path: str) -> list[ModuleFacts]:
        """The file and everything that it imports, directly or not."""
        found = self._closure([module_name(path)], self._imports)
        return [self.modules[name] for name in sorted(found) if name in self.modules]

    def is_imported(self, path: str) -> bool:
        """Whether another module of the repository, tests aside, imports the file."""
        return bool(self._imported_by.get(module_name(path)))

    def _closure(self, start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
        found = set(start)
        waiting = list(found)
        while waiting:
            for name in edges.get(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return found

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        return {name: set(self._targets(name, facts)) - {name} for name, facts in self.modules.items()}

    @cached_property
    def _imported_by(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for name, targets in self._imports.items():
            if not self.modules[name].is_test:
                for target in targets:
                    found[target].add(name)
        return dict(found)

    def _targets(self, name: str, facts: ModuleFacts) -> Iterator[str]:
        """The repository's modules that a module imports, looked for beside it first, as a script would."""
        package = name.split(".")[:-1]
        for imported in facts.imports:
            for depth in range(len(package), -1, -1):
                known = [full for full in _inward(package[:depth], imported) if full in self.modules]
                if known:
                    yield from known
                    break


def _inward(package: list[str], imported: str) -> Iterator[str]:
    """a.b.c, a.b and a for an import of a.b.c, all below the package."""
    parts = imported.split(".")
    return (".".join([*package, *parts[:length]]) for length in range(len(parts), 0, -1))


def read_module(path: str, syntax: Syntax) -> ModuleFacts:
    """The facts of one parsed file."""
    text = syntax.text
    imports = frozenset(_imported(path, syntax))
    device = any(name.startswith(("torch.cuda", "torch_npu.")) for name in imports) or _names_device(syntax)
    test = _TEST_PATH.search(path) or (_TEST_NAME.search(path) and _TEST_CODE.search(text))
    return ModuleFacts(
        path, imports, device,
        compile_mode="set_compile_mode(" in text,
        sets_device="set_device(" in text,
        numbered=min(_numbered(syntax), default=0) if device else 0,
        training=read_training(syntax),
        is_test=bool(test),
    )  # fmt: skip


def _imported(path: str, syntax: Syntax) -> Iterator[str]:
    for statement in syntax.all(ast.Import):
        yield from (alias.name for alias in statement.names)
    for origin in syntax.all(ast.ImportFrom):
        module = absolute_module(path, origin)
        yield module
        yield from (f"{module}.{alias.name}" for alias in origin.names)


def _names_device(syntax: Syntax) -> bool:
    if not _DEVICE_WORDS.search(syntax.text):
        return False
    names = (node.attr for node in syntax.all(ast.Attribute)), (node.id for node in syntax.all(ast.Name))
    if any(name in _DEVICE_NAMES for name in chain(*names)):
        return True
    if any(node.arg == "pin_memory" and _is_true(node.value) for node in syntax.all(ast.keyword)):
        return True  # memory is pinned for an accelerator, also where devices are integers
    values = [node.value for node in syntax.all(ast.Constant)]
    return any(isinstance(value, str) and _DEVICE.fullmatch(value) for value in values)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _numbered(syntax: Syntax) -> Iterator[int]:
    """Lines that may put something on another device than the first: `"cuda:1"`, `.cuda(gpu)`, `.to(rank)`."""
    for constant in syntax.all(ast.Constant):
        if isinstance(constant.value, str) and _NUMBERED.match(constant.value):
            yield constant.lineno
    for call in syntax.all(ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        arg = call.args[0] if call.args else None
        if arg is None or method not in {"cuda", "npu", "to"}:
            continue
        name = arg.attr if isinstance(arg, ast.Attribute) else arg.id if isinstance(arg, ast.Name) else ""
        number = isinstance(arg, ast.Constant) and type(arg.value) is int and arg.value > 0
        if number or (method != "to" and not isinstance(arg, ast.Constant)) or _NUMBER_NAME.search(name):
            yield call.lineno


def absolute_module(path: str, node: ast.ImportFrom) -> str:
    """The absolute dotted name of the module that a from-import in the file at `path` names."""
    if not node.level:
        return node.module or ""
    package = module_name(path).split(".")
    keep = max(len(package) - node.level + path.endswith("__init__.py"), 0)
    return ".".join([*package[:keep], *([node.module] if node.module else [])])
