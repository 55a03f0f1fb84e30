"""Files that are no Python and name CUDA all the same: configuration, scripts, notebooks, container files.

They are not migrated, and what stands in them may undo what was: a YAML file with `backend: nccl` is read by
code that now knows hccl only.  So a report names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_KINDS = frozenset(
    (
        *(".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin", ".env"),
        *(".sh", ".bash", ".slurm", ".sbatch", ".ipynb"),
    )
)
_NAMES = re.compile(r"(Dockerfile|Makefile|requirements.*\.txt)", re.IGNORECASE)
_WORDS = re.compile(rb"(?<![a-z])(cuda|nccl|nvidia|(onnxruntime|paddlepaddle|tensorflow)-gpu)", re.IGNORECASE)
_LARGEST = 1_000_000
"""Bytes; what is larger is data."""


def may_configure(path: Path) -> bool:
    """Whether a file that is no Python looks, by its name, like something that programs or people run with."""
    if ".github" in path.parts:
        return False
    return path.suffix.lower() in _KINDS or _NAMES.match(path.name) is not None


def naming_cuda(paths: Iterable[Path]) -> list[Path]:
    """Those of the files that name CUDA, NCCL or NVIDIA; what cannot be read is left out."""
    return [path for path in paths if _names_cuda(path)]


def _names_cuda(path: Path) -> bool:
    try:
        return path.stat().st_size <= _LARGEST and _WORDS.search(path.read_bytes()) is not None
    except OSError:
        return False
