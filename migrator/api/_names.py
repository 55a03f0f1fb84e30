"""Which torch_npu names exist in which wheel."""

from __future__ import annotations

from functools import lru_cache

from migrator.api._store import load
from migrator.api._versions import parse, resolve

Span = tuple[str, "str | None"]
"""First and last wheel that have a name; None as the last: still there in the newest."""


def canonical(name: str) -> str:
    """The spelling used in the data: ``torch.npu`` and everything below it becomes ``torch_npu.npu``."""
    if name == "torch.npu" or name.startswith("torch.npu."):
        return "torch_npu" + name[len("torch") :]
    return name


def is_own(name: str) -> bool:
    """Whether this is a dotted name for which the data is to be asked: torch_npu's own, or one it adds to torch."""
    dotted = all(part.isidentifier() for part in name.split("."))
    return dotted and (canonical(name).partition(".")[0] == "torch_npu" or bool(spans(name)))


def parse_spans(text: str) -> tuple[Span, ...]:
    """Spans of one data entry: "2.5.1", "2.1.0.post8-2.10.0" or several of them separated by commas."""
    parts = (part.partition("-") for part in text.split(",") if part)
    return tuple((first, last or None) for first, _, last in parts)


def within(text: str, version: str) -> bool:
    """Whether the wheel that stands for a version lies in one of the spans of a data entry."""
    wheel = parse(resolve(version).version)
    return any(parse(first) <= wheel and (last is None or wheel <= parse(last)) for first, last in parse_spans(text))


def spans(name: str) -> tuple[Span, ...]:
    """Every stretch of wheels that has the name, oldest first; empty for a name that no wheel has."""
    return parse_spans(load("names.json")["names"].get(canonical(name), ""))


@lru_cache(maxsize=4096)
def exists(name: str, version: str) -> bool:
    """Whether a dotted torch_npu name exists in that version (or in the nearest known wheel).

    Both spellings work (``torch.npu.X`` is ``torch_npu.npu.X``), as do methods that torch_npu adds to torch
    (``torch.Tensor.npu``) and operators (``torch_npu.npu_rms_norm``). Members that a class inherits from torch
    itself are not known.
    """
    return within(load("names.json")["names"].get(canonical(name), ""), version)


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
