"""How much two runs may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULTS = {"float64": (1e-6, 1e-8), "float32": (1e-4, 1e-6), "float16": (1e-2, 1e-3), "bfloat16": (5e-2, 1e-2)}
"""dtype → (relative, absolute) tolerance; other dtypes count as float32."""
LOOSER = 10
"""Gradients, parameters and files may differ by this many times the tolerance.

Gradients are differences of larger numbers; and an optimizer such as Adam turns the rounding error of a gradient
that is truly 0 into steps of full size.
"""


@dataclass(frozen=True)
class Tolerances:
    """The tolerances of a comparison; None: by dtype."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, *dtypes: str | None) -> tuple[float, float]:
        """(relative, absolute) for values that were computed in these dtypes: the widest counts."""
        pairs = [DEFAULTS.get(dtype or "", DEFAULTS["float32"]) for dtype in dtypes if dtype] or [DEFAULTS["float32"]]
        rtol, atol = max(pairs)
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol

    def accept(self, value: float, reference: float, *dtypes: str | None) -> bool:
        """Whether a number is close enough to the reference. NaN is close to NaN only."""
        rtol, atol = self.of(*dtypes)
        return _same(value, reference) or abs(value - reference) <= atol + rtol * abs(reference)

    def accept_all(
        self, values: Sequence[float], references: Sequence[float], *dtypes: str | None, factor: float = 1
    ) -> bool:
        """Whether a vector is close enough to the reference, by the L2 distance."""
        if len(values) != len(references):
            return False
        rtol, atol = self.of(*dtypes)
        return self.accept_distance(distance(values, references), norm(references), len(values), rtol, atol, factor)

    @staticmethod
    def accept_distance(away: float, size: float, count: int, rtol: float, atol: float, factor: float = 1) -> bool:
        """Whether vectors of `count` elements, one of length `size`, that far apart are close enough."""
        return away <= factor * (atol * math.sqrt(count) + rtol * size)


def norm(values: Sequence[float]) -> float:
    """The L2 norm of what is finite."""
    return math.sqrt(math.fsum(value * value for value in values if math.isfinite(value)))


def distance(values: Sequence[float], references: Sequence[float]) -> float:
    """The L2 distance; infinite where one is NaN or infinite and the other is not the same."""
    pairs = [pair for pair in zip(values, references, strict=True) if not _same(*pair)]
    if not all(math.isfinite(a) and math.isfinite(b) for a, b in pairs):
        return math.inf
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs))


def cosine(values: Sequence[float], references: Sequence[float]) -> float | None:
    """The cosine similarity; None where it makes no sense (NaN, other lengths)."""
    if len(values) != len(references) or not all(map(math.isfinite, (*values, *references))):
        return None
    sizes = norm(values) * norm(references)
    if sizes == 0:
        return 1.0 if norm(values) == norm(references) else 0.0
    return min(1.0, math.fsum(a * b for a, b in zip(values, references, strict=True)) / sizes)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
