"""Copies of the user's tree to run in, so that the tree itself is not touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migrator.discover import DEFAULT_EXCLUDES

BIG_FOLDER = 200 << 20
"""A folder without Python files that holds more bytes than this is linked."""
_SOURCE = (".py", ".pyi", ".ipynb")
_LEFT_OUT = DEFAULT_EXCLUDES - {"build", "dist"}


@dataclass
class Copy:
    """A copy of a tree.

    linked  folders of data in it that are links to the user's own, relative
    """

    root: Path
    original: Path
    linked: list[Path] = field(default_factory=list)
    _state: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def touched(self) -> list[Path]:
        """Files in linked folders that a program has changed, made or deleted since the copy was made."""
        now = dict(self._linked_files())
        return sorted(path for path in now.keys() | self._state.keys() if now.get(path) != self._state.get(path))

    def remember(self) -> None:
        """Take note of the state of the linked folders."""
        self._state = dict(self._linked_files())

    def _linked_files(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        for folder in self.linked:
            for path in (self.original / folder).rglob("*"):
                if path.is_file():
                    status = path.stat()
                    yield path, (status.st_mtime_ns, status.st_size)


def copy_tree(original: Path, destination: Path) -> Copy:
    """Copy a folder, or the folder of a file; links stay links, to the same targets.

    Left out: repositories' own data (.git), virtual environments and caches. Big folders of data are linked.
    Raises OSError.
    """
    original = original.resolve()
    copy = Copy(destination, original if original.is_dir() else original.parent)
    _copy_folder(copy, Path())
    copy.remember()
    return copy


def _copy_folder(copy: Copy, folder: Path) -> None:
    (copy.root / folder).mkdir(parents=True, exist_ok=True)
    for entry in sorted(os.scandir(copy.original / folder), key=lambda entry: entry.name):
        name = folder / entry.name
        target = copy.root / name
        if entry.is_symlink():
            target.symlink_to(_link_target(copy, Path(entry.path)))
        elif entry.is_dir():
            if entry.name in _LEFT_OUT or (Path(entry.path) / "pyvenv.cfg").exists():
                continue
            if _is_big_data(Path(entry.path)):
                target.symlink_to(entry.path)
                copy.linked.append(name)
            else:
                _copy_folder(copy, name)
        elif entry.is_file():
            shutil.copy2(entry.path, target)


def _link_target(copy: Copy, link: Path) -> Path:
    """Where the copy of a link leads: to the copy of what is in the tree, else to the same place."""
    target = Path(os.path.normpath(link.parent / link.readlink()))
    if target.is_relative_to(copy.original):
        return copy.root / target.relative_to(copy.original)
    return target


def _is_big_data(folder: Path) -> bool:
    total = 0
    for parent, _, names in os.walk(folder):
        if any(name.endswith(_SOURCE) for name in names):
            return False
        total += sum(os.lstat(Path(parent) / name).st_size for name in names)
    return total > BIG_FOLDER


def translated(command: Sequence[str], words: dict[str, str], original: Path, root: Path) -> tuple[str, ...]:
    """The command for another tree: paths below `original` lead to `root`, and device words are replaced.

    A word is replaced where it is an argument or the value of one: cuda, cuda:0, --device=cuda, but not --cuda.
    """
    return tuple(_translate(argument, words, str(original.resolve()), str(root)) for argument in command)


def _translate(argument: str, words: dict[str, str], original: str, root: str) -> str:
    option, equals, value = argument.partition("=")
    if not equals:
        option, value = "", argument
    if value == original or value.startswith(original + os.sep):
        value = root + value[len(original) :]
    word, colon, index = value.partition(":")
    if word in words and (not colon or index.isdigit()):
        value = words[word] + colon + index
    return f"{option}{equals}{value}"
