"""Traces side by side, without running anything."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from migrator.smoke.compare import Ranked, compare
from migrator.smoke.recording import Recording, Trace
from migrator.smoke.tolerances import Tolerances, cosine, distance

SAMPLES = {"Net.a.weight": [1.0, 2.0], "Net.b.weight": [3.0]}
SIZES = {"Net.a.weight": 2, "Net.b.weight": 1}


def trace(steps: int = 6, rank: int = 0) -> Trace:
    found = Trace(rank, 0.0, Path())
    for step in range(steps):
        found.losses.append({"step": step, "value": 2.0 - step / 10, "dtype": "float32"})
        found.modules.append(module(step, "Net.a", 3.0 + step))
        found.modules.append(module(step, "Net", 5.0 + step))
        norms = {"Net.a.weight": 1.0 + step, "Net.b.weight": 2.0}
        common = {"step": step, "backward": step, "dtype": "float32"}
        found.gradients.append({**common, "norms": norms, "sample": [0.5, -0.25, 1.0]})
        found.parameters.append({**common, "samples": dict(SAMPLES), "sizes": SIZES})
    return found


def module(step: int, name: str, norm: float) -> dict[str, Any]:
    return {"step": step, "call": 0, "name": name, "type": "X", "dtype": "float32", "norms": [norm], "inputs": [1.0]}


def compared(reference: Trace, device: Trace, tolerances: Tolerances | None = None, **options: Any) -> Ranked:
    recordings = [Recording(Path(), (side,)) for side in (reference, device)]
    [ranked] = compare(*recordings, tolerances or Tolerances(), **options)
    return ranked


@pytest.fixture
def device() -> Trace:
    return copy.deepcopy(trace())


def test_equal(device: Trace) -> None:
    ranked = compared(trace(), device)
    assert ranked.passed
    assert [(step.absolute, step.gradients, step.parameters) for step in ranked.steps] == [(0.0, 1.0, 1.0)] * 6


def test_loss(device: Trace) -> None:
    device.losses[3]["value"] *= 1.01
    ranked = compared(trace(), device)
    assert [step.passed for step in ranked.steps] == [True, True, True, False, True, True]
    assert ranked.steps[3].relative == pytest.approx(0.01)
    assert (ranked.divergence.step, ranked.divergence.what) == (3, "loss")
    assert compared(trace(), device, Tolerances(rtol=0.02)).passed


def test_the_earliest_cause_is_named(device: Trace) -> None:
    device.losses[3]["value"] += 1
    device.parameters[2]["samples"]["Net.b.weight"] = [3.5]
    assert compared(trace(), device).divergence.what == "parameters"
    device.gradients[2]["norms"]["Net.a.weight"] = 9.0
    found = compared(trace(), device).divergence
    assert (found.step, found.what, found.module) == (2, "gradients", "Net.a.weight")
    device.modules[5]["norms"] = [77.0]  # the whole net's, at step 2
    found = compared(trace(), device).divergence
    assert (found.step, found.what, found.module) == (2, "module output", "Net")


def test_a_module_alone_is_no_divergence(device: Trace) -> None:
    device.modules[2]["norms"] = [77.0]
    assert compared(trace(), device).passed


def test_modules_count_where_nothing_is_trained(device: Trace) -> None:
    reference = trace()
    for side in (reference, device):
        side.losses.clear(), side.gradients.clear(), side.parameters.clear()
    assert compared(reference, device).passed
    device.modules[2]["norms"] = [77.0]
    assert compared(reference, device).divergence.module == "Net.a"


def test_fewer_steps(device: Trace) -> None:
    del device.losses[4:]
    found = compared(trace(), device).divergence
    assert (found.step, found.what) == (4, "number of steps")
    assert found.detail == "backward passes: 4 on the device, 6 in the reference"
    assert compared(trace(), device, complete=False).passed


def test_missing_rank(device: Trace) -> None:
    both = Recording(Path(), (trace(), trace(rank=1)))
    one, other = compare(both, Recording(Path(), (device,)), Tolerances())
    assert one.passed
    assert other.divergence.what == "number of processes"


def test_nan_is_a_divergence_only_where_the_reference_has_none(device: Trace) -> None:
    reference = trace()
    device.losses[5]["value"] = math.nan
    assert compared(reference, device).divergence.step == 5
    reference.losses[5]["value"] = math.nan
    assert compared(reference, device).passed


@pytest.mark.parametrize(("dtype", "passed"), [("float32", False), ("float16", True), ("bfloat16", True)])
def test_tolerance_by_dtype(device: Trace, dtype: str, passed: bool) -> None:
    device.losses[0]["value"] *= 1.005
    device.losses[0]["dtype"] = dtype
    assert compared(trace(), device).passed is passed


def test_scaled_loss_points_to_the_scaler(device: Trace) -> None:
    device.losses[0]["value"] *= 65536
    assert "65536 times more: look at the arguments of GradScaler" in compared(trace(), device).divergence.detail
    device.losses[0]["value"] = trace().losses[0]["value"] * 3
    assert "GradScaler" not in compared(trace(), device).divergence.detail


def test_vectors() -> None:
    assert cosine([1.0, 0.0], [0.0, 1.0]) == 0.0
    assert cosine([0.0], [0.0]) == 1.0
    assert cosine([1.0], [1.0, 2.0]) is None
    assert cosine([math.nan], [1.0]) is None
    assert distance([math.nan, 3.0], [math.nan, 7.0]) == 4.0
    assert distance([math.inf], [1.0]) == math.inf
