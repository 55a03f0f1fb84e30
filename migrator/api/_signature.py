"""Parameters of torch_npu functions, constructors and operators, per wheel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from migrator.api._names import canonical, exists
from migrator.api._store import load
from migrator.api._versions import parse, resolve


class ParameterKind(Enum):
    """How an argument can be given; the same words as inspect.Parameter uses."""

    POSITIONAL_ONLY = "positional-only"
    POSITIONAL_OR_KEYWORD = "positional or keyword"
    VAR_POSITIONAL = "variadic positional"
    KEYWORD_ONLY = "keyword-only"
    VAR_KEYWORD = "variadic keyword"


@dataclass(frozen=True)
class Parameter:
    """One parameter; ``default`` is source text, None means that the argument is required."""

    name: str
    kind: ParameterKind
    default: str | None

    def __str__(self) -> str:
        stars = {ParameterKind.VAR_POSITIONAL: "*", ParameterKind.VAR_KEYWORD: "**"}.get(self.kind, "")
        return stars + self.name + ("" if self.default is None else f"={self.default}")


@dataclass(frozen=True)
class Signature:
    """Parameters of a callable without ``self``; of a class: of its constructor."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str | None = None
    """What an operator's schema says about its result, e.g. "(Tensor, Tensor)"; None for Python functions."""

    def accepts(self, keyword: str) -> bool:
        """Whether the callable takes an argument of this name as a keyword."""
        named = (ParameterKind.POSITIONAL_OR_KEYWORD, ParameterKind.KEYWORD_ONLY)
        return any(
            p.kind is ParameterKind.VAR_KEYWORD or (p.name == keyword and p.kind in named) for p in self.parameters
        )

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the parameters that can be given by position, in order."""
        kinds = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for p in self.parameters if p.kind in kinds)

    def __str__(self) -> str:
        shown: list[str] = []
        previous: ParameterKind | None = None
        for p in self.parameters:
            if previous is ParameterKind.POSITIONAL_ONLY and p.kind is not previous:
                shown.append("/")
            starts_keywords = p.kind is ParameterKind.KEYWORD_ONLY and previous is not p.kind
            if starts_keywords and previous is not ParameterKind.VAR_POSITIONAL:
                shown.append("*")
            shown.append(str(p))
            previous = p.kind
        if previous is ParameterKind.POSITIONAL_ONLY:
            shown.append("/")
        return f"{self.name}({', '.join(shown)})" + (f" -> {self.returns}" if self.returns else "")


@lru_cache(maxsize=1024)
def signature(name: str, version: str) -> Signature | None:
    """Signature of a torch_npu callable in that version; None: unknown, or the name does not exist there.

    An operator with overloads is described by the one without an overload name, if it has that.
    """
    if not exists(name, version):
        return None
    text = _at(load("signatures.json")["signatures"].get(canonical(name), {}), version)
    if text is not None:
        return Signature(name, tuple(_python_parameters(text)))
    operator = canonical(name).removeprefix("torch_npu.")
    schemas = _at(load("operators.json")["operators"].get(operator, {}), version)
    if not schemas:
        return None
    parameters, returns = _split_schema(schemas[0])
    return Signature(name, tuple(_schema_parameters(parameters)), returns)


def _at(changes: dict[str, Any], version: str) -> Any:
    """The value that holds in a version, of an entry that lists the versions in which it changed."""
    wheel = parse(resolve(version).version)
    value = None
    for first, changed in changes.items():
        if parse(first) <= wheel:
            value = changed
    return value


def _python_parameters(text: str) -> Iterator[Parameter]:
    function = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(d) for d in args.defaults]
    for i, (arg, default) in enumerate(zip(plain, defaults, strict=True)):
        only = i < len(args.posonlyargs)
        kind = ParameterKind.POSITIONAL_ONLY if only else ParameterKind.POSITIONAL_OR_KEYWORD
        yield Parameter(arg.arg, kind, default)
    if args.vararg:
        yield Parameter(args.vararg.arg, ParameterKind.VAR_POSITIONAL, None)
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield Parameter(arg.arg, ParameterKind.KEYWORD_ONLY, ast.unparse(value) if value is not None else None)
    if args.kwarg:
        yield Parameter(args.kwarg.arg, ParameterKind.VAR_KEYWORD, None)


def _split_schema(schema: str) -> tuple[str, str]:
    """Parameters and result of "(Tensor self) -> Tensor" or ".out(Tensor self, *, Tensor(a!) out) -> ..."."""
    parameters, _, returns = schema.partition("(")[2].partition(") ->")
    return parameters, returns.strip()


def _schema_parameters(text: str) -> Iterator[Parameter]:
    """Parameters of "Tensor self, Tensor? mask=None, *, int[2] pad=[0, 0]"."""
    kind = ParameterKind.POSITIONAL_OR_KEYWORD
    for part in re.split(r",\s*(?![^\[]*\])", text):
        if part == "*":
            kind = ParameterKind.KEYWORD_ONLY
        elif part:
            declaration, has_default, default = part.partition("=")
            yield Parameter(declaration.split()[-1], kind, default if has_default else None)
