"""Where in the user's code an operator was called, found at a few microseconds a call."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

MAX_PLACES = 20_000  # call stacks
MAX_FRAMES = 64  # innermost frames kept of one
MAX_NODES = 1 << 16  # autograd nodes whose origin is known, per thread

SKIP, ENGINE, LIBRARY, USER = range(4)  # kinds of source file; frames of the last two are kept

_PACKAGE = str(Path(__file__).absolute().parent.parent)
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), str(Path(os.__file__).parent))
_INTERACTIVE = ("<stdin>", "<string>", "<ipython-input")
_TORCH = ("torch", "torch_npu")
_ENGINE = str(Path("torch", "autograd", "__init__.py"))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _is_below(filename: str, folders: tuple[str, ...]) -> bool:
    return filename.startswith(tuple(folder + os.sep for folder in folders))


def file_kind(filename: str) -> int:
    """Say whose code a file is: ENGINE (torch's Python door to the autograd engine), SKIP (the rest of torch,
    torch_npu, this package, the standard library), LIBRARY (other installed packages) or USER.
    """
    if filename.startswith("<"):
        return USER if filename.startswith(_INTERACTIVE) else SKIP
    torch = tuple(str(Path(sys.modules[name].__file__ or "").parent) for name in _TORCH if name in sys.modules)
    if _is_below(filename, (_PACKAGE, *torch)):
        return ENGINE if filename.endswith(_ENGINE) else SKIP
    if any(part in filename for part in _INSTALLED):
        return LIBRARY
    return SKIP if _is_below(filename, _STANDARD_LIBRARY) else USER


class Place:
    """A call stack without the frames that are not the user's business, innermost first.

    Places are compared by identity; `Places` keeps one for each call stack.
    """

    __slots__ = ("_backward", "frames", "is_backward")

    def __init__(self, frames: tuple[tuple[CodeType, int], ...], is_backward: bool = False) -> None:
        self.frames = frames  # (code, offset of the instruction)
        self.is_backward = is_backward
        self._backward: Place | None = self if is_backward else None

    def backward(self) -> Place:
        """Return the place of the backward operators of what was called here."""
        if self._backward is None:
            self._backward = Place(self.frames, is_backward=True)
        return self._backward

    def stack(self) -> list[tuple[str, int, str]]:
        """Return (file, line, function) per frame, without launchers around the user's outermost frame."""
        frames = [(code.co_filename, _line(code, offset), code.co_name) for code, offset in self.frames]
        users = [i for i, (filename, _, _) in enumerate(frames) if file_kind(filename) == USER]
        return frames[: users[-1] + 1] if users else frames

    def user_lines(self) -> list[tuple[str, int]]:
        """Return (file, line) of the frames in the user's own code, or of all if there are none; never empty."""
        stack = self.stack()
        own = [frame for frame in stack if file_kind(frame[0]) == USER]
        return [(filename, line) for filename, line, _ in own or stack] or [("", 0)]


def _line(code: CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


class Places:
    """Every call stack met so far, up to MAX_PLACES.

    ``overflow`` stands for those beyond, ``engine`` for the autograd engine at work on its own.
    """

    def __init__(self) -> None:
        self.overflow = Place(())
        self.engine = Place(())
        self._places: dict[tuple[int, ...], Place] = {}
        self._kinds: dict[str, int] = {}

    def of(self, frame: FrameType | None, until_engine: bool = False) -> Place:
        """Return the place of a frame; ``until_engine`` asks for ``engine`` if the autograd engine called it with no
        user code in between.
        """
        innermost = frame
        key: list[int] = []
        kinds = self._kinds
        while frame is not None and len(key) < 2 * MAX_FRAMES:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self._kind(code.co_filename)
            if kind > ENGINE:
                # Ids, as hashing a code object reads all of it; offsets, as f_lineno decodes a table.
                key.append(id(code))
                key.append(frame.f_lasti)
            elif kind == ENGINE and until_engine and not key:
                return self.engine
            frame = frame.f_back
        place = self._places.get(tuple(key))
        return place if place is not None else self._add(tuple(key), innermost)

    def _kind(self, filename: str) -> int:
        kind = file_kind(filename)
        if not filename.startswith("<"):  # made-up names may go on for ever
            self._kinds[filename] = kind
        return kind

    def _add(self, key: tuple[int, ...], frame: FrameType | None) -> Place:
        if len(self._places) >= MAX_PLACES:
            return self.overflow
        frames: list[tuple[CodeType, int]] = []
        while frame is not None and 2 * len(frames) < len(key):
            if self._kind(frame.f_code.co_filename) > ENGINE:
                frames.append((frame.f_code, key[2 * len(frames) + 1]))
            frame = frame.f_back
        return self._places.setdefault(key, Place(tuple(frames)))


class Nodes:
    """Where one thread made its latest MAX_NODES autograd nodes, by their sequence numbers."""

    def __init__(self) -> None:
        self.upcoming = 0
        self._previous: Place | None = None
        self._places: dict[int, tuple[int, Place]] = {}

    def made(self, upcoming: int, place: Place) -> None:
        """Note that an operator runs at ``place`` while the next node is going to be number ``upcoming``.

        The node of an operator is made just before it runs. Others made since the previous operator, like the one
        that wraps an in-place write to a view, belong to that one.
        """
        if upcoming == self.upcoming:
            return
        if self._previous is not None:
            for number in range(max(self.upcoming, upcoming - 8), upcoming - 1):
                self._places[number % MAX_NODES] = number, self._previous
        self._places[(upcoming - 1) % MAX_NODES] = upcoming - 1, place
        self.upcoming = upcoming
        self._previous = place

    def place(self, number: int) -> Place | None:
        """Return where node ``number`` was made, None if that is not known."""
        found = self._places.get(number % MAX_NODES)
        return found[1] if found is not None and found[0] == number else None
