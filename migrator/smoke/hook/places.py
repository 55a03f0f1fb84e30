"""Whose code a frame is, and at which line of the user's tree something happens."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

_LIBRARY = (sysconfig.get_path("stdlib"), str(Path(os.__file__).parent))
_HERE = str(Path(__file__).parent)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Places:
    """Finds the user's lines: those of files below `root`, or else of files that are not installed packages."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip(os.sep) + os.sep
        self._own: dict[str, bool] = {}

    def current(self) -> tuple[str, int] | None:
        """(file, line) of the innermost frame in the user's code; None in a thread that has none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            filename = frame.f_code.co_filename
            own = self._own.get(filename)
            if own is None:
                own = self._own[filename] = self._is_own(filename)
            if own:
                return filename, frame.f_lineno
            frame = frame.f_back
        return None

    def _is_own(self, filename: str) -> bool:
        if filename.startswith("<"):
            return False
        path = str(Path(filename).absolute())
        return path.startswith(self._root) and not any(part in path[len(self._root) - 1 :] for part in _INSTALLED)


def called_by_torch(depth: int = 2) -> bool:
    """Whether the caller of the calling function is torch, the standard library or this hook."""
    return _is_internal(sys._getframe(depth).f_code.co_filename)


@cache
def _is_internal(filename: str) -> bool:
    if filename.startswith("<"):
        return filename.startswith("<frozen")
    torch = str(Path(sys.modules["torch"].__file__ or "").parent)
    if filename.startswith((torch + os.sep, _HERE + os.sep)):
        return True
    in_library = any(filename.startswith(folder + os.sep) for folder in _LIBRARY)
    return in_library and not any(part in filename for part in _INSTALLED)
