"""The order of events of a smoke check."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from migrator.smoke import compare, failures, golden, imports, launcher, migration, operators, recording, tensors, trees
from migrator.smoke.device import Device, DeviceError, Kind, choose
from migrator.smoke.hook.settings import VARIABLE, Settings
from migrator.smoke.launcher import LaunchError
from migrator.smoke.recording import About, Recording, RecordingError
from migrator.smoke.request import Comparison, Report, Request, Side, SmokeError

_SITE = Path(__file__).parent / "hook" / "site"
_TO_NPU = {"cuda": "npu", "nccl": "hccl"}
_TO_CUDA = {npu: cuda for cuda, npu in _TO_NPU.items()}
_REFERENCES = {"cpu": "the original on the CPU", "transfer_to_npu": "the original under transfer_to_npu"}


def check(request: Request, say: Callable[[str], None]) -> Report:
    """Make the checks of a request; `say` hears what is being done. Raises SmokeError and OSError."""
    try:
        device = choose(request.device, devices=request.devices, chip=request.soc, records=request.record is not None)
        with _workspace(request.keep) as folder:
            session = _Session(request, device, folder, say)
            session.prepare()
            if request.command:
                session.run()
            else:
                session.import_modules()
            return session.report
    except (DeviceError, LaunchError, RecordingError) as error:
        raise SmokeError(str(error)) from error


@contextlib.contextmanager
def _workspace(keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="npu-smoke-")).resolve()
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Ran:
    """A side, with its recording and where it ran."""

    side: Side
    recording: Recording
    cwd: Path
    variables: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """For a process that sees the same device and is not recorded."""
        return {name: value for name, value in {**os.environ, **self.variables}.items() if name != VARIABLE}


class _Session:
    def __init__(self, request: Request, device: Device, folder: Path, say: Callable[[str], None]) -> None:
        self._request = request
        self._device = device
        self._folder = folder
        self._say = say
        self._path = request.path.resolve()
        self._tree = self._path if self._path.is_dir() else self._path.parent
        self._root = self._tree
        self._original = (request.original or self._tree).resolve()
        self._migration: migration.Migration | None = None
        self._copies: list[trees.Copy] = []
        self.report = Report(device, folder=folder if request.keep else None)

    # --- before the run ---------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Copy and migrate, where that is asked for."""
        request = self._request
        if request.compare and not (request.migrate or request.original):
            raise SmokeError(
                "--compare needs the original: with --migrate PATH is the original, else name it: --original DIR"
            )
        if request.migrate:
            self._say("migrating a copy")
            self._migration = self._plan()
            target = self._migration.target
            self.report.changed = self._migration.changed
            self.report.remaining = sum(result.remaining for result in self._migration.results)
        else:
            target = migration.target(self._path, self._overrides())
        self.report.target = replace(target, soc=target.soc or self._device.name) if self._device.is_npu else target
        if request.migrate or request.compare:
            self._root = self._copy(self._tree, "device")
            if self._migration is not None:
                self._migration.write_to(self._root)

    def _plan(self) -> migration.Migration:
        return migration.plan(self._path, self._overrides())

    def _overrides(self) -> dict[str, Any]:
        """What the command line says about a migration."""
        names = ("unsafe", "select", "ignore", "torch_npu", "soc")
        return {name: getattr(self._request, name) for name in names}

    def _copy(self, tree: Path, name: str) -> Path:
        copy = trees.copy_tree(tree, self._folder / name)
        self._copies.append(copy)
        return copy.root

    # --- without a command ------------------------------------------------------------------------------------

    def import_modules(self) -> None:
        """Import every module."""
        self._say("importing every module")
        variables = self._variables(self._root, None, npu=True)
        self.report.imports = imports.check(self._root, variables, self._request.timeout, self._request.verbose)

    # --- with a command ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the command, and where asked its reference before it."""
        request, report = self._request, self.report
        reference = self._run_reference() if request.compare else None
        report.reference = reference.side if reference else None
        device = self._run_device()
        report.run = device.side
        report.losses = [event["value"] for trace in device.recording.traces[:1] for event in trace.losses]
        if request.compare == "cpu" and self._device.kind is Kind.NPU:
            report.notes.append("random numbers drawn on an NPU are not the CPU's: dropout and sampling cannot agree")
        report.notes += [problem for trace in device.recording.traces for problem in trace.problems]
        if self._device.is_npu and report.target is not None:
            report.operators = operators.judge(device.recording, device.side.run.stderr, self._root, report.target)
        if reference:
            report.comparison = self._compare(reference, device)
        if request.against:
            report.comparison = self._compare_golden(request.against, device)
        if request.record and device.side.run.succeeded:
            recording.save(device.recording.folder, request.record, self._about())
            report.recorded = request.record
        for copy in self._copies:
            report.notes += [f"the run changed {path}, in a folder of data that was linked" for path in copy.touched()]

    def _run_reference(self) -> _Ran:
        request = self._request
        root = self._copy(self._original, "reference")
        on_cpu = request.compare == "cpu"
        settings = Settings(
            folder=str(self._recordings("reference")),
            root=str(root),
            seed=request.seed,
            cuda_devices=self._device.count if on_cpu else 0,
            transfer=not on_cpu,
            max_steps=request.max_steps,
            module_steps=request.module_steps,
        )
        title = _REFERENCES[request.compare or "cpu"]
        self._say(f"running {title}")
        return self._launch(title, root, self._original, _TO_CUDA, settings, npu=not on_cpu)

    def _run_device(self) -> _Ran:
        request = self._request
        compares = bool(request.compare or request.record or request.against)
        about = recording.about(request.against) if request.against else None
        saves = request.record is not None or about is not None
        self.report.golden = about
        settings = Settings(
            folder=str(self._recordings("device")),
            root=str(self._root),
            seed=(about.seed if about else request.seed) if compares else None,
            cuda_devices=self._device.count if self._device.kind is Kind.CPU else 0,
            operators=self._device.is_npu,
            max_steps=request.max_steps or (about.max_steps if about else 0),
            module_steps=about.module_steps if about else request.module_steps,
            modules=(about.modules if about else request.modules) if saves else None,
        )
        words = _TO_NPU if request.migrate or request.compare else {}
        self._say(f"running on the {self._device.title}")
        return self._launch(
            f"on the {self._device.title}", self._root, self._tree, words, settings, npu=self._device.is_npu
        )

    def _recordings(self, name: str) -> Path:
        folder = self._folder / "recordings" / name
        folder.mkdir(parents=True)
        return folder

    def _launch(
        self, title: str, root: Path, original: Path, words: dict[str, str], settings: Settings, *, npu: bool
    ) -> _Ran:
        request = self._request
        command = request.command if root == original else trees.translated(request.command, words, self._tree, root)
        cwd = (root / request.cwd).resolve()
        if not cwd.is_dir():
            raise SmokeError(f"--cwd {request.cwd}: there is no such folder in {original}")
        variables = self._variables(root, settings, npu=npu)
        run = launcher.run(command, cwd=cwd, variables=variables, timeout=request.timeout, echo=request.verbose)
        found = () if run.succeeded else tuple(self._failures(run, root))
        return _Ran(Side(title, run, found), recording.read(Path(settings.folder)), cwd, variables)

    def _failures(self, run: launcher.Run, root: Path) -> Sequence[failures.Failure]:
        output = f"{run.stdout}\n{run.stderr}"
        if root != self._root:
            return failures.find(output, root)
        if self._migration is not None:
            return failures.find(output, root, self._migration, migrated=True)
        plan = None
        with contextlib.suppress(Exception):  # it only explains; the failure itself is what counts
            plan = self._plan()
        return failures.find(output, root, plan)

    def _variables(self, root: Path, settings: Settings | None, *, npu: bool) -> dict[str, str]:
        """The environment variables of a run, on top of ours."""
        golden = self.report.golden
        shares_rng = bool(self._request.compare) or (golden is not None and golden.device.startswith("CPU"))
        variables = self._device.variables(shares_rng) if npu else {}
        path = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")).split(os.pathsep)
        emulator, path = (path[:1], path[1:]) if "PYTHONPATH" in variables else ([], path)
        own = [str(_SITE)] if settings else []
        shown = [_moved(entry, self._tree, root) for entry in path if entry]
        ours = [*emulator, *own, *_installed_folders(self._tree, root), *shown]
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --tb=native".strip()
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "0") if npu else "0",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTEST_ADDOPTS": options,
            **variables,
            "PYTHONPATH": os.pathsep.join(ours),
            **(settings.variables() if settings else {}),
        }

    # --- after the run ----------------------------------------------------------------------------------------

    def _compare(self, reference: _Ran, device: _Ran) -> Comparison:
        self._say("comparing")
        tolerances = self._request.tolerances
        complete = device.side.run.succeeded and reference.side.run.succeeded
        ranks = compare.compare(reference.recording, device.recording, tolerances, complete=complete)
        final = self._final_parameters(reference.recording, device.recording)
        names = self._request.artifacts if complete else ()
        artifacts = [(reference.cwd / name, device.cwd / name) for name in names]
        folders = [device.cwd, self._root]
        compared = tensors.compare([*final, *artifacts], device.environment, folders)
        return Comparison(
            reference.side.title,
            tolerances,
            tuple(ranks),
            tuple(compared[: len(final)]),
            tuple(zip(names, compared[len(final) :], strict=True)),
        )

    def _compare_golden(self, folder: Path, device: _Ran) -> Comparison:
        self._say("comparing with the golden set")
        tolerances = self._request.tolerances
        reference = recording.read(folder)
        ranks = compare.compare(reference, device.recording, tolerances, complete=device.side.run.succeeded)
        final = self._final_parameters(reference, device.recording)
        return Comparison(
            f"the golden set {folder}",
            tolerances,
            tuple(ranks),
            tuple(tensors.compare(final, device.environment)),
            layers=tuple(golden.compare(reference, device.recording, tolerances, device.environment)),
        )

    def _final_parameters(self, reference: Recording, device: Recording) -> list[tuple[Path, Path]]:
        found = compare.pairs(reference, device)
        return [(a.final, b.final) for a, b in found if a and b and a.final is not None and b.final is not None]

    def _about(self) -> About:
        request, device = self._request, self._device
        return About(
            device.title if device.kind is Kind.CPU else f"{device.title} ({device.name})",
            device.torch,
            device.torch_npu,
            request.seed,
            request.command,
            request.modules,
            request.module_steps,
            request.max_steps,
        )


def _moved(entry: str, tree: Path, root: Path) -> str:
    """An entry of PYTHONPATH, in the copy if it is in the tree."""
    path = Path(entry).absolute()
    return str(root / path.relative_to(tree)) if path.is_relative_to(tree) else str(path)


def _installed_folders(tree: Path, root: Path) -> list[str]:
    """Where the copy's packages are, if the tree is installed in editable mode: else that would be imported."""
    if root == tree:
        return []
    for distribution in metadata.distributions():
        text = distribution.read_text("direct_url.json") or ""
        if f'"{tree.as_uri()}"' in text and '"editable": true' in text:
            return [str(folder) for folder in (root / "src", root) if folder.is_dir()]
    return []
