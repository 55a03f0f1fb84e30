"""Edits as character spans: choose those that go together, apply them, map offsets back, write the file."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) with `text`; start == end inserts."""

    start: int
    end: int
    text: str


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with every edit made.

    Identical edits count once.  Raises ValueError for an edit outside the text and for edits that overlap:
    `select_non_overlapping` gives a list that does not.
    """
    pieces: list[str] = []
    position = 0
    ordered = sorted(set(edits))
    for left, right in pairwise(ordered):
        if _conflict(left, right):
            raise ValueError(f"edits overlap: {left} and {right}")
    for edit in ordered:
        if not 0 <= edit.start <= edit.end <= len(text):
            raise ValueError(f"edit outside the text of {len(text)} characters: {edit}")
        pieces += text[position : edit.start], edit.text
        position = edit.end
    return "".join(pieces) + text[position:]


def select_non_overlapping(groups: Sequence[Sequence[Edit]]) -> tuple[list[Edit], list[bool]]:
    """Take groups in order, each whole or not at all, while no taken edits overlap.

    Returns the taken edits, sorted, and one flag per group: False for a group that has to wait.  An edit
    that several groups share (the same import line, say) is taken once.  Two different insertions at one
    place overlap, since their order would be arbitrary.  A group that overlaps itself is never taken.
    """
    taken: list[Edit] = []
    flags = []
    for group in groups:
        fresh = sorted(edit for edit in set(group) if not _contains(taken, edit))
        fits = not any(_conflict(left, right) for left, right in pairwise(fresh)) and not any(
            _conflicts_with_neighbours(taken, edit) for edit in fresh
        )
        if fits:
            for edit in fresh:
                insort(taken, edit)
        flags.append(fits)
    return taken, flags


def _contains(ordered: list[Edit], edit: Edit) -> bool:
    index = bisect_left(ordered, edit)
    return index < len(ordered) and ordered[index] == edit


def _conflicts_with_neighbours(ordered: list[Edit], edit: Edit) -> bool:
    index = bisect_left(ordered, edit)
    before, after = ordered[max(index - 1, 0) : index], ordered[index : index + 1]
    return any(_conflict(left, edit) for left in before) or any(_conflict(edit, right) for right in after)


def _conflict(left: Edit, right: Edit) -> bool:
    """Whether two different edits, left sorting before right, touch the same characters or the same gap."""
    return right.start < left.end or (left.start == left.end == right.start == right.end)


class OffsetMap:
    """Maps offsets in a text that was edited in rounds back to the text before the first round."""

    def __init__(self, rounds: tuple[tuple[tuple[int, int, int, int], ...], ...] = ()) -> None:
        self._rounds = rounds

    def then(self, edits: Iterable[Edit]) -> OffsetMap:
        """The map after one more round of (non-overlapping) edits."""
        spans = []
        shift = 0
        for edit in sorted(set(edits)):
            start = edit.start + shift
            shift += len(edit.text) - (edit.end - edit.start)
            spans.append((start, start + len(edit.text), edit.start, edit.end))
        return OffsetMap((*self._rounds, tuple(spans)))

    def back(self, offset: int) -> int:
        """Where `offset` was in the original; inside a replacement: where the replaced text began."""
        for spans in reversed(self._rounds):
            index = bisect_right(spans, offset, key=lambda span: span[0]) - 1
            if index >= 0:
                _, new_end, old_start, old_end = spans[index]
                offset = old_start if offset < new_end else old_end + offset - new_end
        return offset


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file's content: write beside it, flush to disk, rename.  Mode and owner are kept.

    A new file gets the usual permissions.  Raises OSError when the file is read-only or its folder takes
    no new file; the old content is then untouched.  No exception, Ctrl-C included, leaves a temporary file.
    """
    target = Path(path).resolve()
    old = _stat_writable(target)
    beside = target.with_name(f".npu-migrate-{secrets.token_hex(8)}.tmp")
    try:
        # Mode x: the usual permissions (0o666 minus the umask), and never through a planted link.
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _copy_owner_and_mode(old, file.fileno())
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _stat_writable(path: Path) -> os.stat_result | None:
    """The file's status, None if there is no file; PermissionError if it may not be written.

    A rename only asks the folder for permission, and root may do anything: the file's own write bits are
    what its owner meant.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    return status


def _copy_owner_and_mode(old: os.stat_result, descriptor: int) -> None:
    if hasattr(os, "fchown"):
        # Only root may give files away; without it the file belongs to who runs the tool.
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
