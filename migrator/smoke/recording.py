"""What the hook wrote about a run: one trace for each process that trained or ran a module."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
_ABOUT = "run.json"

Event = dict[str, Any]


class RecordingError(RuntimeError):
    """A recording cannot be read; the message says why."""


@dataclass(frozen=True)
class About:
    """What a recording is of.

    modules, module_steps  as in the hook's settings
    """

    device: str
    torch: str
    torch_npu: str | None
    seed: int | None
    command: tuple[str, ...]
    modules: str | None
    module_steps: int
    max_steps: int
    format: int = FORMAT


@dataclass
class Trace:
    """The events of one process, by kind and in their order.

    final  the file of its final parameters, if it got that far
    """

    rank: int
    started: float
    folder: Path
    losses: list[Event] = field(default_factory=list)
    gradients: list[Event] = field(default_factory=list)
    parameters: list[Event] = field(default_factory=list)
    modules: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    final: Path | None = None

    @property
    def trained(self) -> bool:
        """Whether anything was recorded that can be compared."""
        return bool(self.losses or self.parameters or self.modules)


@dataclass(frozen=True)
class Recording:
    """The traces of a run, by rank and then in the order in which the processes started."""

    folder: Path
    traces: tuple[Trace, ...]


def read(folder: Path) -> Recording:
    """Read a folder that the hook wrote. Raises RecordingError."""
    try:
        traces = [_trace(path) for path in sorted(folder.glob("*.jsonl"))]
    except (OSError, ValueError, KeyError) as error:
        raise RecordingError(f"{folder}: the recording cannot be read: {error}") from error
    return Recording(folder, tuple(sorted(traces, key=lambda trace: (trace.rank, trace.started))))


def _trace(path: Path) -> Trace:
    events = list(_events(path))
    start = events[0]
    rank = next((event["value"] for event in events if event["kind"] == "rank"), start["rank"])
    final = path.with_suffix(".pt")
    trace = Trace(rank, start["started"], path.parent, final=final if final.exists() else None)
    lists = {
        "loss": trace.losses,
        "gradients": trace.gradients,
        "parameters": trace.parameters,
        "module": trace.modules,
        "operator": trace.operators,
    }
    for event in events:
        if event["kind"] in lists:
            lists[event["kind"]].append(event)
        elif event["kind"] == "failure":
            trace.problems.append(event["message"])
    return trace


def _events(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # the last line of a killed process may be cut off
                yield json.loads(line)


def save(recording: Path, destination: Path, about: About) -> None:
    """Keep a recording as a golden set. Raises OSError; an old golden set there is replaced."""
    if destination.exists():
        shutil.rmtree(destination)
    shutil.copytree(recording, destination)
    text = json.dumps(asdict(about), indent=2)
    (destination / _ABOUT).write_text(text + "\n", encoding="utf-8")


def is_golden(folder: Path) -> bool:
    """Whether a folder is a golden set, or may become one."""
    return not folder.exists() or (folder / _ABOUT).is_file() or (folder.is_dir() and not any(folder.iterdir()))


def about(folder: Path) -> About:
    """What a golden set is of. Raises RecordingError."""
    try:
        values = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordingError(f"{folder} is no golden set: --record {folder} makes one") from error
    except (OSError, ValueError) as error:
        raise RecordingError(f"{folder / _ABOUT}: cannot be read: {error}") from error
    if values.get("format") != FORMAT:
        raise RecordingError(f"{folder} was recorded by another version of npu-migrate: record it again")
    return About(**{**values, "command": tuple(values["command"])})
