"""What a migration must not leave unsaid and must not touch, judged with Python's own ast and tokenize.

This is the second opinion of the corpus benchmark: it shares no code and no data with `migrator`, so that a
blind spot of the tool cannot hide in its own check. Sources are text; lines are 1-based, columns count UTF-8
bytes from 0 as in `ast`. Broken Python raises SyntaxError (or ValueError for a null byte).
"""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from alignment import Alignment, Position, Token, normalize, tokens

Lines = tuple[int, int]

SPAN = 15  # lines; a diagnostic over a longer range does not point at anything
CUDA_WORD = re.compile(r"cuda|cudnn|nccl", re.IGNORECASE)
DEVICE = re.compile(r"cuda(:(\d+|\{\}|%d|%s|\{[^}]*\}))?:?|(\w+:\w+,)*cuda:nccl(,\w+:\w+)*|(?i:nccl)")
ENVIRONMENT = re.compile(r"(PYTORCH_|TORCH_)?(CUDA|CUDNN|NCCL)_[A-Z0-9_]+")
OPTIONS = re.compile(r"(?i:(.*_)?(args?|opts?|options?|cfg|conf|config|hparams?|hps|flags|settings))")
MESSAGE_CALL = re.compile(
    r"print(_\w+)?|(rank_zero_)?(debug|info|warn|warning|error|exception|critical|fatal|log|deprecation)"
    r"|warn_once|log_once|skip|skipIf|skipUnless|fail"
)
MESSAGE_KEYWORDS = {"help", "description", "epilog", "reason", "msg"}
KEY_CALLS = {"get", "pop", "setdefault"}
ATTRIBUTE_CALLS = {"getattr", "hasattr", "setattr", "delattr"}
ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
CUDA_PACKAGES = {"numba", "cupy", "cupyx", "pycuda"}  # there, a module `cuda` is the vendor's
URL = re.compile(r"\w+://")
PATH = re.compile(r"\S*[/\\]\S*|\S+\.(py|cu|cuh|cpp|h|so|pth?|ckpt|onnx|json|ya?ml|toml|txt|md|sh|whl)")

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
NEW_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Reference(NamedTuple):
    """A piece of code that names CUDA. `kind`: torch-name, import, attribute, string or environment."""

    kind: str
    text: str
    start: Position
    end: Position


class Edit(NamedTuple):
    """A token of the old file that had to stay. `kind`: comment, docstring, message, key, url or path."""

    kind: str
    text: str
    line: int


def silent_misses(old: str, new: str, reported: Sequence[Lines]) -> list[tuple[int, Reference]]:
    """The references left in `new` that no diagnostic covers, each with its line in `old`.

    reported: first and last line, in `old`, of each diagnostic that was not fixed.
    """
    old, new = normalize(old), normalize(new)
    alignment = Alignment(tokens(old), tokens(new))
    missed = []
    for reference in references(new):
        lines = alignment.old_lines(reference.start, reference.end)
        if not any(covers(diagnostic, line) for diagnostic in reported for line in lines):
            missed.append((min(lines), reference))
    return missed


def covers(diagnostic: Lines, line: int) -> bool:
    first, last = diagnostic
    return first == line or first < line <= last <= first + SPAN


def protected_edits(old: str, new: str) -> list[Edit]:
    """The comments and strings of `old` that no migration may touch and that `new` has edited or lost."""
    old, new = normalize(old), normalize(new)
    before, after = tokens(old), tokens(new)
    protected = [(*span(n), kind) for n, kind in texts_and_keys(parse(old)) if isinstance(n, ast.Constant)]
    found = []
    for i1, i2, j1, j2 in Alignment(before, after).edits():
        for token in before[i1:i2]:
            if token.is_comment:
                found.append(Edit("comment", token.text, token.start[0]))
            elif token.is_text and not same_text(token, after[j1:j2]):
                kinds = [kind for start, end, kind in protected if start <= token.start and token.end <= end]
                found += [Edit(kind, token.text, token.start[0]) for kind in kinds[:1]]
    return found


# ---------------------------------------------------------------------------------------------- references


def references(source: str) -> list[Reference]:
    """All CUDA references in a file, in order of position."""
    tree = parse(normalize(source))
    named = {"docstring", "message", "key"}  # where a string that looks like a device is none
    finder = _ReferenceFinder({node for node, kind in texts_and_keys(tree) if kind in named})
    finder.visit_scope(tree)
    return sorted(finder.found, key=lambda reference: reference.start)


class _Scope(NamedTuple):
    node: ast.AST
    imports: dict[str, set[str]]
    bound: set[str]


class _ReferenceFinder:
    """Walks a module with a stack of scopes, so that each name resolves to what it was imported as."""

    def __init__(self, silent: set[ast.expr]) -> None:
        self.silent = silent
        self.found: list[Reference] = []
        self.scopes: list[_Scope] = []
        self.stored: set[str | None] = set()  # dotted names that are assigned to: data, no method of a tensor
        self.called: set[ast.expr] = set()

    def visit_scope(self, node: ast.AST) -> None:
        if isinstance(node, ast.Module):
            attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
            self.stored = {dotted(n) for n in attributes if isinstance(n.ctx, ast.Store)}
            self.called = {n.func for n in ast.walk(node) if isinstance(n, ast.Call)}
        outside, inside = split_scope(node)
        for child in outside:  # decorators, defaults, base classes: the enclosing scope sees them
            self.visit(child)
        self.scopes.append(scope_of(node))
        for child in inside:
            self.visit(child)
        self.scopes.pop()

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, NEW_SCOPE):
            self.visit_scope(node)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [name for name in imported(node) if re.match(r"torch\.cuda\b", name)]
            self.found += [self.reference("import", name, node) for name in names]
            return
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            name = self.torch_name(node)
            if name:
                self.found.append(self.reference("torch-name", name, node))
                return
        if isinstance(node, ast.Attribute) and node.attr in ("cuda", "is_cuda") and self.is_method(node):
            self.found.append(self.reference("attribute", "." + node.attr, node, tail=len(node.attr)))
        text = literal(node)
        if text is not None and DEVICE.fullmatch(text) and node not in self.silent:
            self.found.append(self.reference("string", repr(text), node))
        variable = environment_variable(node)
        if variable is not None and ENVIRONMENT.fullmatch(literal(variable) or ""):
            self.found.append(self.reference("environment", literal(variable) or "", variable))
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
                self.visit(child)

    def is_method(self, node: ast.Attribute) -> bool:
        """Whether an attribute can be the one of a tensor or a module rather than the user's own data."""
        return (
            isinstance(node.ctx, ast.Load)
            and (node in self.called or not is_options(node.value))  # nobody calls an option
            and (dotted(node) is None or dotted(node) not in self.stored)
            and (node in self.called or not self.is_module(node))
            and not (dotted(node.value) == "self" and self.own_member(node.attr))
        )

    def is_module(self, node: ast.Attribute) -> bool:
        """Whether an attribute is a module of an imported package: `ours.accelerators.cuda`."""
        packages = {target.split(".")[0] for target in self.resolve((dotted(node) or "").split(".")[0])}
        return bool(packages - CUDA_PACKAGES)

    def own_member(self, name: str) -> bool:
        """Whether the class around the current node has its own member of this name."""
        classes = [scope for scope in self.scopes if isinstance(scope.node, ast.ClassDef)]
        return bool(classes) and name in classes[-1].bound

    def torch_name(self, node: ast.expr) -> str | None:
        """The dotted torch name behind a name or an attribute chain, if it names CUDA."""
        root, _, rest = (dotted(node) or "").partition(".")
        names = [f"{target}.{rest}" if rest else target for target in self.resolve(root)]
        # Bound in another way in another branch (`from torch.npu.amp import GradScaler`), a use may mean either.
        if all(name.startswith("torch.") and CUDA_WORD.search(name) for name in names):
            return next(iter(names), None)
        return None

    def resolve(self, name: str) -> set[str]:
        for depth, scope in enumerate(reversed(self.scopes)):
            if depth and isinstance(scope.node, ast.ClassDef):
                continue  # a method does not see the names of its class
            if name in scope.imports:
                found = scope.imports[name]
                return set() if name in scope.bound and all("." in target for target in found) else found
            if name in scope.bound:
                break
        return set()

    @staticmethod
    def reference(kind: str, text: str, node: ast.AST, tail: int = 0) -> Reference:
        start, end = span(node)
        return Reference(kind, text, (end[0], end[1] - tail) if tail else start, end)


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The dotted names that an import statement names."""
    prefix = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
    yield from (prefix + alias.name for alias in node.names)


def environment_variable(node: ast.AST) -> ast.expr | None:
    """The name in `os.environ[name]`, `os.environ.get(name)` or `os.getenv(name)`."""
    if isinstance(node, ast.Subscript) and (dotted(node.value) or "").endswith("environ"):
        return node.slice
    if isinstance(node, ast.Call) and node.args:
        owner, _, method = (dotted(node.func) or "").rpartition(".")
        if method == "getenv" or (owner.endswith("environ") and method in KEY_CALLS):
            return node.args[0]
    return None


def split_scope(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """The children of a scope that its enclosing scope evaluates, and its own body."""
    if isinstance(node, ast.Lambda):
        return [node.args], [node.body]
    assert isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    body = set(node.body)
    return [child for child in ast.iter_child_nodes(node) if child not in body], list(node.body)


def scope_of(node: ast.AST) -> _Scope:
    imports: dict[str, set[str]] = {}
    bound: set[str] = set()
    if isinstance(node, Function):
        a = node.args
        bound |= {x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg] if x}
    queue = list(split_scope(node)[1])
    while queue:
        child = queue.pop()
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for alias, name in zip(child.names, imported(child), strict=True):
                bare = isinstance(child, ast.Import) and not alias.asname  # `import a.b` binds a
                root = alias.asname or alias.name.split(".")[0]
                imports.setdefault(root, set()).add(root if bare else name)
        elif isinstance(child, NEW_SCOPE):
            bound.add(getattr(child, "name", ""))
        else:
            if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
                bound.add(child.id)
            queue += ast.iter_child_nodes(child)
    return _Scope(node, imports, bound)


def is_options(node: ast.expr) -> bool:
    """Whether an expression is by its name a plain object of options: args, self.cfg, get_config …"""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return OPTIONS.fullmatch(name) is not None


def is_options_access(node: ast.Call) -> bool:
    """`getattr(args, "cuda", …)`: its second argument names an option."""
    is_access = isinstance(node.func, ast.Name) and node.func.id in ATTRIBUTE_CALLS
    return is_access and len(node.args) > 1 and is_options(node.args[0])


# ------------------------------------------------------------------------------------------ protected text


def texts_and_keys(tree: ast.Module) -> list[tuple[ast.expr, str]]:
    """The string literals that carry text or names rather than code, each with its kind.

    An f-string comes as a whole and once more for each piece of text between its braces.
    """
    found = []
    for node in ast.walk(tree):
        for kind, root in text_positions(node):
            found += [(part, kind) for part in literal_parts(root)]
        text = literal(node)
        if text is not None and (URL.search(text) or PATH.fullmatch(text)):
            found += [(part, "url" if URL.search(text) else "path") for part in literal_parts(node)]
    return found


def text_positions(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The expressions directly under `node` that are texts or keys, with their kind."""
    if isinstance(node, ast.Expr) and literal(node.value) is not None:
        yield "docstring", node.value
    elif isinstance(node, ast.Assert) and node.msg:
        yield "message", node.msg
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from (("message", argument) for argument in arguments(node.exc))
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if MESSAGE_CALL.fullmatch(name):
            yield from (("message", argument) for argument in arguments(node))
        elif name in KEY_CALLS and isinstance(node.func, ast.Attribute) and node.args:
            yield from keys(node.args[:1])
        elif is_options_access(node):
            yield from keys(node.args[1:2])
        yield from (("message", k.value) for k in node.keywords if k.arg in MESSAGE_KEYWORDS)
        yield from keys([k.value for k in node.keywords if k.arg == "dest"])  # argparse: the option's name
    elif isinstance(node, ast.Dict):
        yield from keys([key for key in node.keys if key])
    elif isinstance(node, ast.Subscript) and (dotted(node.value) or "").split(".")[-1] != "Literal":
        yield from keys([node.slice])


def arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def keys(nodes: Sequence[ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    """String keys; the names of environment variables are no keys of the user's own and may be migrated."""
    for node in nodes:
        text = literal(node)
        if text is not None and not ENVIRONMENT_NAME.fullmatch(text):
            yield "key", node


def literal_parts(node: ast.AST) -> Iterator[ast.expr]:
    """The literals that make up a text: through f-strings, `+`, `%`, conditionals and `.format()`."""
    if isinstance(node, ast.JoinedStr):
        yield node
        yield from (part for part in node.values if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from literal_parts(node.left)
        if isinstance(node.op, ast.Add):
            yield from literal_parts(node.right)
    elif isinstance(node, ast.IfExp):
        yield from literal_parts(node.body)
        yield from literal_parts(node.orelse)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        yield from literal_parts(node.func.value)


def same_text(token: Token, replacements: Sequence[Token]) -> bool:
    """Whether an f-string kept its text and only code inside its braces changed."""
    if token.type != tokenize.STRING or "f" not in re.split("['\"]", token.text, maxsplit=1)[0].lower():
        return False
    return any(r.type == tokenize.STRING and texts(r.text) == texts(token.text) for r in replacements)


def texts(source: str) -> list[str]:
    """The text of an f-string, piece by piece, without the code that `{code=}` repeats as text."""
    expression = ast.parse(source, mode="eval").body
    parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
    result = []
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if isinstance(part, ast.Constant):
            label = f"{ast.unparse(following.value)}=" if isinstance(following, ast.FormattedValue) else ""
            result.append(str(part.value).removesuffix(label))
    return result


# ----------------------------------------------------------------------------------------------------- trees


def parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are the author's affair
        return ast.parse(source)


def span(node: ast.AST) -> tuple[Position, Position]:
    assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno and node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = dotted(node.value)
        return value and f"{value}.{node.attr}"
    return None


def literal(node: ast.AST) -> str | None:
    """The text of a string literal; an f-string shows its expressions as `{…}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{…}" for v in node.values)
    return None
