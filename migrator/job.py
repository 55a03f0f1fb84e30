"""One run: from PATH arguments and configuration to results, and from results to written files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

from migrator import faults, gitrepo, run
from migrator.config import Config
from migrator.discover import Discovery, Found
from migrator.engine import Settings
from migrator.linters import mind_unused_imports
from migrator.records import FileResult, Status
from migrator.registry import Registry
from migrator.rule import Rule
from migrator.suppress import Baseline
from migrator.target import Target


class DirtyTreeError(RuntimeError):
    """Writing would mix with changes that are not committed; `files` are absolute."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(f"{len(files)} files are not committed")
        self.files = files


@dataclass
class Job:
    """What a run works on, and its results: one per found file, in that order.

    Folders that could not be read come after the files.
    """

    config: Config
    discovery: Discovery
    registry: Registry
    target: Target
    remove: bool = False
    results: list[FileResult] = field(default_factory=list)
    _reading: run.Reading = field(default_factory=run.Reading)

    @cached_property
    def enabled(self) -> frozenset[str]:
        """The ids of the selected rules; SelectionError names what does not exist."""
        return self.registry.select(self.config.select, self.config.ignore)

    @property
    def rules(self) -> list[Rule]:
        return [rule for rule in self.registry.rules if rule.id in self.enabled]

    def read(self, source: bytes | None = None) -> run.Reading:
        """Read the files and the facts about the whole; `source` stands in for the content of a single one."""
        settings = self._settings(self.enabled)
        reading = run.read_files(self.discovery.files, settings, source, self.discovery.around)
        linted = any(map(mind_unused_imports, {file.root for file in self.discovery.files}))
        return replace(reading, project=replace(reading.project, linted=linted))

    def migrate(self, progress: run.Progress | None = None, source: bytes | None = None) -> None:
        """Find out what would become of each file; `source` stands in for the content of a single one."""
        self._reading = self.read(source)
        self.results = run.migrate_files(self._reading, jobs=self.config.jobs, progress=progress)
        for display, reason in self.discovery.unreadable:
            fault = faults.UNREADABLE.at(f"the folder cannot be read: {reason}")
            self.results.append(FileResult(display, Status.FAILED, (fault,), error=fault.message))

    def _settings(self, enabled: frozenset[str]) -> Callable[[Found], Settings]:
        """The settings of each file: all the same, but for per-file ignores."""
        common = Settings(self.target, enabled, self.config.unsafe, self.config.rules_dir, self.remove)
        everything = frozenset(rule.id for rule in self.registry.rules)
        ignores = [
            (GitIgnoreSpec.from_lines([glob]), everything - self.registry.select(["all"], ids))
            for glob, ids in self.config.per_file_ignores
        ]
        root = self.config.root

        def settings(file: Found) -> Settings:
            inside = root is not None and file.path.is_relative_to(root)
            name = file.path.relative_to(root).as_posix() if root and inside else file.display
            ignored = [ids for spec, ids in ignores if spec.match_file(name)]
            return replace(common, enabled=enabled.difference(*ignored)) if ignored else common

        return settings

    # --- the baseline -----------------------------------------------------------------------------------------

    def apply_baseline(self, baseline: Baseline, folder: Path) -> None:
        """Drop the findings that are known; the baseline counts paths from its own folder."""
        names = self._names_below(folder)
        self.results = [baseline.filter(result, name) for result, name in zip(self.results, names, strict=True)]

    def record_baseline(self, folder: Path) -> Baseline:
        """A baseline of all that is left."""
        baseline = Baseline()
        for result, name in zip(self.results, self._names_below(folder), strict=True):
            baseline.add(result, name)
        return baseline

    def _names_below(self, folder: Path) -> list[str]:
        paths = [file.path for file in self.discovery.files]
        names = [Path(os.path.relpath(path, folder)).as_posix() for path in paths]
        return names + [display for display, _ in self.discovery.unreadable]

    # --- writing ----------------------------------------------------------------------------------------------

    def _changing(self) -> dict[int, Found]:
        return {index: file for index, file in enumerate(self.discovery.files) if self.results[index].after is not None}

    def check_committed(self, paths: Iterable[Path]) -> None:
        """Raise DirtyTreeError if git could not tell our changes from the user's, or not bring a file back."""
        changing = [file.path for file in self._changing().values()]
        if dirty := gitrepo.uncommitted([path.resolve() for path in paths], changing):
            raise DirtyTreeError(dirty)

    def write(self) -> None:
        """Write every changed file; those that cannot be written become FAILED."""
        for index, file in self._changing().items():
            self.results[index] = run.write(file, self.results[index])

    def commit_per_rule(self) -> list[str]:
        """Write the changes rule by rule, each a commit; returns the messages.  Raises GitError.

        A file may need several rules together to come out right; what is still missing after the last rule
        is one more commit.
        """
        changing = self._changing()
        inside = gitrepo.by_repository(file.path for file in changing.values())
        for file in changing.values():
            if not any(file.path in files for files in inside.values()):
                raise gitrepo.GitError(f"{file.path} is in no git repository, so its change cannot be committed")
        items = {item.index: item for item in self._reading.items if item.index in changing}
        messages = []
        for enabled, message in self._steps():
            settings = self._settings(enabled)
            step = [replace(item, settings=settings(self.discovery.files[item.index])) for item in items.values()]
            written = self._write_step(step, items)
            for top, paths in gitrepo.by_repository(written).items():
                gitrepo.commit(top, paths, message)
            if written:
                messages.append(message)
        return messages

    def _steps(self) -> list[tuple[frozenset[str], str]]:
        """The rules to run and the message of each commit."""
        fixed = {found.rule for result in self.results for found in result.diagnostics if found.fixed}
        # Rules that answer to the changes of others (the import of torch_npu) belong to each of those.
        followers = {rule.id for rule in self.rules if any(handler.kind == "change" for handler in rule.handlers)}
        steps = [
            (frozenset({rule.id}) | followers, f"{rule.id} {rule.name}: {rule.title}")
            for rule in self.rules
            if rule.id in fixed - followers
        ]
        return [*steps, (self.enabled, "npu-migrate: what several rules change together")]

    def _write_step(self, step: Sequence[run.Item], items: dict[int, run.Item]) -> list[Path]:
        """Migrate, write, and bring `items` up to date; the files written."""
        written = []
        for index, result in run.migrate_items(step, self._reading.project, jobs=self.config.jobs):
            file = self.discovery.files[index]
            outcome = run.write(file, result)
            if outcome.after is not None:
                items[index] = replace(items[index], raw=outcome.after)
                written.append(file.path)
            elif result.after is not None:
                self.results[index] = run.unwritten(self.results[index], outcome.error or "")
                del items[index]
        return sorted(written)
