"""Compares files of tensors: final parameters, checkpoints, outputs of modules.

`compare` starts this file as a program in a process of its own, which is the only one here that imports torch.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_DEPTH = 12
LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Difference:
    """How a tensor of one file differs from that of the other, the reference.

    distance  L2 norm of the difference; size: of the reference; count: elements
    problem   what makes the two incomparable, or None
    """

    name: str
    dtype: str
    count: int
    cosine: float | None
    distance: float
    size: float
    max_abs: float
    problem: str | None = None


@dataclass(frozen=True)
class Files:
    """The comparison of two files; `problem` says why there is none."""

    differences: tuple[Difference, ...]
    problem: str | None = None


def compare(
    pairs: Sequence[tuple[Path, Path]], environment: Mapping[str, str], folders: Sequence[Path] = ()
) -> list[Files]:
    """Compare pairs of files (reference, device) tensor by tensor.

    environment  of the process that does it
    folders      where classes that the files hold may be imported from
    """
    if not pairs:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as request:
        names = [[str(path) for path in pair] for pair in pairs]
        json.dump({"pairs": names, "folders": [str(folder) for folder in folders]}, request)
        request.flush()
        done = subprocess.run(
            [sys.executable, __file__, request.name],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    if done.returncode:
        problem = f"the comparison failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
        return [Files((), problem) for _ in pairs]
    answers = json.loads(done.stdout.splitlines()[-1])
    return [Files(tuple(Difference(**item) for item in answer["items"]), answer["problem"]) for answer in answers]


# --- the process with torch -------------------------------------------------------------------------------


def _main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    sys.path[:1] = request["folders"]
    print("\n" + json.dumps([_compare_files(*pair) for pair in request["pairs"]]))


def _compare_files(reference: str, device: str) -> dict[str, Any]:
    for path, side in ((reference, "the reference"), (device, "the run on the device")):
        if not Path(path).is_file():
            return {"items": [], "problem": f"{side} did not write it"}
    try:
        expected, actual = dict(_tensors(_load(reference))), dict(_tensors(_load(device)))
    except Exception as error:
        message = str(error).strip().partition("\n")[0]
        return {"items": [], "problem": f"cannot be read: {type(error).__name__}: {message}"}
    names = dict.fromkeys((*expected, *actual))
    items = [_compare_tensors(name, expected.get(name), actual.get(name)) for name in names if not _is_random(name)]
    return {"items": items, "problem": None if items else "holds no tensors"}


def _is_random(name: str) -> bool:
    """States of random generators differ by their nature."""
    return "rng" in name.lower()


def _load(path: str) -> Any:
    """The content of a file, on the CPU. It may hold any object: the user's program has just written it."""
    import numpy
    import torch

    if path.endswith((".npy", ".npz")):
        loaded = numpy.load(path)
        return dict(loaded) if path.endswith(".npz") else loaded
    if path.endswith(".safetensors"):
        return importlib.import_module("safetensors.torch").load_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torch_npu":
            raise
    import torch_npu  # noqa: F401

    return torch.load(path, map_location="cpu", weights_only=False)


def _tensors(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        yield name or "tensor", value.detach().cpu()
    elif isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        yield name or "array", torch.from_numpy(value)
    elif isinstance(value, torch.nn.Module):
        yield from _tensors(value.state_dict(), name, depth + 1)
    elif depth < MAX_DEPTH:
        items: Iterator[tuple[Any, Any]] = iter(())
        if isinstance(value, Mapping):
            items = iter(value.items())
        elif isinstance(value, (list, tuple)):
            items = iter(enumerate(value))
        for key, item in items:
            yield from _tensors(item, f"{name}.{key}" if name else str(key), depth + 1)


def _compare_tensors(name: str, reference: Any, device: Any) -> dict[str, Any]:
    import torch

    there = device if reference is None else reference
    answer: dict[str, Any] = {
        "name": name,
        "dtype": str(there.dtype).removeprefix("torch."),
        "count": there.numel(),
        "cosine": None,
        "distance": math.inf,
        "size": 0.0,
        "max_abs": math.inf,
        "problem": None,
    }
    if reference is None or device is None:
        return {**answer, "problem": "only on the device" if reference is None else "only in the reference"}
    if reference.shape != device.shape:
        return {**answer, "problem": f"shape {list(device.shape)} instead of {list(reference.shape)}"}
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (reference.to_dense(), device.to_dense()))
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    same = (a == b) | (a.isnan() & b.isnan())
    away = torch.where(same, torch.zeros_like(a), (a - b).abs())
    away = torch.where(away.isnan(), torch.full_like(a, math.inf), away)
    size, other = float(a.norm()), float(b.norm())
    both = size * other
    cosine = 1.0 if bool(same.all()) else float(a @ b) / both if both and math.isfinite(both) else None
    return {
        **answer,
        "cosine": cosine,
        "distance": float(away.norm()),
        "size": size if math.isfinite(size) else 0.0,
        "max_abs": float(away.max()) if away.numel() else 0.0,
    }


if __name__ == "__main__":
    _main()
