"""Many files: read, prefilter, gather project facts, migrate in workers, write; one bad file stops nothing.

Everything here speaks `concurrent.futures.Executor`.  Bytes go in and records come out, so that a cluster's
executor without a shared file system does as well as local processes.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from migrator import engine, faults
from migrator.discover import Found
from migrator.edits import write_atomically
from migrator.engine import Settings
from migrator.project import Project
from migrator.records import FileResult, Status

MAX_BYTES = 5_000_000
SERIAL_BELOW = 20
"""Fewer candidates than this are not worth several processes."""
_CHUNK_BYTES = 64_000  # about a fifth of a second of work: a worker's message must not cost more than its work

Answers = Generator[tuple[int, FileResult], None, None]
Progress = Callable[[int, int], None]
"""Called with the number of files done and of all candidates."""


@dataclass(frozen=True)
class Item:
    """One candidate on its way to a worker.

    index        of the file among all files
    display      its path in the results
    module_path  posix, below the folder that imports count from
    """

    index: int
    raw: bytes
    display: str
    module_path: str
    settings: Settings


@dataclass(frozen=True)
class Reading:
    """What was read: the candidates, the results of all other files, and the facts about the whole."""

    items: list[Item] = field(default_factory=list)
    results: dict[int, FileResult] = field(default_factory=dict)
    project: Project = field(default_factory=Project.empty)


def read_files(
    files: Sequence[Found],
    settings: Callable[[Found], Settings],
    source: bytes | None = None,
    around: Sequence[Found] = (),
) -> Reading:
    """Read every file once.

    `settings` may differ by file (per-file ignores); `source` stands in for the content of the files.
    Of the files `around` only the facts are wanted, and only if there is something to migrate.
    """
    names = _module_paths([*files, *around])
    items: list[Item] = []
    results: dict[int, FileResult] = {}

    def read() -> Iterator[tuple[str, bytes]]:
        for index, (file, name) in enumerate(zip(files, names, strict=False)):
            chosen = settings(file)
            raw = _read(file, chosen, source)
            if isinstance(raw, FileResult):
                results[index] = raw
                continue
            candidate = engine.is_candidate(raw, chosen)
            if candidate:
                items.append(Item(index, raw, file.display, name, chosen))
            else:
                results[index] = FileResult(file.display, Status.UNCHANGED, before=raw)
            yield name, raw if candidate or _has_facts(name, raw) else b""
        for file, name in zip(around, names[len(files) :], strict=True) if items else ():
            chosen = settings(file)
            raw = _read(file, chosen, None)
            if isinstance(raw, bytes):
                yield name, raw if _has_facts(name, raw) or engine.is_candidate(raw, chosen) else b""

    with _without_collector():
        project = Project.scan(read())
    return Reading(items, results, project)


def _has_facts(name: str, raw: bytes) -> bool:
    """Whether a file that is no candidate may say something about others: it uses torch, or ties modules together."""
    return b"torch" in raw or b"__main__" in raw or name.endswith("__init__.py")


def migrate_files(
    reading: Reading,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[FileResult]:
    """What would become of each file, in the order read.  Nothing is written.  See `migrate_items`."""
    results = dict(reading.results)
    with closing(migrate_items(reading.items, reading.project, jobs=jobs, executor=executor)) as answers:
        for done, (index, result) in enumerate(answers, 1):
            results[index] = result
            if progress:
                progress(done, len(reading.items))
    return [results[index] for index in sorted(results)]


def migrate_items(
    items: Sequence[Item], project: Project, *, jobs: int | None = None, executor: Executor | None = None
) -> Answers:
    """The results, by index, as they come; close the generator to end its workers.

    `jobs`: local processes, 1 for none, None for one per processor.  An `executor` given by the caller is
    used as it is and left open.
    """
    if executor is not None:
        return _elsewhere(items, project, executor)
    if jobs == 1 or not items:
        return (answer for item in items for answer in _work([item], project))
    return _local(items, project, jobs)


def _read(file: Found, settings: Settings, source: bytes | None) -> bytes | FileResult:
    """The file's bytes, or its result if there is nothing to migrate in them."""
    try:
        raw = file.path.read_bytes() if source is None else source
    except OSError as error:
        fault = faults.UNREADABLE.at(f"cannot be read: {error.strerror or error}")
        return FileResult(file.display, Status.FAILED, (fault,), error=fault.message)
    return _refused(file.display, raw, settings) or raw


def _refused(path: str, raw: bytes, settings: Settings) -> FileResult | None:
    """The result for bytes that are no source code to work on; None if they are."""
    if b"\0" not in raw and len(raw) <= MAX_BYTES:
        return None
    if not engine.is_candidate(raw, settings):
        return FileResult(path, Status.UNCHANGED, before=raw)
    what = (
        "holds NUL bytes, so it is no source code"
        if b"\0" in raw
        else f"has {len(raw) / 1e6:.1f} MB; files of more than {MAX_BYTES / 1e6:.0f} MB are not looked at"
    )
    fault = faults.NOT_SOURCE.at(what, remedy="leave it out with --exclude, or look through it yourself")
    return FileResult(path, Status.SKIPPED, (fault,), raw, error=fault.message)


def _module_paths(files: Sequence[Found]) -> list[str]:
    """Posix paths below the folder that absolute imports count from, as far as the file tree shows it."""
    if not files:
        return []
    base = Path(os.path.commonpath([file.root for file in files]))
    while (base / "__init__.py").exists() and base != base.parent:
        base = base.parent
    return [file.path.relative_to(base).as_posix() for file in files]


# --- the work of one process ------------------------------------------------------------------------------


def _work(chunk: Sequence[Item], project: Project | None = None) -> list[tuple[int, FileResult]]:
    """Migrate a few files; local workers have the project already."""
    known = _project if project is None else project
    return [(item.index, _migrate(item, known)) for item in chunk]


def _migrate(item: Item, project: Project) -> FileResult:
    try:
        with _without_collector():
            result = engine.migrate(item.raw, item.module_path, item.settings, project)
        return replace(result, path=item.display)
    except Exception as error:  # a bug, but one that must not cost the other files
        fault = faults.RULE_CRASHED.at(f"internal error: {type(error).__name__}: {error}")
        return FileResult(item.display, Status.FAILED, (fault,), item.raw, error=fault.message)


@contextmanager
def _without_collector() -> Iterator[None]:
    """No garbage collection meanwhile: the trees of a file live until it is done, and are large to look through."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_project = Project.empty()


def _start_worker(project: Project) -> None:
    global _project
    _project = project
    # Ctrl-C reaches the whole process group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


# --- many processes ---------------------------------------------------------------------------------------


def _local(items: Sequence[Item], project: Project, jobs: int | None) -> Answers:
    """Local processes.  For a few files one is enough; it still keeps a crash of the parser away from us.

    When a worker dies, the pool with everything in flight is lost.  What was in flight is done again one
    file at a time, which shows the file to blame; then the rest goes on as before.
    """
    workers = 1 if len(items) < SERIAL_BELOW else min(jobs or _processors(), len(items))
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    others = multiprocessing.active_children()
    queue, suspects = deque(_chunks(items)), deque[list[Item]]()
    running: dict[Future[list[tuple[int, FileResult]]], list[Item]] = {}
    pool = None
    try:
        while queue or suspects or running:
            pool = pool or ProcessPoolExecutor(workers, context, _start_worker, (project,))
            waiting, width = (suspects, 1) if suspects else (queue, 2 * workers)
            while waiting and len(running) < width:
                chunk = waiting.popleft()
                running[pool.submit(_work, chunk)] = chunk
            lost = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                chunk = running.pop(future)
                try:
                    yield from future.result()
                except BrokenExecutor:
                    lost += chunk
            if lost:
                lost += [item for chunk in running.values() for item in chunk]
                running.clear()
                pool.shutdown()
                pool = None
                if len(lost) == 1:
                    yield lost[0].index, _lost(lost[0], "the process that worked on it died")
                else:
                    suspects.extend([item] for item in lost)
        if pool:
            pool.shutdown()
    finally:
        left = [child for child in multiprocessing.active_children() if child not in others]
        for child in left:
            child.terminate()
        if pool:
            # Its thread waits for the workers too, and of two who wait only one learns that a process has ended.
            pool.shutdown(cancel_futures=True)
        for child in left:
            child.join()


def _elsewhere(items: Sequence[Item], project: Project, executor: Executor) -> Answers:
    """The caller's executor: the project travels with the work; what fails there is only reported."""
    running: dict[Future[list[tuple[int, FileResult]]], list[Item]] = {}
    try:
        for chunk in _chunks(items):
            running[executor.submit(_work, chunk, project)] = chunk
        for future in as_completed(running):
            chunk = running[future]
            try:
                yield from future.result()
            except Exception as error:
                for item in chunk:
                    yield item.index, _lost(item, f"the executor failed: {type(error).__name__}: {error}")
    finally:
        for future in running:
            future.cancel()


def _lost(item: Item, message: str) -> FileResult:
    fault = faults.WORKER_DIED.at(message)
    return FileResult(item.display, Status.FAILED, (fault,), item.raw, error=fault.message)


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Large files first, alone, so that none of them is left for the end; then small ones together."""
    chunk: list[Item] = []
    size = 0
    for item in sorted(items, key=lambda item: len(item.raw), reverse=True):
        chunk.append(item)
        size += len(item.raw)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- writing ----------------------------------------------------------------------------------------------


def write(file: Found, result: FileResult) -> FileResult:
    """Write a changed file; the result, FAILED if that was not possible."""
    if result.after is None:
        return result
    try:
        if file.path.read_bytes() != result.before:
            return unwritten(result, "the file was changed by someone else in the meantime")
        write_atomically(file.path, result.after)
    except OSError as error:
        return unwritten(result, f"cannot be written: {error.strerror or error}")
    return result


def unwritten(result: FileResult, message: str) -> FileResult:
    """The result of a file whose change could not be written after all."""
    fault = faults.UNWRITABLE.at(message)
    left = tuple(replace(diagnostic, fixed=False) for diagnostic in result.diagnostics)
    return replace(result, status=Status.FAILED, diagnostics=(fault, *left), after=None, error=message)
