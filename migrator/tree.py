"""One parsed file: its libcst nodes by type, their parents, and their character spans.

One plain stack walk replaces libcst's visitors and metadata providers, which cost several times the parse.
Spans come from one run of libcst's own code generator that only adds up lengths; they are computed when a
file first asks for one.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar, cast

import libcst as cst
from libcst._nodes.internal import CodegenState

from migrator.source import Source

NodeT = TypeVar("NodeT", bound=cst.CSTNode)

# Whitespace and punctuation: no rule looks at them, and they are half of all nodes.
_SKIPPED = (
    "whitespace", "lpar", "rpar", "leading_lines", "header", "footer", "comma", "semicolon",
    "lines_after", "indent", "newline", "trailing", "lbrace", "rbrace", "lbracket", "rbracket",
)  # fmt: skip
# The dotted names of import statements are no expressions: whoever wants them asks the statement.
_FIELDS: dict[type, tuple[str, ...]] = {cst.ImportAlias: (), cst.ImportFrom: ("names",)}


class SpanError(ValueError):
    """The code generator does not reproduce the file at this place, so no edit there can be trusted."""


def _fields(node_type: type) -> tuple[str, ...]:
    names = [
        field.name
        for field in dataclasses.fields(cast("type[cst.CSTNode]", node_type))
        if not any(word in field.name for word in _SKIPPED)
    ]
    found = _FIELDS[node_type] = tuple(reversed(names))
    return found


class _Recorder:
    """The context manager that the code generator opens around a node without its own parentheses."""

    __slots__ = ("end_node", "node", "spans", "start")

    def __init__(self, spans: _Spans, node: cst.CSTNode, end_node: cst.CSTNode | None) -> None:
        self.spans, self.node, self.end_node = spans, node, end_node

    def __enter__(self) -> None:
        self.start = self.spans.offset

    def __exit__(self, *_: object) -> None:
        found = self.spans.found
        end = self.spans.offset if self.end_node is None else found[self.end_node][1]
        found[self.node] = (self.start, end)


class _Spans(CodegenState):
    """A code generator state that counts characters."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(default_indent=module.default_indent, default_newline=module.default_newline)
        self.offset = 0
        self.found: dict[cst.CSTNode, tuple[int, int]] = {}
        self._starts: list[int] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self.offset += len(value)

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def pop_trailing_newline(self) -> None:
        if self.tokens:
            self.offset -= len(self.tokens.pop())

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._starts.append(self.offset)

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._starts.pop()
        if node not in self.found:
            self.found[node] = (start, self.offset)

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Recorder:
        return _Recorder(self, node, end_node)


class Tree:
    """A parsed file.  Raises libcst.ParserSyntaxError on broken code, RecursionError where it is nested too deeply."""

    def __init__(self, source: Source) -> None:
        self.source = source
        source.check_depth()
        self.module = cst.parse_module(source.parse_text)
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._by_type: defaultdict[type, list[cst.CSTNode]] = defaultdict(list)
        self._spans: _Spans | None = None
        self._trusted = 0
        self._walk()

    def _walk(self) -> None:
        parents, by_type = self.parents, self._by_type
        stack: list[cst.CSTNode] = [self.module]
        while stack:
            node = stack.pop()
            node_type = type(node)
            by_type[node_type].append(node)
            fields = _FIELDS.get(node_type)
            for name in _fields(node_type) if fields is None else fields:
                value = getattr(node, name)
                if isinstance(value, cst.CSTNode):
                    parents[value] = node
                    stack.append(value)
                elif isinstance(value, (list, tuple)):
                    for item in reversed(value):
                        parents[item] = node
                        stack.append(item)

    def all(self, node_type: type[NodeT]) -> list[NodeT]:
        """Every node of exactly this type, roughly in source order."""
        return cast("list[NodeT]", self._by_type.get(node_type, []))

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The node's parents, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def enclosing(self, node: cst.CSTNode, *types: type[NodeT]) -> NodeT | None:
        """The innermost ancestor of one of these types."""
        return next((a for a in self.ancestors(node) if isinstance(a, types)), None)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Start and end offset of a node in the file's text, without its own parentheses; SpanError if unsure."""
        if self._spans is None:
            self._spans = _Spans(self.module)
            self.module._codegen(self._spans)
            self._trusted = _common_prefix("".join(self._spans.tokens), self.source.parse_text)
        start, end = self._spans.found[node]
        if end > self._trusted:
            raise SpanError(f"cannot locate line {self.source.position(start)[0]} exactly")
        return start, end

    def text(self, node: cst.CSTNode) -> str:
        """The file's own text of a node."""
        start, end = self.span(node)
        return self.source.text[start:end]


def _common_prefix(generated: str, text: str) -> int:
    if generated == text:
        return len(text)
    shared = min(len(generated), len(text))
    return next((i for i in range(shared) if generated[i] != text[i]), shared)
