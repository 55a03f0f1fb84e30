"""Find the source lines of a training loop whose tensor shapes change from one iteration to the next.

On an NPU a new shape can mean a new kernel to compile, so a loop with ever-changing shapes crawls. Wrap the
iterable of the loop, run it, and read the report::

    from migrator import shapes

    for batch in shapes.watch(loader):
        ...

The report goes to ``npu_shapes/rank0.csv`` and, in short, to stderr. ``NPU_MIGRATE_SHAPES=0`` turns the hook
off: ``watch`` then returns its argument. docs/shapes.md tells the rest.

This is the one part of the package that converted programs import: it needs the standard library and, once a
watched loop starts, the program's own torch (2.1 or later).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from .record import Loop

__all__ = ["summary", "watch"]

T = TypeVar("T")


def watch(iterable: Iterable[T]) -> Iterable[T]:
    """Return ``iterable`` wrapped so that the body of a loop over it is recorded.

    The wrapper behaves like ``iterable``: ``len()``, indexing and every attribute reach the original, and it can
    be iterated as often. Loops may nest, stop early or raise. With ``NPU_MIGRATE_SHAPES=0`` the original is
    returned.
    """
    if os.environ.get("NPU_MIGRATE_SHAPES", "1").lower() in ("0", "false", "no", "off"):
        return iterable
    return Watched(iterable, sys._getframe(1))


def summary() -> str:
    """Tell which source lines saw varying shapes so far in this process, and what to do about each."""
    from . import record, report

    return report.summary(record.journal)


class Watched(Generic[T]):
    """A stand-in for an iterable: iterating over it records the operators that run between two items."""

    __slots__ = ("_iterable", "_loop")
    _iterable: Iterable[T]
    _loop: Loop

    def __init__(self, iterable: Iterable[T], caller: Any) -> None:
        from .record import journal

        object.__setattr__(self, "_iterable", iterable)
        object.__setattr__(self, "_loop", journal.loop(caller))

    def __iter__(self) -> Iterator[T]:
        from .mode import record_loop

        return record_loop(self._iterable, self._loop)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getitem__(self, index: Any) -> Any:
        return self._iterable[index]  # type: ignore[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterable, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._iterable, name, value)

    def __repr__(self) -> str:
        return f"watch({self._iterable!r})"
