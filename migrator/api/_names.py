"""Which torch_npu names exist in which wheel."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

from migrator.api._store import load
from migrator.api._versions import parse, resolve

Span = tuple[str, "str | None"]
"""First and last wheel that have a name; None as the last: still there in the newest."""


def canonical(name: str) -> str:
    """The spelling used in the data: ``torch.npu`` and everything below it becomes ``torch_npu.npu``."""
    if name == "torch.npu" or name.startswith("torch.npu."):
        return "torch_npu" + name[len("torch") :]
    return name


def parse_spans(text: str) -> tuple[Span, ...]:
    """Spans of one data entry: "2.5.1", "2.1.0.post8-2.10.0" or several of them separated by commas."""
    spans = (part.partition("-") for part in text.split(","))
    return tuple((first, last or None) for first, _, last in spans)


def spans(name: str) -> tuple[Span, ...]:
    """Every stretch of wheels that has the name, oldest first; empty for a name that no wheel has."""
    text = load("names.json")["names"].get(canonical(name))
    return parse_spans(text) if text is not None else ()


@lru_cache(maxsize=4096)
def _parsed(name: str) -> tuple[tuple[Version, Version | None], ...]:
    return tuple((parse(first), parse(last) if last else None) for first, last in spans(name))


@lru_cache(maxsize=4096)
def exists(name: str, version: str) -> bool:
    """Whether a dotted torch_npu name exists in that version (or in the nearest known wheel).

    Both spellings work (``torch.npu.X`` is ``torch_npu.npu.X``), as do methods that torch_npu adds to torch
    (``torch.Tensor.npu``) and operators (``torch_npu.npu_rms_norm``).
    """
    wanted = parse(resolve(version).version)
    return any(first <= wanted and (last is None or wanted <= last) for first, last in _parsed(name))


def since(name: str) -> str | None:
    """First wheel from which on the name exists without a gap; None: no wheel has it."""
    found = spans(name)
    return found[-1][0] if found else None


def until(name: str) -> str | None:
    """Last wheel that has the name; None: the newest still has it, or none ever had."""
    found = spans(name)
    return found[-1][1] if found else None


def names(prefix: str = "") -> list[str]:
    """All known names below a prefix such as ``torch_npu.npu``, sorted."""
    start = canonical(prefix)
    known = load("names.json")["names"]
    return sorted(name for name in known if not start or name == start or name.startswith(start + "."))
