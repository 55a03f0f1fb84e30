"""Which files to look at: PATH arguments, .gitignore, excludes, symbolic links, kinds of file."""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path

from pathspec import GitIgnoreSpec

from migrator import gitrepo, unread

DEFAULT_EXCLUDES = frozenset(
    (
        *(".git", ".hg", ".svn", ".bzr", ".jj"),
        *(".venv", "venv", ".tox", ".nox", ".direnv", "site-packages", "__pypackages__", "node_modules"),
        *("build", "dist", ".eggs", "__pycache__"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
    )
)
_BUILD_OUTPUT = frozenset({"build", "dist"})
_SHEBANG = re.compile(rb"#!.*\bpython[\d.]*\b")


class FileKind(Enum):
    """What a file is made of, and so who can migrate it."""

    PYTHON = "python"


_SUFFIXES = {".py": FileKind.PYTHON, ".pyi": FileKind.PYTHON, ".pyw": FileKind.PYTHON}


@dataclass(frozen=True)
class Found:
    """A file to look at.

    path     absolute, free of symbolic links: the file that would be written
    display  posix, relative to the PATH argument it was found under; a file argument: its name
    root     the PATH argument, absolute (for a file argument: its folder)
    """

    path: Path
    display: str
    root: Path
    kind: FileKind


@dataclass
class Discovery:
    """The files in a stable order; what was passed over and why; folders that could not be read.

    around   the rest of the repository of PATH arguments that are single files: read for facts, never changed
    foreign  PATH arguments that are no Python files
    beside   files of other kinds in the folders, absolute, that programs may be configured or started with
    """

    files: list[Found] = field(default_factory=list)
    around: list[Found] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    beside: list[Path] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)


class PathError(ValueError):
    """A PATH argument or an exclude pattern makes no sense; the message is for the user."""


def discover(paths: Sequence[str | Path], exclude: Sequence[str] = (), exclude_base: Path | None = None) -> Discovery:
    """Find the files under the PATH arguments, in the order of the arguments, then by name.

    `exclude` are globs in the syntax of .gitignore.  They count from the PATH argument, from the current
    folder and from `exclude_base`, the folder of the configuration file.  A Python file that is
    itself a PATH argument is always found.  Raises PathError.
    """
    spec = _exclude_spec(exclude)
    bases = [Path.cwd(), *([exclude_base] if exclude_base else [])]
    discovery = Discovery()
    seen: set[Path] = set()
    single: list[Found] = []
    for path in paths:
        root = _existing(Path(path))
        if root.is_dir():
            found = _walk(root, spec, [root, *bases], discovery)
        elif kind := kind_of(root) or _kind_of_argument(root):
            file = Found(root, Path(path).name, root.parent, kind)
            single.append(file)
            found = iter([file])
        else:
            discovery.foreign.append(str(path))
            continue
        for file in found:
            if file.path not in seen:
                seen.add(file.path)
                discovery.files.append(file)
    discovery.around = [file for file in _around(single, spec, bases) if file.path not in seen]
    return discovery


def discover_one(path: Path, exclude: Sequence[str] = (), exclude_base: Path | None = None) -> Discovery:
    """A single file that need not exist: its text comes from elsewhere."""
    file = Found(path.resolve(), path.name, path.resolve().parent, FileKind.PYTHON)
    bases = [Path.cwd(), *([exclude_base] if exclude_base else [])]
    around = [other for other in _around([file], _exclude_spec(exclude), bases) if other.path != file.path]
    return Discovery([file], around)


def kind_of(path: Path) -> FileKind | None:
    """The kind of a file by its suffix or, for an executable script, its first line."""
    if kind := _SUFFIXES.get(path.suffix.lower()):
        return kind
    try:
        if not path.stat().st_mode & 0o111:
            return None
        with path.open("rb") as file:
            return FileKind.PYTHON if _SHEBANG.match(file.readline(200)) else None
    except OSError:
        return None


def _around(files: Sequence[Found], exclude: GitIgnoreSpec, bases: Sequence[Path]) -> Iterator[Found]:
    """What else of Python lies in the repositories of these files."""
    left_out = cache(_is_default_excluded)
    for top, names in gitrepo.files_around([file.path for file in files]).items():
        for name in names:
            path = top / name
            kind = _SUFFIXES.get(path.suffix.lower())
            if kind is None or _excluded(path, False, exclude, [top, *bases]):
                continue
            if not any(left_out(folder) for folder in path.parents if top in folder.parents):
                yield Found(path, name, top, kind)


def _kind_of_argument(path: Path) -> FileKind | None:
    """A file that the user names is taken for Python, unless its suffix says that it is something else."""
    return None if path.suffix else FileKind.PYTHON


def _existing(path: Path) -> Path:
    """The path resolved; PathError if it is no file or folder."""
    try:
        resolved = path.resolve(strict=True)
        mode = resolved.stat().st_mode
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        if getattr(error, "errno", errno.ELOOP) == errno.ENOENT:
            raise PathError(f"no such file or folder: {path}{_suggestion(path)}") from error
        reason = getattr(error, "strerror", None) or error
        raise PathError(f"cannot look at {path}: {reason}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise PathError(f"neither a file nor a folder: {path}")
    return resolved


def _suggestion(path: Path) -> str:
    try:
        siblings = [entry.name for entry in path.absolute().parent.iterdir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f" (did you mean {path.with_name(close[0])}?)" if close else ""


def _exclude_spec(patterns: Sequence[str]) -> GitIgnoreSpec:
    for pattern in patterns:
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError as error:
            raise PathError(f"not a glob: {pattern!r} ({error})") from error
    return GitIgnoreSpec.from_lines(patterns)


@dataclass(frozen=True)
class _Ignores:
    """The .gitignore files that apply in a folder, the nearest first, each with the folder it counts from."""

    specs: tuple[tuple[Path, GitIgnoreSpec], ...] = ()

    def inside(self, folder: Path) -> _Ignores:
        """The same plus what `folder` itself says; a repository of its own starts anew."""
        own = []
        outer = self.specs
        if _exists(folder / ".git"):
            own += _ignore_file(folder, _git_folder(folder) / "info" / "exclude")
            outer = ()
        return _Ignores((*_ignore_file(folder, folder / ".gitignore"), *own, *outer))

    def ignore(self, path: Path, is_dir: bool) -> bool:
        for base, spec in self.specs:
            name = path.relative_to(base).as_posix() + ("/" if is_dir else "")
            if (verdict := spec.check_file(name).include) is not None:
                return verdict
        return False


def _ignores_above(folder: Path) -> _Ignores:
    """What the repository around a PATH argument ignores; nothing if it ignores the argument itself."""
    above = [*reversed(folder.parents)]
    tops = [index for index, parent in enumerate(above) if _exists(parent / ".git")]
    if not tops or _exists(folder / ".git"):
        return _Ignores()
    ignores = _Ignores()
    for parent, child in zip(above[tops[-1] :], [*above[tops[-1] + 1 :], folder], strict=True):
        ignores = ignores.inside(parent)
        if ignores.ignore(child, is_dir=True):
            return _Ignores()
    return ignores


def _git_folder(top: Path) -> Path:
    """The folder with the repository's data; for a worktree or submodule `.git` is a file that names it."""
    git = top / ".git"
    try:
        git = top / git.read_text().strip().removeprefix("gitdir: ")
        return git / (git / "commondir").read_text().strip()
    except (OSError, ValueError):
        return git


def _ignore_file(base: Path, path: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    try:
        lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    return [(base, GitIgnoreSpec.from_lines(filter(_is_pattern, lines)))]


def _is_pattern(line: str) -> bool:
    """Whether git would use the line; it passes over what it does not understand."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _walk(root: Path, exclude: GitIgnoreSpec, bases: Sequence[Path], discovery: Discovery) -> Iterator[Found]:
    stack: list[tuple[Path, bool, _Ignores]] = [(root, True, _ignores_above(root))]
    while stack:
        path, is_dir, ignores = stack.pop()
        display = path.relative_to(root).as_posix()
        if not is_dir:
            if kind := kind_of(path):
                yield Found(path, display, root, kind)
            elif unread.may_configure(path):
                discovery.beside.append(path)
            continue
        ignores = ignores.inside(path)
        try:
            entries = sorted(os.scandir(path), key=lambda entry: os.fsencode(entry.name), reverse=True)
        except OSError as error:
            discovery.unreadable.append((display, error.strerror or str(error)))
            continue
        for entry in entries:
            child = path / entry.name
            child_is_dir = entry.is_dir(follow_symlinks=False)
            if reason := _reason_to_skip(child, entry, root, ignores) or (
                _excluded(child, child_is_dir, exclude, bases) and "excluded"
            ):
                if child_is_dir or kind_of(child):
                    discovery.skipped.append((child.relative_to(root).as_posix(), reason))
            elif child_is_dir or entry.is_file(follow_symlinks=False):
                stack.append((child, child_is_dir, ignores))


def _reason_to_skip(path: Path, entry: os.DirEntry[str], root: Path, ignores: _Ignores) -> str | None:
    if entry.is_symlink():
        return _link_reason(path, root)
    is_dir = entry.is_dir(follow_symlinks=False)
    if is_dir and _is_default_excluded(path):
        return "excluded by default"
    return "ignored by .gitignore" if ignores.ignore(path, is_dir) else None


def _link_reason(path: Path, root: Path) -> str:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "a link that leads nowhere"
    if target == root or root in target.parents:
        return f"a link to {target.relative_to(root)}, which is looked at in its own place"
    return "a link that leaves the tree"


def _is_default_excluded(path: Path) -> bool:
    name = path.name
    if name in _BUILD_OUTPUT:
        # A package may be called `build`; the output of a build is no package.
        return not _exists(path / "__init__.py")
    return name in DEFAULT_EXCLUDES or name.endswith(".egg-info") or _exists(path / "pyvenv.cfg")


def _exists(path: Path) -> bool:
    """Whether a file is there, as far as one may look."""
    try:
        return path.exists()
    except OSError:
        return False


def _excluded(path: Path, is_dir: bool, exclude: GitIgnoreSpec, bases: Iterable[Path]) -> bool:
    inside = (base for base in bases if base in path.parents)
    return any(exclude.match_file(path.relative_to(base).as_posix() + "/" * is_dir) for base in inside)
