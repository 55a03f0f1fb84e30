"""Stands in for the librosa of 2018, of which NVIDIA/tacotron2 uses four functions."""

from . import filters, util

__all__ = ["filters", "util"]
