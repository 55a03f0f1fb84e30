"""Putting the facts of one wheel into the data files, and writing those files.

The files keep stretches of versions instead of one list per version. Merging unfolds them for the known versions,
replaces what one version says, and folds them again, so the result does not depend on the order of merging.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from migrator.api._extract import WheelFacts
from migrator.api._names import parse_spans
from migrator.api._store import FORMAT
from migrator.api._versions import parse

FILES = {
    "names.json": "names",
    "signatures.json": "signatures",
    "operators.json": "operators",
    "kernels.json": "kernels",
}
"""The generated files, and the key of each under which its entries are."""

Data = dict[str, dict[str, Any]]
"""Content of the generated files by file name."""


def empty() -> Data:
    """Data that knows no version."""
    data: Data = {file: {"format": FORMAT, key: {}} for file, key in FILES.items()}
    data["names.json"] = {"format": FORMAT, "versions": [], "names": {}}
    return data


def merge(data: Data, facts: WheelFacts) -> Data:
    """New data in which the version of ``facts`` says what ``facts`` says; other versions are untouched."""
    old: list[str] = data["names.json"]["versions"]
    versions = sorted({*old, facts.version}, key=parse)
    merged = empty()
    merged["names.json"]["versions"] = versions
    for file, have in (("names.json", facts.names), ("kernels.json", facts.kernels)):
        key = FILES[file]
        merged[file][key] = _merge_spans(data[file][key], have, old, versions, facts.version)
    for file, values in (("signatures.json", facts.signatures), ("operators.json", facts.operators)):
        key = FILES[file]
        merged[file][key] = _merge_history(data[file][key], values, old, versions, facts.version)
    return merged


def _merge_spans(
    entries: Mapping[str, str], of_wheel: set[str], old: Sequence[str], versions: Sequence[str], version: str
) -> dict[str, str]:
    merged = {name: unfold_spans(text, old) - {version} for name, text in entries.items()}
    for name in of_wheel:
        merged.setdefault(name, set()).add(version)
    return {name: fold_spans(merged[name], versions) for name in sorted(merged) if merged[name]}


def _merge_history(
    entries: Mapping[str, Mapping[str, Any]],
    of_wheel: Mapping[str, Any],
    old: Sequence[str],
    versions: Sequence[str],
    version: str,
) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for name in sorted({*entries, *of_wheel}):
        per_version = unfold_history(entries.get(name, {}), old)
        per_version[version] = of_wheel.get(name)
        folded = fold_history(per_version, versions)
        if folded:
            merged[name] = folded
    return merged


def unfold_spans(text: str, versions: Sequence[str]) -> set[str]:
    """Versions that an entry such as "2.5.1" or "2.1.0.post8-2.4.0" stands for."""
    position = {version: i for i, version in enumerate(versions)}
    last = len(versions) - 1
    found: set[str] = set()
    for first, until in parse_spans(text):
        found.update(versions[position[first] : (position[until] if until else last) + 1])
    return found


def fold_spans(have: set[str], versions: Sequence[str]) -> str:
    """The shortest entry that ``unfold_spans`` turns into the same versions."""
    runs: list[list[int]] = []
    for i, version in enumerate(versions):
        if version not in have:
            continue
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    newest = len(versions) - 1
    return ",".join(versions[a] if b == newest else f"{versions[a]}-{versions[b]}" for a, b in runs)


def unfold_history(changes: Mapping[str, Any], versions: Sequence[str]) -> dict[str, Any]:
    """Value per version of an entry that lists only the versions in which the value changed."""
    value = None
    values: dict[str, Any] = {}
    for version in versions:
        value = changes.get(version, value)
        values[version] = value
    return values


def fold_history(values: Mapping[str, Any], versions: Sequence[str]) -> dict[str, Any]:
    """Only the versions in which the value changes; None stands for "not there"."""
    changes: dict[str, Any] = {}
    last = None
    for version in versions:
        value = values.get(version)
        if value != last:
            changes[version] = last = value
    return changes


def render(content: Mapping[str, Any], key: str) -> str:
    """Text of a data file: one entry a line, so that a diff shows what changed."""
    head = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in content.items() if k != key]
    lines = (
        f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in content[key].items()
    )
    return "{" + ",\n ".join(head) + f',\n "{key}": {{\n' + ",\n".join(lines) + "\n}}\n"


def read(directory: Path) -> Data:
    """Generated data of a directory; files that do not exist yet are empty. Raises ValueError when damaged."""
    data = empty()
    for file in FILES:
        path = directory / file
        if path.exists():
            data[file] = json.loads(path.read_text(encoding="utf-8"))
    return data


def write(directory: Path, data: Data) -> None:
    """Write all generated files or none: everything is on disk before the first old file is replaced."""
    pending: list[tuple[Path, Path]] = []
    try:
        for file, key in FILES.items():
            temporary = directory / f".{file}.new"
            pending.append((temporary, directory / file))
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                stream.write(render(data[file], key))
                stream.flush()
                os.fsync(stream.fileno())
        for temporary, final in pending:
            temporary.replace(final)
    finally:
        for temporary, _ in pending:
            temporary.unlink(missing_ok=True)
