"""Which tokens of a rewritten file are which of the original, so that edits can be told from moves.

Lines are 1-based, columns count UTF-8 bytes from 0, as in `ast`.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

Position = tuple[int, int]


def normalize(source: str) -> str:
    """Without BOM and with `\\n` line ends, so that ast and tokenize count the same lines."""
    return source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


class Token(NamedTuple):
    type: int
    text: str
    start: Position
    end: Position

    @property
    def is_comment(self) -> bool:
        return self.type == tokenize.COMMENT

    @property
    def is_text(self) -> bool:
        return self.type in TEXT_TYPES


TEXT_TYPES = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}  # 3.12 splits f-strings
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def tokens(source: str) -> list[Token]:
    """The tokens that carry meaning, without line ends and indentation."""
    lines = source.split("\n")

    def position(line: int, column: int) -> Position:
        return line, len(lines[line - 1][:column].encode())

    return [
        Token(t.type, t.string, position(*t.start), position(*t.end))
        for t in tokenize.generate_tokens(io.StringIO(source).readline)
        if t.type not in LAYOUT
    ]


class Alignment:
    """Which tokens of the new file are which of the old: line by line first, then token by token."""

    def __init__(self, old: list[Token], new: list[Token]) -> None:
        self.old, self.new = old, new
        self.blocks = list(self._align())

    def _align(self) -> Iterator[tuple[str, int, int, int, int]]:
        old_rows, new_rows = rows(self.old), rows(self.new)
        old_at, new_at = offsets(old_rows), offsets(new_rows)
        for tag, i1, i2, j1, j2 in matching(old_rows, new_rows):
            i, j, i_end, j_end = old_at[i1], new_at[j1], old_at[i2], new_at[j2]
            if tag != "replace":
                yield tag, i, i_end, j, j_end
                continue
            a, b = [t.text for t in self.old[i:i_end]], [t.text for t in self.new[j:j_end]]
            yield from ((t, i + a1, i + a2, j + b1, j + b2) for t, a1, a2, b1, b2 in matching(a, b))

    def edits(self) -> Iterator[tuple[int, int, int, int]]:
        yield from ((i1, i2, j1, j2) for tag, i1, i2, j1, j2 in self.blocks if tag != "equal")

    def old_lines(self, start: Position, end: Position) -> set[int]:
        """The lines of the old file that the tokens of new[start:end] come from."""
        lines: set[int] = set()
        for tag, i1, i2, j1, j2 in self.blocks:
            hits = [j for j in range(j1, j2) if self.new[j].start < end and start < self.new[j].end]
            if hits and tag == "equal":
                lines |= {line for j in hits for line in self._lines(i1 + j - j1)}
            elif hits:  # new text: it stands for what it replaced, or else for what it follows
                replaced = range(i1, i2) or [max(i1 - 1, 0)]
                lines |= {line for i in replaced for line in self._lines(i)}
        return lines

    def _lines(self, index: int) -> range:
        return range(self.old[index].start[0], self.old[index].end[0] + 1) if self.old else range(1, 2)


def matching(a: Sequence[object], b: Sequence[object]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def rows(sequence: list[Token]) -> list[tuple[str, ...]]:
    """The texts of the tokens, grouped by the line they start on."""
    grouped: dict[int, list[str]] = {}
    for token in sequence:
        grouped.setdefault(token.start[0], []).append(token.text)
    return [tuple(row) for row in grouped.values()]


def offsets(groups: Sequence[Sequence[str]]) -> list[int]:
    """The index of the first token of each row, and the number of tokens last."""
    result = [0]
    for group in groups:
        result.append(result[-1] + len(group))
    return result
