"""[tool.npu-migrate] of pyproject.toml and the command line, as one frozen Config."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

TABLE = "npu-migrate"


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the line and what to write instead."""


@dataclass(frozen=True)
class Config:
    """What the user asked for.

    exclude           globs in the syntax of .gitignore
    per_file_ignores  (glob, rule ids, names or tags) pairs
    jobs              worker processes; None: as many as there are processors
    file, root        the pyproject.toml that was read, and its folder; None: there is none
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool = False
    torch_npu: str | None = None
    soc: str | None = None
    exclude: tuple[str, ...] = ()
    jobs: int | None = None
    rules_dir: tuple[str, ...] = ()
    baseline: str | None = None
    format: str = "text"
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    file: Path | None = None

    @property
    def root(self) -> Path | None:
        return self.file.parent if self.file else None


ADDITIVE = ("ignore", "exclude", "rules_dir")
"""Options whose command-line values come on top of those of the file; the others replace them."""


def load(first_path: Path, overrides: Mapping[str, Any], formats: Sequence[str]) -> Config:
    """The Config for a run over `first_path`: the nearest pyproject.toml upwards, then the command line.

    `overrides` has values by field name; None and empty ones say nothing.  Raises ConfigError.
    """
    file, table, text = _find(first_path.resolve())
    values = _checked(file, table, text, formats) if file else {}
    for name, value in overrides.items():
        if name in ADDITIVE:
            values[name] = (*values.get(name, ()), *value)
        elif value:
            values[name] = value
    return Config(**values, file=file)


def _find(path: Path) -> tuple[Path | None, Any, str]:
    """The nearest pyproject.toml with our table, not looking beyond the repository that `path` is in."""
    folder = path if path.is_dir() else path.parent
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            text = _read(file)
            tools = _parse(file, text).get("tool")
            if isinstance(tools, dict) and TABLE in tools:
                return file, tools[TABLE], text
        if (parent / ".git").exists() or (parent / ".hg").exists():
            break
    return None, {}, ""


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8, as TOML must be (byte {error.start})") from error


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
        line, column = found.groups() if found else (text.count("\n") + 1, 1)
        raise ConfigError(f"{file}:{line}:{column}: not valid TOML: {what}") from error
    return document


def _checked(file: Path, table: Any, text: str, formats: Sequence[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}:{_line(text, TABLE)}: [tool.{TABLE}] must be a table")
    values = {}
    for key, value in table.items():
        at = f"{file}:{_line(text, key)}"
        if key not in _CHECKS:
            close = difflib.get_close_matches(key, _CHECKS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(sorted(_CHECKS))}"
            raise ConfigError(f"{at}: unknown key {key!r} in [tool.{TABLE}]; {hint}")
        check, expected = _CHECKS[key]
        checked = check(value)
        if checked is None:
            raise ConfigError(f"{at}: {key!r} must be {expected}, not {value!r}")
        values[key.replace("-", "_")] = checked
    if values.get("format", "text") not in formats:
        raise ConfigError(
            f"{file}:{_line(text, 'format')}: 'format' must be one of {', '.join(formats)}, not {values['format']!r}"
        )
    for name in ("rules_dir", "baseline"):
        if name in values:
            values[name] = _from_folder(file.parent, values[name])
    return values


def _from_folder(folder: Path, value: Any) -> Any:
    """Paths in the file count from its folder."""
    if isinstance(value, str):
        return str(folder / value)
    return tuple(str(folder / item) for item in value)


def _line(text: str, key: str) -> int:
    """The line of a key of our table (of the table itself, if the key is spelled in another way)."""
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*tool\s*\.\s*[\"']?{TABLE}\b")
    start = next((number for number, line in enumerate(lines) if header.match(line)), 0)
    pattern = re.compile(rf"\s*(\[.*\.\s*)?[\"']?{re.escape(key)}[\"']?\s*[\].=]")
    return next((number for number in range(start, len(lines)) if pattern.match(lines[number])), start) + 1


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _texts(value: object) -> tuple[str, ...] | None:
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list) and all(isinstance(item, str) and item for item in items):
        return tuple(items)
    return None


def _ignores(value: object) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    if not isinstance(value, dict):
        return None
    pairs = [(glob, _texts(ids)) for glob, ids in value.items()]
    checked = tuple((glob, ids) for glob, ids in pairs if ids is not None)
    return checked if len(checked) == len(pairs) else None


_TEXTS = (_texts, "a list of strings")
_TEXT = (_text, "a string")
_CHECKS: dict[str, tuple[Callable[[object], Any], str]] = {
    "select": _TEXTS,
    "ignore": _TEXTS,
    "unsafe": (_boolean, "true or false"),
    "torch-npu": _TEXT,
    "soc": _TEXT,
    "exclude": _TEXTS,
    "jobs": (_count, "a whole number above 0"),
    "rules-dir": _TEXTS,
    "baseline": _TEXT,
    "format": _TEXT,
    "per-file-ignores": (_ignores, "a table of glob = list of rule ids, names or tags"),
}
