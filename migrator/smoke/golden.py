"""Outputs of modules in two recordings, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.smoke import tensors
from migrator.smoke.compare import pairs
from migrator.smoke.recording import Event, Recording
from migrator.smoke.tolerances import Tolerances


@dataclass(frozen=True)
class Layer:
    """One call of a module. `relative` is the L2 distance divided by the reference's L2 norm.

    inputs, outputs  cosine similarity of the worst of its tensors; None where it is undefined
    inputs_passed    whether what it was given agrees: if so and its output does not, the fault is in it
    """

    rank: int
    step: int
    name: str
    type: str
    dtype: str
    inputs: float | None
    outputs: float | None
    relative: float
    max_abs: float
    inputs_passed: bool
    passed: bool
    problem: str | None = None


def compare(
    reference: Recording, device: Recording, tolerances: Tolerances, environment: Mapping[str, str]
) -> list[Layer]:
    """Compare the saved tensors of all modules that ran in both, in the order of the device's run."""
    calls = list(_calls(reference, device))
    files = tensors.compare([(a, b) for _, _, a, b in calls], environment)
    return [_layer(rank, event, found, tolerances) for (rank, event, _, _), found in zip(calls, files, strict=True)]


def _calls(reference: Recording, device: Recording) -> Iterator[tuple[int, Event, Path, Path]]:
    for expected, actual in pairs(reference, device):
        if expected is None or actual is None:
            continue
        known = {_key(event): expected.folder / event["file"] for event in expected.modules if "file" in event}
        for event in actual.modules:
            if "file" in event and _key(event) in known:
                yield actual.rank, event, known[_key(event)], actual.folder / event["file"]


def _key(event: Event) -> tuple[int, str, int]:
    return event["step"], event["name"], event["call"]


def _layer(rank: int, event: Event, files: tensors.Files, tolerances: Tolerances) -> Layer:
    inputs = [item for item in files.differences if item.name.startswith("inputs")]
    outputs = [item for item in files.differences if item.name.startswith("outputs")]
    problem = files.problem or next((item.problem for item in outputs if item.problem), None)
    return Layer(
        rank,
        event["step"],
        event["name"],
        event["type"],
        event["dtype"],
        _worst(inputs),
        _worst(outputs),
        max((item.distance / item.size if item.size else item.distance for item in outputs), default=0.0),
        max((item.max_abs for item in outputs), default=0.0),
        all(_accept(item, tolerances) for item in inputs),
        problem is None and all(_accept(item, tolerances) for item in outputs),
        problem,
    )


def _worst(items: Sequence[tensors.Difference]) -> float | None:
    known = [item.cosine for item in items if item.cosine is not None]
    return min(known) if known else None


def _accept(item: tensors.Difference, tolerances: Tolerances) -> bool:
    """Whether a tensor is close enough to the reference."""
    if item.problem is not None:
        return False
    return tolerances.accept_distance(item.distance, item.size, item.count, *tolerances.of(item.dtype))
