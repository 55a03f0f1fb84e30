"""What each CUDA name becomes on an NPU, and what to do where it becomes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from migrator.api._names import exists, is_own, since, until
from migrator.api._store import load
from migrator.api._versions import parse, resolve


class Kind(str, Enum):
    """How a CUDA name is dealt with."""

    RENAME = "rename"
    """Another name (or string) does the same job."""
    DROP = "drop"
    """It means nothing on an NPU: delete it."""
    MANUAL = "manual"
    """Nothing can take its place mechanically: a person has to decide."""
    ADVICE = "advice"
    """The code works as it is; there is something worth knowing."""


@dataclass(frozen=True)
class Mapping:
    """One row: a CUDA name (or "env:NAME", "pkg:package.name", or a described pattern) and its NPU side."""

    cuda: str
    npu: str | None
    """Replacement; for manual and advice rows the nearest thing, if there is one."""
    kind: Kind
    since: str | None
    """First wheel in which the replacement exists and does its job; None: no torch_npu name is involved."""
    until: str | None
    """Last wheel that has the replacement; None: the newest still has it."""
    remedy: str | None
    """What to do, for a person. Present for every row that is not a rename with the same semantics."""
    caveat: str | None
    """What differs after the rename, or another fact worth knowing."""
    exact_semantics: bool
    """True for a rename after which the code means the same."""
    torch_since: str | None
    """First torch release that has the replacement, where that is what decides."""
    keywords: tuple[tuple[str, str], ...] = ()
    """Keyword arguments that are called otherwise: (CUDA's, the NPU's)."""

    def available(self, version: str) -> bool:
        """Whether the replacement can be written for this torch_npu version."""
        if self.npu is None:
            return False
        wheel = parse(resolve(version).version)
        if self.torch_since is not None and wheel < parse(self.torch_since):
            return False
        if self.since is not None and wheel < parse(self.since):
            return False
        if self.until is not None and wheel > parse(self.until):
            return False
        return not is_own(self.npu) or exists(self.npu, version)


def _row(cuda: str, raw: dict[str, Any], texts: dict[str, str]) -> Mapping:
    npu, kind = raw.get("npu"), Kind(raw.get("kind", "rename"))
    return Mapping(
        cuda=cuda,
        npu=npu,
        kind=kind,
        since=raw.get("since") or (since(npu) if npu else None),
        until=raw.get("until") or (until(npu) if npu else None),
        remedy=_text(raw.get("remedy"), texts),
        caveat=_text(raw.get("caveat"), texts),
        exact_semantics=kind is Kind.RENAME and not raw.get("differs", False),
        torch_since=raw.get("torch"),
        keywords=tuple(raw.get("keywords", {}).items()),
    )


def _text(value: str | None, texts: dict[str, str]) -> str | None:
    return texts[value[1:]] if value and value.startswith("@") else value


@cache
def mapping(cuda_name: str) -> Mapping | None:
    """The row of exactly this name, or None; "env:NAME" and "pkg:NAME" ask for variables and packages."""
    data = load("mapping.json")
    key = _variables().get(cuda_name, cuda_name)
    raw = data["rows"].get(key)
    return None if raw is None else _row(key, raw, data["texts"])


@cache
def _variables() -> dict[str, str]:
    """Each variable of a row for two ("env:A / B") → the row."""
    rows = [name for name in load("mapping.json")["rows"] if name.startswith("env:") and " / " in name]
    return {f"env:{variable}": row for row in rows for variable in row.removeprefix("env:").split(" / ")}


def mapping_for(name: str) -> Mapping | None:
    """The row of this name, else of its nearest known parent (``torch.cuda.nccl`` for ``….nccl.foo``).

    A variable's parent is a pattern: "env:CUDNN_*" answers for "env:CUDNN_LOGINFO_DBG".
    """
    if name.startswith("env:"):
        patterns = (row for row in load("mapping.json")["rows"] if row.endswith("*"))
        return mapping(name) or next((mapping(p) for p in patterns if name.startswith(p[:-1])), None)
    while name:
        row = mapping(name)
        if row is not None:
            return row
        name = name.rpartition(".")[0]
    return None


def mappings() -> Iterator[Mapping]:
    """All rows, including "env:*", "pkg:*" and the described patterns."""
    for name in load("mapping.json")["rows"]:
        row = mapping(name)
        if row is not None:
            yield row
