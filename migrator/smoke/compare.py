"""Two recordings side by side: every backward pass, and the first place where they part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from migrator.smoke.recording import Event, Recording, Trace
from migrator.smoke.tolerances import LOOSER, Tolerances, cosine, norm


@dataclass(frozen=True)
class Step:
    """One backward pass in the reference and on the device.

    gradients   cosine similarity of the gradients at the optimizer step that followed; None: there was none
    parameters  of the parameters after it
    """

    step: int
    dtype: str
    reference: float | None
    value: float | None
    absolute: float | None
    relative: float | None
    gradients: float | None
    parameters: float | None
    passed: bool


@dataclass(frozen=True)
class Divergence:
    """The first place where two runs part.

    what    "module output", "loss", "gradients", "parameters" or "number of steps"
    module  the module or parameter, where that is known
    """

    step: int
    what: str
    module: str | None
    detail: str


@dataclass(frozen=True)
class Ranked:
    """The comparison of one process with its counterpart."""

    rank: int
    steps: tuple[Step, ...]
    modules: int
    divergence: Divergence | None

    @property
    def passed(self) -> bool:
        """Whether the runs agree."""
        return self.divergence is None


def pairs(reference: Recording, device: Recording) -> list[tuple[Trace | None, Trace | None]]:
    """The traces that belong together: of the same rank, in the order in which they started."""
    ranks = sorted({trace.rank for trace in (*reference.traces, *device.traces)})
    found: list[tuple[Trace | None, Trace | None]] = []
    for rank in ranks:
        expected, actual = (
            [trace for trace in side.traces if trace.rank == rank and trace.trained] for side in (reference, device)
        )
        found += list(zip_longest(expected, actual))
    return found


def compare(reference: Recording, device: Recording, tolerances: Tolerances, *, complete: bool = True) -> list[Ranked]:
    """One comparison for each pair of processes; none when nothing was recorded on either side.

    complete: whether both runs got to their end; if not, only what both have done is compared.
    """
    found = pairs(reference, device)
    if not complete:
        found = [_common(expected, actual) for expected, actual in found if expected and actual]
    return [_compare(expected, actual, tolerances) for expected, actual in found]


def _common(reference: Trace, device: Trace) -> tuple[Trace, Trace]:
    """The two traces without the losses that only one of them has."""
    steps = min(len(reference.losses), len(device.losses))
    return replace(reference, losses=reference.losses[:steps]), replace(device, losses=device.losses[:steps])


def _compare(reference: Trace | None, device: Trace | None, tolerances: Tolerances) -> Ranked:
    if reference is None or device is None:
        there = reference or device
        rank = there.rank if there else 0
        where = "the reference" if device is None else "the device"
        return Ranked(rank, (), 0, Divergence(0, "number of processes", None, f"only {where} has a further process"))
    steps = _steps(reference, device, tolerances)
    found = sorted(_divergences(reference, device, steps, tolerances), key=lambda item: (item.step, _ORDER[item.what]))
    return Ranked(device.rank, tuple(steps), len(device.modules), found[0] if found else None)


_ORDER = {
    name: place for place, name in enumerate(("module output", "loss", "gradients", "parameters", "number of steps"))
}


def _steps(reference: Trace, device: Trace, tolerances: Tolerances) -> list[Step]:
    steps = []
    for expected, actual in zip_longest(reference.losses, device.losses):
        event = expected or actual
        number = int(event["step"])
        dtypes = [side["dtype"] for side in (expected, actual) if side]
        a, b = (float(side["value"]) if side else None for side in (expected, actual))
        away = abs(b - a) if a is not None and b is not None else None
        steps.append(
            Step(
                number,
                min(dtypes, key=lambda dtype: -tolerances.of(dtype)[0]),
                a,
                b,
                away,
                away / abs(a) if away is not None and a else away,
                _similarity(reference.gradients, device.gradients, number, lambda event: event["sample"]),
                _similarity(reference.parameters, device.parameters, number, _flat),
                a is not None and b is not None and tolerances.accept(b, a, *dtypes),
            )
        )
    return steps


def _flat(event: Event) -> list[float]:
    """The sample of all parameters, each weighted so that the vector is as long as that of all elements."""
    return [
        value * math.sqrt(event["sizes"][name] / len(values))
        for name, values in event["samples"].items()
        for value in values
    ]


def _similarity(
    reference: Sequence[Event], device: Sequence[Event], backward: int, values: Callable[[Event], list[float]]
) -> float | None:
    """The cosine similarity of what was recorded at the optimizer steps after a backward pass."""
    sides = [
        [value for event in events if event["backward"] == backward for value in values(event)]
        for events in (reference, device)
    ]
    return cosine(*sides) if all(sides) else None


# --- where the runs part ----------------------------------------------------------------------------------


def _divergences(
    reference: Trace, device: Trace, steps: Sequence[Step], tolerances: Tolerances
) -> Iterator[Divergence]:
    """The first of each kind. A module's output alone is none: it must have had a consequence."""
    consequences = [
        *_losses(steps, reference, device),
        *_gradients(reference, device, steps, tolerances),
        *_parameters(reference, device, steps, tolerances),
    ]
    yield from consequences
    module = next(_modules(reference, device, tolerances), None)
    only_modules = not reference.losses and not device.losses
    if module and (only_modules or any(module.step <= found.step for found in consequences)):
        yield module


def _losses(steps: Sequence[Step], reference: Trace, device: Trace) -> Iterator[Divergence]:
    for step in steps:
        if step.reference is None or step.value is None:
            counts = f"{len(device.losses)} on the device, {len(reference.losses)} in the reference"
            yield Divergence(step.step, "number of steps", None, f"backward passes: {counts}")
            return
        if not step.passed:
            yield Divergence(step.step, "loss", None, _numbers(step.value, step.reference) + _scaled(step))
            return


def _scaled(step: Step) -> str:
    """A loss that is wrong by a power of two, the factors that GradScaler multiplies with."""
    ratio = step.value / step.reference if step.reference and step.value else 0
    if not math.isfinite(ratio) or ratio <= 0:
        return ""
    exponent = round(math.log2(ratio))
    if abs(exponent) >= 2 and abs(ratio / 2**exponent - 1) < 1e-2:
        factor = f"{2 ** abs(exponent):g}"
        return f" ({factor} times {'more' if exponent > 0 else 'less'}: look at the arguments of GradScaler)"
    return ""


def _gradients(reference: Trace, device: Trace, steps: Sequence[Step], tolerances: Tolerances) -> Iterator[Divergence]:
    for expected, actual in zip(reference.gradients, device.gradients, strict=False):
        dtypes = (_dtype_at(steps, actual), expected["dtype"])
        whole = norm(list(expected["norms"].values()))
        wrong = [
            name
            for name, value in expected["norms"].items()
            if not _accept_gradient(actual["norms"].get(name), value, whole, tolerances.of(*dtypes))
        ]
        extra = [name for name in actual["norms"] if name not in expected["norms"]]
        if wrong or extra:
            name = (wrong or extra)[-1]  # the last layer's gradient is computed first
            detail = _numbers(actual["norms"].get(name), expected["norms"].get(name), "norm ")
            yield Divergence(actual["backward"], "gradients", name, detail + _more(len(wrong) + len(extra)))
            return
        if not tolerances.accept_all(actual["sample"], expected["sample"], *dtypes, factor=LOOSER):
            detail = f"cosine similarity {_similar(actual['sample'], expected['sample'])}"
            yield Divergence(actual["backward"], "gradients", None, detail)
            return


def _accept_gradient(value: float | None, reference: float, whole: float, limits: tuple[float, float]) -> bool:
    """Whether a parameter's gradient is close enough; one whose true value is 0 is noise of the whole's size."""
    if value is None:
        return False
    rtol, atol = limits
    return Tolerances(rtol * LOOSER, atol * LOOSER + rtol * whole).accept(value, reference)


def _parameters(reference: Trace, device: Trace, steps: Sequence[Step], tolerances: Tolerances) -> Iterator[Divergence]:
    for expected, actual in zip(reference.parameters, device.parameters, strict=False):
        dtypes = (_dtype_at(steps, actual), expected["dtype"])
        if tolerances.accept_all(_flat(actual), _flat(expected), *dtypes, factor=LOOSER):
            continue
        wrong = [
            name
            for name, values in expected["samples"].items()
            if not tolerances.accept_all(actual["samples"].get(name, []), values, *dtypes)
        ]
        name = next(iter(wrong), None)
        detail = f"cosine similarity {_similar(_flat(actual), _flat(expected))}"
        yield Divergence(actual["backward"], "parameters", name, detail + _more(len(wrong)))
        return


def _modules(reference: Trace, device: Trace, tolerances: Tolerances) -> Iterator[Divergence]:
    """Modules whose output differs, in the order in which they ran."""
    expected = {_call(event): event for event in reference.modules}
    for event in device.modules:
        other = expected.get(_call(event))
        if other is None or _alike(event, other, "norms", tolerances):
            continue
        detail = f"norms {_list(event['norms'])} instead of {_list(other['norms'])}"
        if not _alike(event, other, "inputs", tolerances):
            detail += f"; its input already differs: {_list(event['inputs'])} instead of {_list(other['inputs'])}"
        yield Divergence(event["step"], "module output", event["name"], detail)


def _call(event: Event) -> tuple[int, str, int]:
    return event["step"], event["name"], event["call"]


def _alike(event: Event, other: Event, key: str, tolerances: Tolerances) -> bool:
    values, references = event[key], other[key]
    return len(values) == len(references) and all(
        tolerances.accept(value, reference, event["dtype"], other["dtype"])
        for value, reference in zip(values, references, strict=True)
    )


def _dtype_at(steps: Sequence[Step], event: Event) -> str | None:
    return next((step.dtype for step in steps if step.step == event["backward"]), None)


def _numbers(value: float | None, reference: float | None, what: str = "") -> str:
    shown = ["none" if number is None else f"{number:.6g}" for number in (value, reference)]
    return f"{what}{shown[0]} instead of {shown[1]}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _similar(values: Sequence[float], references: Sequence[float]) -> str:
    found = cosine(values, references)
    return "undefined" if found is None else f"{found:.6f}"


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
