"""The report of a smoke check as text for 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from migrator.smoke.compare import Ranked, Step
from migrator.smoke.device import Kind
from migrator.smoke.failures import Failure
from migrator.smoke.golden import Layer
from migrator.smoke.imports import Imported, Outcome
from migrator.smoke.request import Comparison, Report, Side, Verdict
from migrator.smoke.tensors import Files

Row = TypeVar("Row")

WIDTH = 80
ROWS = 24
"""Steps or layers that are shown; in between they are left out."""
LAST_LINES = 15
CANNOT_VOUCH = "kernel limits, precision, speed and real HCCL"
"""What a run on the emulated NPU does not tell."""


def render(report: Report, verbose: bool = False) -> str:
    """The report; `verbose` shows every step and layer, and the output of a failed run in full."""
    blocks = [
        _device(report),
        _preparation(report),
        _imports(report.imports),
        _runs(report),
        _comparison(report, verbose),
        _operators(report),
        _notes(report),
        _failure(report, verbose),
        _wrapped(_verdict(report), "", "    "),
    ]
    return "\n\n".join("\n".join(block) for block in map(list, blocks) if block) + "\n"


def _device(report: Report) -> Iterator[str]:
    device = report.device
    count = f"{device.count} × " if device.count > 1 else ""
    versions = f"torch {device.torch}" + (f", torch_npu {device.torch_npu}" if device.torch_npu else "")
    yield f"Device: {device.title} ({count}{device.name}), {versions}"
    if device.kind is Kind.EMULATED:
        yield from _wrapped(f"An emulated run cannot vouch for {CANNOT_VOUCH}.")


def _preparation(report: Report) -> Iterator[str]:
    if report.changed is not None and report.target is not None:
        yield from _wrapped(
            f"Migrated {_count(report.changed, 'file')} in a temporary copy for torch_npu {report.target.torch_npu} "
            f"({report.target.reason}); {_count(report.remaining, 'finding')} left for a person."
        )


def _imports(modules: Sequence[Imported]) -> Iterator[str]:
    if not modules:
        return
    width = min(max(len(module.path) for module in modules), 40)
    for module in modules:
        text = {Outcome.NEEDS: f"needs package {module.detail}", Outcome.SCRIPT: f"ok: {module.detail}"}.get(
            module.outcome, module.outcome.value
        )
        if module.outcome is Outcome.FAILED:
            where = f"{module.place}:{module.line}: " if module.place else ""
            text = f"failed: {where}{module.detail}"
        yield from _wrapped(text, f"{module.path:{width}}  ", " " * (width + 2))


def _runs(report: Report) -> Iterator[str]:
    for side in (report.reference, report.run):
        if side is not None:
            yield from _wrapped(f"$ {shlex.join(side.run.command)}", "", "    ")
            yield f"    {side.title}: {_ended(side)}"
    if report.losses and report.comparison is None:
        first, last = report.losses[0], report.losses[-1]
        yield f"    {_count(len(report.losses), 'backward pass', 'backward passes')}, loss {first:.6g} … {last:.6g}"
    if report.recorded is not None:
        yield f"    recorded in {report.recorded}"


def _ended(side: Side) -> str:
    run = side.run
    if run.exit_code is None:
        return f"time limit reached after {run.seconds:.0f} s"
    how = f"ended by {run.signal} (exit {run.exit_code})" if run.signal else f"exit {run.exit_code}"
    return f"{how}, {run.seconds:.1f} s"


# --- the comparison ---------------------------------------------------------------------------------------


def _comparison(report: Report, verbose: bool) -> Iterator[str]:
    comparison = report.comparison
    sides = [side for side in (report.reference, report.run) if side is not None]
    if comparison is None or (comparison.is_empty and not all(side.run.succeeded for side in sides)):
        return
    if comparison.is_empty:
        yield from _wrapped(
            "Nothing to compare: the command runs no backward pass, no optimizer step and no module, "
            "and no --artifact is named."
        )
        return
    yield f"Compared with {comparison.reference}"
    if report.golden is not None:
        golden = report.golden
        yield from _wrapped(f"recorded on {golden.device}, torch {golden.torch}, seed {golden.seed}")
    several = len(comparison.ranks) > 1
    for ranked in comparison.ranks:
        yield from _ranked(ranked, comparison, several, verbose)
    yield from _layers(comparison.layers, verbose)
    for files in comparison.final:
        yield from _files("final parameters", files, comparison)
    for name, files in comparison.artifacts:
        yield from _files(name, files, comparison)


def _ranked(ranked: Ranked, comparison: Comparison, several: bool, verbose: bool) -> Iterator[str]:
    title = f"rank {ranked.rank}: " if several else ""
    if ranked.steps:
        yield ""
        if several:
            yield f"rank {ranked.rank}"
        yield (
            f"{'step':>5}  {'reference':>12} {'device':>12} {'abs diff':>9} {'rel diff':>9} {'cos grads':>9} "
            f"{'cos par':>9}"
        )
        for step in _shown(ranked.steps, verbose, lambda step: not step.passed):
            yield "    …" if step is None else _step(step)
    if ranked.divergence is None:
        rtol, atol = comparison.tolerances.of(*(step.dtype for step in ranked.steps))
        what = _count(len(ranked.steps), "backward pass", "backward passes") if ranked.steps else ""
        what = what or _count(ranked.modules, "module output")
        verb = "agrees" if what.startswith("1 ") else "agree"
        yield from _wrapped(f"{title}{what} {verb} (relative tolerance {rtol:g}, absolute {atol:g})")
        return
    found = ranked.divergence
    module = f" of {found.module}" if found.module else ""
    yield from _wrapped(
        f"{title}FIRST DIVERGENCE at step {found.step}, {found.what}{module}: {found.detail}", "", "    "
    )


def _step(step: Step) -> str:
    numbers = f"{_loss(step.reference)} {_loss(step.value)} {_small(step.absolute)} {_small(step.relative)}"
    mark = "" if step.passed else "  ✗"
    return f"{step.step:5}  {numbers} {_cosine(step.gradients)} {_cosine(step.parameters)}{mark}"


def _shown(rows: Sequence[Row], verbose: bool, is_wrong: Callable[[Row], bool]) -> Iterator[Row | None]:
    """All rows of a short table; of a long one the beginning, what surrounds the first wrong row, and the end."""
    if verbose or len(rows) <= ROWS:
        yield from rows
        return
    wrong = next((number for number, row in enumerate(rows) if is_wrong(row)), 0)
    chosen = {*range(ROWS // 3), *range(wrong - 2, wrong + ROWS // 3), *range(len(rows) - 4, len(rows))}
    before = -1
    for number in sorted(number for number in chosen if 0 <= number < len(rows)):
        if number > before + 1:
            yield None
        yield rows[number]
        before = number


def _loss(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.7g'):>12}"


def _small(value: float | None) -> str:
    return f"{'-' if value is None else '0' if value == 0 else format(value, '.1e'):>9}"


def _cosine(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.6f'):>9}"


def _layers(layers: Sequence[Layer], verbose: bool) -> Iterator[str]:
    if not layers:
        return
    yield ""
    yield f"{'step':>5}  {'layer':30} {'inputs':>9} {'outputs':>9} {'rel L2':>9} {'max abs':>9}"
    for layer in _shown(layers, verbose, lambda layer: not layer.passed):
        yield "    …" if layer is None else _layer(layer)
    wrong = [layer for layer in layers if not layer.passed]
    if not wrong:
        yield f"{_count(len(layers), 'layer output')} agree"
        return
    first = next((layer for layer in wrong if layer.inputs_passed), wrong[0])
    why = "while its input agrees" if first.inputs_passed else "and so does its input"
    what = first.problem or f"relative L2 distance {first.relative:.1e}"
    text = f"FIRST LAYER THAT DIFFERS: {first.name} ({first.type}) at step {first.step}, {why}: {what}"
    yield from _wrapped(f"{text}; {len(wrong)} of {len(layers)} layer outputs differ", "", "    ")


def _layer(layer: Layer) -> str:
    name = layer.name if len(layer.name) <= 30 else "…" + layer.name[-29:]
    numbers = f"{_cosine(layer.inputs)} {_cosine(layer.outputs)} {_small(layer.relative)} {_small(layer.max_abs)}"
    return f"{layer.step:5}  {name:30} {numbers}{'' if layer.passed else '  ✗'}"


def _files(name: str, files: Files, comparison: Comparison) -> Iterator[str]:
    if files.problem is not None:
        yield from _wrapped(f"{name}: {files.problem}")
        return
    items = files.differences
    worst = max(items, key=lambda item: (item.problem is not None, item.distance))
    count = _count(len(items), "tensor")
    if comparison.accepts(files):
        how = "equal" if worst.max_abs == 0 else f"agree, largest difference {worst.max_abs:.1e} in {worst.name}"
        yield from _wrapped(f"{name}: {count} {how}")
        return
    what = worst.problem or f"largest difference {worst.max_abs:.2e}, cosine similarity {_cosine(worst.cosine).strip()}"
    yield from _wrapped(f"{name}: DIFFERENT: {worst.name}: {what} (of {count})", "", "    ")


# --- operators, notes, failures ---------------------------------------------------------------------------


def _operators(report: Report) -> Iterator[str]:
    if not report.operators or report.target is None:
        return
    soc = report.target.soc or report.device.name
    yield f"Operators to look at for {soc}, torch_npu {report.target.torch_npu}"
    for operator in report.operators:
        dtypes = f" ({', '.join(operator.dtypes)})" if operator.dtypes else ""
        yield from _wrapped(f"{operator.name}{dtypes} {operator.verdict.value}: {operator.why}", "  ", "    ")
        if operator.places:
            places = ", ".join(f"{path}:{line}" for path, line in operator.places)
            yield from _wrapped(places, "    at ", "       ")


def _notes(report: Report) -> Iterator[str]:
    for note in report.notes:
        yield from _wrapped(f"Note: {note}", "", "    ")
    if report.folder is not None:
        yield f"Kept: {report.folder}"


def _failure(report: Report, verbose: bool) -> Iterator[str]:
    for side in (report.reference, report.run):
        if side is None or side.run.succeeded:
            continue
        yield f"FAILED {side.title}: {_ended(side)}"
        for failure in side.failures:
            yield from _described(failure, migrated=report.changed is not None)
        if not verbose and not any(failure.path for failure in side.failures):
            lines = [line for line in f"{side.run.stdout}\n{side.run.stderr}".splitlines() if line.strip()]
            for line in lines[-LAST_LINES:]:
                yield from textwrap.wrap(line, WIDTH, initial_indent="  | ", subsequent_indent="  |   ")


def _described(failure: Failure, *, migrated: bool) -> Iterator[str]:
    yield from _wrapped(failure.error, "  ", "    ")
    if failure.path is not None:
        original = failure.original
        moved = f" (line {original} of the original)" if original not in (None, failure.line) else ""
        yield f"  at {failure.path}:{failure.line}{moved}"
        if failure.code:
            yield f"    {failure.code}"[:WIDTH]
    for finding in failure.said:
        state = finding.applicability.value
        if finding.fixed:
            state = "fixed" if migrated else "would be fixed"
        yield from _wrapped(f"{finding.rule} [{state}] {finding.message}", "  npu-migrate said: ", "    ")
        if finding.remedy and not finding.fixed:
            yield from _wrapped(f"help: {finding.remedy}", "    ", "    ")


def _verdict(report: Report) -> str:
    verdict = report.verdict
    if verdict is Verdict.NOT_RUN:
        sides = [side for side in (report.run, report.reference) if side is not None]
        missing = next((side.missing_package for side in sides if side.missing_package), None)
        packages = sorted({module.detail for module in report.imports if module.outcome is Outcome.NEEDS})
        if missing:
            return f"COULD NOT RUN: package {missing} is missing in this Python environment; install it"
        if packages:
            return f"COULD NOT RUN: install {', '.join(packages)}"
        if report.both_failed:
            return "COULD NOT RUN: the original fails in the same way"
        ended_by = report.reference.run.signal if report.reference is not None else None
        if ended_by is not None:
            help = "; if torch crashed: set ONEDNN_MAX_CPU_ISA=SSE41" if ended_by in ("SIGABRT", "SIGSEGV") else ""
            return f"COULD NOT RUN: the reference was ended by {ended_by}, not the migrated code{help}"
        if report.reference is not None and not report.reference.run.succeeded:
            return "COULD NOT RUN: the reference failed, so there is nothing to compare with"
        return "COULD NOT RUN: nothing was compared"
    return verdict.name


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _wrapped(text: str, first: str = "", others: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
