"""The torch_npu wheels whose content is known, and the nearest one to a version text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from migrator.api._store import load


@dataclass(frozen=True)
class Resolved:
    """A known wheel standing for a version that somebody wrote."""

    asked: str
    version: str
    """The known wheel whose data answers for ``asked``."""
    exact: bool
    """False when ``version`` is only the nearest known wheel."""
    reason: str
    """Half a sentence for people, e.g. "2.7 is read as 2.7.1"."""


@cache
def versions() -> tuple[str, ...]:
    """Known torch_npu wheels, oldest first."""
    return tuple(load("names.json")["versions"])


@cache
def parse(version: str) -> Version:
    """PEP 440 version without its local part ("+cpu"); raises ValueError with a readable message."""
    try:
        return Version(Version(version.strip()).public)
    except InvalidVersion:
        raise ValueError(f"{version!r} is not a version number; expected something like 2.7.1") from None


@cache
def resolve(version: str) -> Resolved:
    """Nearest known wheel for a version text such as "2.7", "2.7.1" or "2.99".

    Within the same minor release the newest wheel that is not newer than the version wins ("2.7" alone means
    any 2.7.x). A minor release without a known wheel is answered by the newest older one: names seldom
    disappear. A version older than all known wheels by the oldest. Raises ValueError for what is no version.
    """
    asked = parse(version)
    known = [(parse(text), text) for text in versions()]
    same_minor = [pair for pair in known if pair[0].release[:2] == (asked.major, asked.minor)]
    if len(asked.release) > 2 or asked.post is not None:
        candidates = [pair for pair in same_minor if pair[0] <= asked] or same_minor[:1]
    else:
        candidates = same_minor
    candidates = candidates or [pair for pair in known if pair[0] <= asked] or known[:1]
    found, text = max(candidates)
    if found == asked:
        return Resolved(version, text, True, f"torch_npu {text} is a known wheel")
    if same_minor:
        return Resolved(version, text, False, f"torch_npu {version} is read as the wheel {text}")
    return Resolved(version, text, False, f"torch_npu {version} is not a known wheel; {text} is the nearest")


def at_least(version: str, minimum: str) -> bool:
    """Whether ``version`` is ``minimum`` or newer ("2.1.0.post8" is at least "2.1")."""
    return parse(version) >= parse(minimum)
