"""What a smoke check was asked to do, and what came out of it: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from migrator.smoke.compare import Ranked
from migrator.smoke.device import Device, Kind
from migrator.smoke.failures import Failure
from migrator.smoke.golden import Layer
from migrator.smoke.imports import Imported, Outcome
from migrator.smoke.launcher import Run
from migrator.smoke.operators import Operator
from migrator.smoke.recording import About
from migrator.smoke.tensors import Files
from migrator.smoke.tolerances import LOOSER, Tolerances
from migrator.target import Target


class SmokeError(RuntimeError):
    """A check could not be made; the message says what to do."""


@dataclass(frozen=True)
class Request:
    """The options of the command line, see its help."""

    path: Path
    command: tuple[str, ...] = ()
    device: Kind | None = None
    devices: int = 1
    migrate: bool = False
    unsafe: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    torch_npu: str | None = None
    soc: str | None = None
    original: Path | None = None
    compare: str | None = None
    artifacts: tuple[str, ...] = ()
    tolerances: Tolerances = field(default_factory=Tolerances)
    timeout: float | None = None
    cwd: str = "."
    seed: int = 0
    max_steps: int = 0
    record: Path | None = None
    against: Path | None = None
    modules: str = ""
    module_steps: int = 2
    keep: bool = False
    verbose: bool = False


class Verdict(str, Enum):
    """Of a whole check; the exit codes are 0, 1 and 2."""

    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "could not run"

    @property
    def exit_code(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Side:
    """One run of the command, in the original or in the code that is checked."""

    title: str
    run: Run
    failures: tuple[Failure, ...] = ()

    @property
    def missing_package(self) -> str | None:
        """A package without which the command could not run."""
        if self.run.succeeded:
            return None
        return next((failure.missing_package for failure in self.failures if failure.missing_package), None)


@dataclass(frozen=True)
class Comparison:
    """How the run on the device compares with its reference.

    final      the final parameters of each process, artifacts: (name, comparison) of each declared file
    layers     of golden sets
    """

    reference: str
    tolerances: Tolerances
    ranks: tuple[Ranked, ...]
    final: tuple[Files, ...] = ()
    artifacts: tuple[tuple[str, Files], ...] = ()
    layers: tuple[Layer, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to compare."""
        return not self.ranks and not self.artifacts and not self.layers

    @property
    def passed(self) -> bool:
        """Whether everything agrees."""
        files = [*self.final, *(files for _, files in self.artifacts)]
        return (
            all(rank.passed for rank in self.ranks)
            and all(layer.passed for layer in self.layers)
            and all(self.accepts(compared) for compared in files)
        )

    def accepts(self, files: Files) -> bool:
        """Whether two files agree: no tensor is missing, and as a whole they are close enough.

        Training in a narrow dtype widens the tolerances.
        """
        items = files.differences
        if files.problem is not None or any(item.problem for item in items):
            return False
        limits = self.tolerances.of(*(step.dtype for ranked in self.ranks for step in ranked.steps))
        away, size = (math.hypot(*(getattr(item, name) for item in items)) for name in ("distance", "size"))
        count = sum(item.count for item in items)
        return self.tolerances.accept_distance(away, size, count, *limits, factor=LOOSER)


@dataclass
class Report:
    """All that a check found out."""

    device: Device
    target: Target | None = None
    changed: int | None = None
    remaining: int = 0
    imports: list[Imported] = field(default_factory=list)
    reference: Side | None = None
    run: Side | None = None
    losses: list[float] = field(default_factory=list)
    comparison: Comparison | None = None
    operators: list[Operator] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorded: Path | None = None
    golden: About | None = None
    folder: Path | None = None

    @property
    def both_failed(self) -> bool:
        """Whether the original fails in the same way, so that it is no fault of the migration."""
        sides = [side for side in (self.reference, self.run) if side is not None and not side.run.succeeded]
        ways = [[failure.error for failure in side.failures] or side.run.signal for side in sides]
        return len(sides) == 2 and bool(ways[0]) and ways[0] == ways[1]

    @property
    def verdict(self) -> Verdict:
        """Whether the checks passed; a reference that does not run leaves the question open."""
        if self.run is not None and self.run.missing_package:
            return Verdict.NOT_RUN
        if self.both_failed:
            return Verdict.NOT_RUN
        outcomes = [module.outcome for module in self.imports]
        if (
            Outcome.FAILED in outcomes
            or (self.run is not None and not self.run.run.succeeded)
            or (self.comparison is not None and not self.comparison.passed)
        ):
            return Verdict.FAIL
        if self.reference is not None and not self.reference.run.succeeded:
            return Verdict.NOT_RUN
        if self.comparison is not None and self.comparison.is_empty:
            return Verdict.NOT_RUN
        if outcomes and all(outcome is Outcome.NEEDS for outcome in outcomes):
            return Verdict.NOT_RUN
        return Verdict.PASS
