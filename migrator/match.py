"""What a handler gets: the place in the code, what it means, and the edits that can be made there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from migrator import moves, owners
from migrator.edits import Edit, apply
from migrator.guards import cuda_only_reason
from migrator.names import Binding, Reference, dotted
from migrator.outcome import Fix
from migrator.roles import Role, Roles, Verdict

if TYPE_CHECKING:
    from migrator import api
    from migrator.context import FileContext


LONGEST_SHOWN = 80


def _brief(text: str) -> str:
    """One line of a text, or its end where it is long: names and methods are renamed at their end."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else "…" + line[-LONGEST_SHOWN:]


@dataclass(eq=False)
class Match:
    """A place in a file."""

    file: FileContext
    node: cst.CSTNode

    @property
    def text(self) -> str:
        """The file's own text of the node."""
        return self.file.tree.text(self.node)

    def replace(self, node: cst.CSTNode, text: str) -> Edit:
        """Put `text` in the place of a node (its own parentheses stay)."""
        return Edit(*self.file.tree.span(node), text)

    def insert_before(self, node: cst.CSTNode, text: str) -> Edit:
        """Put `text` right before a node."""
        start, _ = self.file.tree.span(node)
        return Edit(start, start, text)

    def insert_after(self, node: cst.CSTNode, text: str) -> Edit:
        """Put `text` right behind a node."""
        _, end = self.file.tree.span(node)
        return Edit(end, end, text)

    def literal(self, text: str) -> str:
        """A string literal in the quotes that the file uses most."""
        quote = '"' if self.file.source.text.count('"') >= self.file.source.text.count("'") else "'"
        return f"{quote}{text}{quote}"

    def change(self, edits: Iterable[Edit]) -> str:
        """`before → after` for a message: what these edits make of the node's text, each side on one line."""
        start, end = self.file.tree.span(self.node)
        near = [edit for edit in edits if edit.start <= end and start <= edit.end]
        last = max([end, *(edit.end for edit in near)])
        after = apply(self.file.source.text[:last], near)[min([start, *(edit.start for edit in near)]) :]
        before, after = _brief(self.text), _brief(after)
        return f"{before} → {after}" if after else f"{before} is taken out"

    def lines_like(self, statement: cst.CSTNode, lines: list[str]) -> str:
        """Several statements in the place of one, at its indentation."""
        start, _ = self.file.tree.span(statement)
        return self.file.source.joined(start, lines)

    @cached_property
    def guarded(self) -> str | None:
        """Why this test guards CUDA-only machinery that an NPU must not reach, or None."""
        return cuda_only_reason(self.file, self.node)

    def parent(self) -> cst.CSTNode | None:
        """The node around this one."""
        return self.file.tree.parents.get(self.node)


@dataclass(eq=False)
class Call:
    """The arguments of a call."""

    file: FileContext
    node: cst.Call

    @property
    def has_star(self) -> bool:
        """Whether `*args` or `**kwargs` hide some arguments."""
        return any(arg.star for arg in self.node.args)

    @property
    def positional(self) -> list[cst.Arg]:
        """The arguments without a keyword, up to the first star."""
        found: list[cst.Arg] = []
        for arg in self.node.args:
            if arg.star:
                break
            if arg.keyword is None:
                found.append(arg)
        return found

    @property
    def keywords(self) -> dict[str, cst.Arg]:
        """The keyword arguments by name."""
        return {arg.keyword.value: arg for arg in self.node.args if arg.keyword is not None}

    def argument(self, index: int, keyword: str | None = None) -> cst.Arg | None:
        """The argument at a position or of a name; None when it is not given (or hidden by a star)."""
        if keyword is not None and keyword in self.keywords:
            return self.keywords[keyword]
        positional = self.positional
        return positional[index] if 0 <= index < len(positional) else None

    def insert_first(self, text: str) -> Edit:
        """Add a first positional argument."""
        if self.node.args:
            start, _ = self.file.tree.span(self.node.args[0])
            return Edit(start, start, f"{text}, ")
        _, end = self.file.tree.span(self.node)
        return Edit(end - 1, end - 1, text)

    def append(self, text: str) -> Edit:
        """Add a last argument."""
        if self.node.args:
            end = self._past_parentheses(self.node.args[-1].value)
            return Edit(end, end, f", {text}")
        _, end = self.file.tree.span(self.node)
        return Edit(end - 1, end - 1, text)

    def _past_parentheses(self, value: cst.BaseExpression) -> int:
        last = value.rpar[-1] if value.rpar else value
        return self.file.tree.span(last)[1]

    def name_argument(self, arg: cst.Arg, keyword: str) -> Edit:
        """Turn a positional argument into a keyword argument."""
        start, _ = self.file.tree.span(arg)
        return Edit(start, start, f"{keyword}=")


def call_of(file: FileContext, node: cst.CSTNode) -> Call | None:
    """The call whose function is this node."""
    parent = file.tree.parents.get(node)
    return Call(file, parent) if isinstance(parent, cst.Call) and parent.func is node else None


@dataclass(eq=False)
class Name(Match):
    """A use of an imported name: `node` is the dotted expression, `qualified` what it stands for."""

    node: cst.BaseExpression
    reference: Reference
    qualified: str

    @property
    def call(self) -> Call | None:
        """The call of this name, if it is called."""
        return call_of(self.file, self.node)

    @property
    def row(self) -> api.Mapping | None:
        """What the CUDA map says of the name, or of its nearest known parent."""
        return self.file.target.mapping_for(self.qualified)

    @property
    def destination(self) -> str | None:
        """The name of the same meaning in the target's torch_npu, or None."""
        return moves.destination(self.qualified, self.file.target)

    def rename(self, qualified: str) -> list[Edit]:
        """The smallest edits that make this expression name something else."""
        return moves.respell(self.file, self.reference, self.node, qualified)


@dataclass(eq=False)
class Method(Match):
    """`receiver.attribute`, where the receiver is no module."""

    node: cst.Attribute

    @property
    def attribute(self) -> str:
        """The attribute's name."""
        return self.node.attr.value

    @property
    def receiver(self) -> cst.BaseExpression:
        """What stands before the dot."""
        return self.node.value

    @property
    def call(self) -> Call | None:
        """The call of this method, if it is called here."""
        return call_of(self.file, self.node)

    @cached_property
    def owner(self) -> owners.Owner:
        """Who owns this attribute: torch, the user, another library, a plain options object."""
        return owners.owner_of(self.file, self.node)

    def rename(self, attribute: str) -> list[Edit]:
        """Name another attribute."""
        return [self.replace(self.node.attr, attribute)]


@dataclass(eq=False)
class Text(Match):
    """A string literal, an f-string or adjacent literals; `value` has `{}` for each f-string expression."""

    node: cst.SimpleString | cst.FormattedString | cst.ConcatenatedString
    value: str

    def role(self, sink: str = "device") -> Verdict:
        """What the string is for: see migrator.roles."""
        return self.file.memo(Roles).of(self.node, sink)

    @property
    def is_bytes(self) -> bool:
        """Whether it is a bytes literal."""
        return isinstance(self.node, cst.SimpleString) and "b" in self.node.prefix.lower()

    def replace_words(self, pattern: str, text: str) -> list[Edit]:
        """Replace what a regular expression finds in the literal parts (f-string expressions stay).

        Where adjacent literals split the word there is nothing to find: the list is empty.
        """
        return [
            Edit(start + m.start(), start + m.end(), m.expand(text))
            for start, piece in self._pieces(self.node)
            for m in re.finditer(pattern, piece)
        ]

    def _pieces(self, node: cst.CSTNode) -> Iterator[tuple[int, str]]:
        if isinstance(node, cst.ConcatenatedString):
            yield from self._pieces(node.left)
            yield from self._pieces(node.right)
        elif isinstance(node, cst.FormattedString):
            for part in node.parts:
                if isinstance(part, cst.FormattedStringText):
                    yield self.file.tree.span(part)[0], part.value
        elif isinstance(node, cst.SimpleString):
            start, _ = self.file.tree.span(node)
            opening = len(node.prefix) + len(node.quote)
            yield start + opening, node.value[opening : len(node.value) - len(node.quote)]


@dataclass(eq=False)
class Keyword(Match):
    """A keyword argument: `node` is the argument, `call` the call it belongs to."""

    node: cst.Arg
    call: Call

    @property
    def name(self) -> str:
        """The keyword."""
        return self.node.keyword.value if self.node.keyword else ""

    @property
    def function(self) -> str | None:
        """The qualified name of what is called, where it is known."""
        return self.file.names.resolve(self.call.node.func)

    @property
    def function_name(self) -> str:
        """The last name of what is called, resolved or not."""
        return (self.function or dotted(self.call.node.func) or "").rpartition(".")[2]


@dataclass(eq=False)
class Import(Match):
    """An import statement; `bindings` are the names it binds below the module that the rule asked for."""

    node: cst.Import | cst.ImportFrom
    module: str
    bindings: list[Binding]


@dataclass(eq=False)
class FileMatch(Match):
    """The file as a whole; for `on_change`, with the fixes made in it and the nodes that they belong to."""

    node: cst.Module
    fixes: Sequence[tuple[Fix, cst.CSTNode]] = ()


__all__ = ["Call", "FileMatch", "Import", "Keyword", "Match", "Method", "Name", "Role", "Text", "call_of"]
