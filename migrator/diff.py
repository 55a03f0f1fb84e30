"""Unified diffs of bytes that `git apply` accepts, whatever the encoding, line ends or name of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

_CONTEXT = 3
_ESCAPES = {byte: b"\\%c" % letter for byte, letter in zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True)}
_BOLD, _RED, _GREEN, _CYAN, _RESET = b"\x1b[1m", b"\x1b[31m", b"\x1b[32m", b"\x1b[36m", b"\x1b[0m"
_COLOURS = {b"@": _CYAN, b"-": _RED, b"+": _GREEN}


def unified(path: str, before: bytes, after: bytes, *, new_file: bool = False) -> bytes:
    """The diff that turns `before` into `after`; empty if they are equal (and the file is not new).

    `path` is posix; bytes of a name that are no text come as surrogate escapes, as `os.fsdecode` gives them.
    Lines end at b"\\n" only, so that carriage returns and form feeds stay content.
    """
    if before == after and not new_file:
        return b""
    old_name, new_name = _quote("a/" + path), _quote("b/" + path)
    pieces = [b"diff --git %b %b\n" % (old_name, new_name)]
    if new_file:
        pieces.append(b"new file mode 100644\n")
    if before != after:
        pieces.append(b"--- /dev/null\n" if new_file else b"--- %b\n" % _ended(old_name))
        pieces.append(b"+++ %b\n" % _ended(new_name))
        pieces += _hunks(_lines(before), _lines(after))
    return b"".join(pieces)


def body(before: bytes, after: bytes) -> bytes:
    """The lines of a small text with a mark in front of each: kept, removed or added; no headers."""
    old, new = _lines(before), _lines(after)
    return b"".join(_changes(old, new, SequenceMatcher(None, old, new).get_opcodes()))


def colourise(diff: bytes) -> bytes:
    """The same diff with ANSI colours for a terminal."""
    pieces = []
    in_hunk = False
    for line in _lines(diff):
        # "--- " and "+++ " are headers only outside a hunk: a removed line may start with "-- ".
        in_hunk = line.startswith(b"@@ ") or (in_hunk and not line.startswith(b"diff --git "))
        colour = _COLOURS.get(line[:1], b"") if in_hunk else _BOLD
        text = line.removesuffix(b"\n")
        pieces.append(b"%b%b%b\n" % (colour, text, _RESET) if colour else line)
    return b"".join(pieces)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their b"\\n"; bytes.splitlines would also split at carriage returns."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    # autojunk skips frequent lines, which only costs a smaller diff, and keeps large files fast.
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        old_range = _range(group[0][1], group[-1][2])
        new_range = _range(group[0][3], group[-1][4])
        yield b"@@ -%b +%b @@\n" % (old_range, new_range)
        yield from _changes(old, new, group)


def _changes(
    old: Sequence[bytes], new: Sequence[bytes], opcodes: Sequence[tuple[str, int, int, int, int]]
) -> Iterator[bytes]:
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal":
            yield from (_marked(b" ", line) for line in old[i1:i2])
        else:
            yield from (_marked(b"-", line) for line in old[i1:i2])
            yield from (_marked(b"+", line) for line in new[j1:j2])


def _range(start: int, stop: int) -> bytes:
    """Lines [start, stop) as a hunk header counts them: from 1, an empty range by the line before it."""
    length = stop - start
    if length == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if length else start, length)


def _marked(mark: bytes, line: bytes) -> bytes:
    if line.endswith(b"\n"):
        return mark + line
    return mark + line + b"\n\\ No newline at end of file\n"


def _quote(name: str) -> bytes:
    """The name as git writes it: in C-style quotes, other bytes in octal, if it has any awkward byte."""
    raw = os.fsencode(name)
    quoted = b"".join(_ESCAPES.get(byte) or (b"%c" if 32 <= byte < 127 else b"\\%03o") % byte for byte in raw)
    return raw if quoted == raw else b'"%b"' % quoted


def _ended(name: bytes) -> bytes:
    """A name with a space gets a tab behind it, which tells git (and patch) where the name ends."""
    return name + b"\t" if b" " in name else name
