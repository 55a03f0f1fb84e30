"""Reading the JSON data that ships with the package: loaded once, on first use."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable

FORMAT = 1
"""Version of the data layout; a file written in another layout is refused."""


class ApiDataError(RuntimeError):
    """A data file of the package is missing, damaged or written in another layout."""

    def __init__(self, file: str, problem: str) -> None:
        self.file = file
        super().__init__(
            f"migrator/api/data/{file} {problem}. Reinstall npu-migrate "
            "(pip install --force-reinstall npu-migrate); in a checkout, restore it from version control."
        )


def _directory() -> Traversable:
    return resources.files(__package__) / "data"


@cache
def load(file: str) -> dict[str, Any]:
    """Content of one data file, e.g. ``load("names.json")``; raises ApiDataError."""
    try:
        text = (_directory() / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ApiDataError(file, f"cannot be read ({error})") from error
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ApiDataError(file, f"is damaged ({error})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ApiDataError(file, f"has layout {found!r}, this version of npu-migrate reads layout {FORMAT}")
    return data
