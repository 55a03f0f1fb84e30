"""Helpers for arrays."""

from __future__ import annotations

import numpy as np


def pad_center(data: np.ndarray, size: int) -> np.ndarray:
    """A vector with zeros on both sides."""
    before = (size - len(data)) // 2
    return np.pad(data, (before, size - len(data) - before))


def tiny(values: np.ndarray) -> float:
    """The smallest normal number of the values' dtype."""
    return float(np.finfo(values.dtype).tiny)


def normalize(values: np.ndarray, norm: None = None) -> np.ndarray:
    """With the norm None: as they are."""
    if norm is not None:
        raise NotImplementedError("normalize: only norm=None")
    return values
