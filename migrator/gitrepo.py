"""The little that the tool asks of git: what is not committed yet, and a commit per rule.

No git, or files that are in no repository: there is nothing to guard, and nothing is said.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

# Set by git when it runs a hook; they would point every command at that repository and its index.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


class GitError(RuntimeError):
    """git refused; the message is its own first line."""


def top_of(path: Path) -> Path | None:
    """The root of the repository that a file or folder (absolute) lies in, by what the file tree shows."""
    for folder in path.parents:
        try:
            if (folder / ".git").exists():
                return folder
        except OSError:
            continue
    return None


def by_repository(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """The files (absolute) of each repository, by its root; files in none are left out.  Raises GitError."""
    grouped: dict[Path, list[Path]] = {}
    for file in files:
        if top := top_of(file):
            grouped.setdefault(top, []).append(file)
    return {top: inside for top, inside in grouped.items() if _is_repository(top)}


def _is_repository(top: Path) -> bool:
    try:
        _git(top, "rev-parse", "--git-dir")
    except FileNotFoundError:
        return False  # no git on this machine
    except GitError as error:
        if "not a git repository" in str(error):
            return False
        raise
    return True


def files_around(files: Iterable[Path]) -> dict[Path, list[str]]:
    """What git does not ignore in the repositories of files (absolute), below each root; nothing if it refuses."""
    found = {}
    for top in dict.fromkeys(filter(None, map(top_of, files))):
        with contextlib.suppress(GitError, OSError):
            listed = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split(b"\0")
            found[top] = [os.fsdecode(name) for name in dict.fromkeys(listed) if name]
    return found


def uncommitted(paths: Sequence[Path], changing: Sequence[Path]) -> list[Path]:
    """What a run over `paths` that writes the files `changing` would mix up or destroy (all absolute).

    That is every changed tracked file under `paths`, and every file to be written that git does not track,
    which git could not bring back.
    """
    found: list[Path] = []
    for top, files in by_repository(changing).items():
        # A repository may lie below a PATH: then all of it counts.
        under = [path for path in paths if path.is_relative_to(top)] or [top]
        status = _git(top, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--", *under)
        found += [top / os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry]
        listed = _git(top, "ls-files", "-z", "--", *under)
        tracked = {top / os.fsdecode(name) for name in listed.split(b"\0") if name}
        found += [file for file in files if file not in tracked]
    return sorted(set(found))


def commit(top: Path, files: Sequence[Path], message: str) -> None:
    """Commit these files, and nothing else, in the repository at `top`."""
    names = b"\0".join(os.fsencode(file.relative_to(top)) for file in files)
    pathspec = ("--pathspec-from-file=-", "--pathspec-file-nul")
    _git(top, "commit", "--quiet", "--only", "--message", message, *pathspec, stdin=names)


def _git(folder: Path, *arguments: str | Path, stdin: bytes = b"") -> bytes:
    """The output of a git command; GitError if it fails, FileNotFoundError if there is no git."""
    environment = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    # A monitor is a program that the repository's configuration names; looking at files runs none.
    command = ["git", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise GitError(f"git {arguments[0]}: {reason.splitlines()[0]}")
    return done.stdout
