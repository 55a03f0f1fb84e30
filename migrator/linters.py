"""Whether a repository's linters object to imports that nothing uses: some take them out again."""

from __future__ import annotations

import re
from pathlib import Path

from migrator import gitrepo

# Where linters are set up, and what says so there.
_SETTINGS = {
    "pyproject.toml": re.compile(r"^\[tool\.(ruff|autoflake|pycln)\b", re.MULTILINE),
    "ruff.toml": re.compile(r""),
    ".ruff.toml": re.compile(r""),
    ".flake8": re.compile(r"^\[flake8\]", re.MULTILINE),
    "setup.cfg": re.compile(r"^\[flake8\]", re.MULTILINE),
    "tox.ini": re.compile(r"^\[flake8\]", re.MULTILINE),
    ".pre-commit-config.yaml": re.compile(r"\b(ruff|flake8|autoflake|pycln)\b"),
}


def mind_unused_imports(folder: Path) -> bool:
    """Whether linters are set up for code in a folder (absolute): there, or above it in the same repository."""
    top = gitrepo.top_of(folder / "any") or folder
    places = [place for place in (folder, *folder.parents) if place.is_relative_to(top)]
    return any(_says(place / name, pattern) for place in places for name, pattern in _SETTINGS.items())


def _says(path: Path, pattern: re.Pattern[str]) -> bool:
    try:
        return pattern.search(path.read_text("utf-8", "replace")) is not None
    except OSError:
        return False
