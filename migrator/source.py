"""Bytes and text: encoding cookie, byte-order mark and newlines, so that untouched bytes stay untouched.

Everything after this stage works on `Source.text` and on character offsets into it; `Source.encode` is the
only way back.  Decoding is refused (SourceError) unless encoding the text again gives the very same bytes.
"""

from __future__ import annotations

import ast
import codecs
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

_LINE_END = re.compile(r"\r\n|\r|\n")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LEADING_FORM_FEEDS = re.compile(r"(?:(?<=[\r\n])|\A)\f+")
_COMMENT = re.compile(r"[ \t]*#[^\r\n]*")
_BRACKETS = re.compile(r"[()\[\]{}]")
_LONG_CHAIN = re.compile(r"[-+~]{500}|(?:\bnot\s+){500}")
_MAX_DEPTH = 200  # CPython's own limit for brackets
_PYTHON_2 = re.compile(
    r"""^\s*(print\b\s*[^\s(=.,:\])]|exec\s+\S|raise\s+[\w.]+\s*,|except\b.*,\s*\w+\s*:)|<>|`|(?<![\w.])0\d+L?\b|\dL\b|\bur["']"""
)


class SourceError(ValueError):
    """The bytes are not text in the encoding that they declare."""


@dataclass(frozen=True)
class Complaint:
    """What Python's own parser says against a text, and where (1-based)."""

    message: str
    line: int
    column: int
    is_python_2: bool


@dataclass(frozen=True)
class Source:
    """A decoded file.  `text` has no byte-order mark and keeps every newline as it was."""

    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """The bytes of `text` in this file's encoding; SourceError where the encoding lacks a character."""
        try:
            body = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise SourceError(f"the result has characters that {self.encoding} cannot encode: {error}") from error
        return codecs.BOM_UTF8 + body if self.bom else body

    @cached_property
    def parse_text(self) -> str:
        """The text that the parser sees: as long as `text`, with form feeds and lone carriage returns normalised.

        libcst drops or moves these two characters.  A form feed at the start of a line counts as nothing for
        its indentation, which an empty line in its place keeps true; elsewhere it is a blank.
        """
        if "\f" not in self.text and "\r" not in self.text:
            return self.text
        text = _LEADING_FORM_FEEDS.sub(lambda m: "\n" * len(m[0]), self.text).replace("\f", " ")
        return _LONE_RETURN.sub("\n", text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in _LINE_END.finditer(self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column (in characters) of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, with its newline."""
        starts = self._line_starts
        return self.text[starts[line - 1] : starts[line] if line < len(starts) else len(self.text)]

    def past_comment(self, offset: int) -> int:
        """Where the comment ends that follows on the same line; the offset itself where none does."""
        comment = _COMMENT.match(self.text, offset)
        return comment.end() if comment else offset

    def joined(self, start: int, statements: Sequence[str]) -> str:
        """Statements in the place of one at `start`: on lines of their own, or behind `;` where it shares its line."""
        begin = max(self.text.rfind("\n", 0, start), self.text.rfind("\r", 0, start)) + 1
        indent = self.text[begin:start]
        return (self.newline + indent if not indent.strip() else "; ").join(statements)

    def check_depth(self) -> None:
        """Refuse what would overflow the parser's stack: libcst's ends the process instead of raising."""
        depth = deepest = 0
        for bracket in _BRACKETS.findall(self.parse_text):
            depth += 1 if bracket in "([{" else -1
            deepest = max(deepest, depth)
        if deepest <= _MAX_DEPTH and not _LONG_CHAIN.search(self.parse_text):
            return
        # Brackets in strings and comments were counted too: Python's parser, which only raises, decides.
        try:
            self._parse()
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise RecursionError("the code is nested too deeply") from error

    def complaint(self) -> Complaint | None:
        """What Python's own parser says against the text; None where it takes it, or gives up itself."""
        try:
            self._parse()
        except SyntaxError as error:
            line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
            text = self.line_text(line) if line <= len(self._line_starts) else ""
            return Complaint(error.msg, line, column, _PYTHON_2.search(text) is not None)
        except (ValueError, RecursionError, MemoryError):
            pass
        return None

    def _parse(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(self.parse_text)

    @cached_property
    def newline(self) -> str:
        """The newline that the file uses most."""
        found = _LINE_END.findall(self.text)
        return max(("\n", "\r\n", "\r"), key=found.count) if found else "\n"


def decode(raw: bytes) -> Source:
    """Decode Python source by its BOM and PEP 263 cookie; raises SourceError with what to do."""
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(raw).readline)
    except SyntaxError as error:
        if not error.msg.startswith("invalid or missing"):
            raise SourceError(f"{error.msg}; correct the `# -*- coding: … -*-` line") from error
        encoding = "utf-8"  # not that either: decoding tells which byte is wrong
    bom = raw.startswith(codecs.BOM_UTF8)
    body = raw[len(codecs.BOM_UTF8) :] if bom else raw
    if encoding == "utf-8-sig":
        encoding = "utf-8"
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"line {line}: byte 0x{body[error.start]:02x} is not {encoding}; "
            "convert the file, or declare its encoding in a `# -*- coding: … -*-` line"
        ) from error
    if text.encode(encoding) != body:
        raise SourceError(f"cannot be written back unchanged as {encoding}; convert the file to UTF-8 first")
    return Source(text, encoding, bom)
