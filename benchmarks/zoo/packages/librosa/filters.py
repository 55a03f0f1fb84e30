"""Mel filters."""

from __future__ import annotations

import numpy as np


def mel(sr: int, n_fft: int, n_mels: int, fmin: float, fmax: float) -> np.ndarray:
    """Triangular filters of equal area, evenly spaced in mel: (n_mels, n_fft // 2 + 1)."""
    lowest, highest = (2595 * np.log10(1 + hertz / 700) for hertz in (fmin, fmax))
    edges = 700 * (10 ** (np.linspace(lowest, highest, n_mels + 2) / 2595) - 1)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hertz = np.linspace(0, sr / 2, n_fft // 2 + 1)
    triangles = np.minimum((hertz - left) / (middle - left), (right - hertz) / (right - middle)).clip(min=0)
    return (2 * triangles / (right - left)).astype(np.float32)
