"""Parameters of torch_npu functions and constructors, per wheel."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter as _Inspect
from inspect import _ParameterKind as ParameterKind

from migrator.api._names import canonical, exists
from migrator.api._store import load
from migrator.api._versions import parse, resolve


@dataclass(frozen=True)
class Parameter:
    """One parameter; ``kind`` is one of inspect's parameter kinds, ``default`` is source text or None."""

    name: str
    kind: ParameterKind
    default: str | None


@dataclass(frozen=True)
class Signature:
    """Parameters of a callable without ``self``; of a class: of its constructor."""

    name: str
    parameters: tuple[Parameter, ...]

    def accepts(self, keyword: str) -> bool:
        """Whether the callable takes an argument of this name as a keyword."""
        return any(
            p.kind is _Inspect.VAR_KEYWORD
            or (p.name == keyword and p.kind in (_Inspect.POSITIONAL_OR_KEYWORD, _Inspect.KEYWORD_ONLY))
            for p in self.parameters
        )

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the parameters that can be given by position, in order."""
        kinds = (_Inspect.POSITIONAL_ONLY, _Inspect.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for p in self.parameters if p.kind in kinds)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(_show(self.parameters))})"


def _show(parameters: tuple[Parameter, ...]) -> list[str]:
    shown: list[str] = []
    starred = False
    for index, p in enumerate(parameters):
        if p.kind is _Inspect.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or p.kind is _Inspect.VAR_POSITIONAL
        prefix = {_Inspect.VAR_POSITIONAL: "*", _Inspect.VAR_KEYWORD: "**"}.get(p.kind, "")
        shown.append(prefix + p.name + (f"={p.default}" if p.default is not None else ""))
        following = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if p.kind is _Inspect.POSITIONAL_ONLY and following is not _Inspect.POSITIONAL_ONLY:
            shown.append("/")
    return shown


@lru_cache(maxsize=1024)
def signature(name: str, version: str) -> Signature | None:
    """Signature of a torch_npu callable in that version; None: unknown, or the name does not exist there."""
    history = load("signatures.json")["signatures"].get(canonical(name))
    if history is None or not exists(name, version):
        return None
    wheel = parse(resolve(version).version)
    texts = [text for first, text in history.items() if parse(first) <= wheel]
    return Signature(name, _parameters(texts[-1])) if texts else None


def _parameters(text: str) -> tuple[Parameter, ...]:
    args = ast.parse(f"def f({text}): ...").body[0].args  # type: ignore[attr-defined]
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(d) for d in args.defaults]
    found = [
        Parameter(
            a.arg,
            _Inspect.POSITIONAL_ONLY if i < len(args.posonlyargs) else _Inspect.POSITIONAL_OR_KEYWORD,
            default,
        )
        for i, (a, default) in enumerate(zip(plain, defaults, strict=True))
    ]
    if args.vararg:
        found.append(Parameter(args.vararg.arg, _Inspect.VAR_POSITIONAL, None))
    for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(Parameter(a.arg, _Inspect.KEYWORD_ONLY, ast.unparse(d) if d is not None else None))
    if args.kwarg:
        found.append(Parameter(args.kwarg.arg, _Inspect.VAR_KEYWORD, None))
    return tuple(found)
