"""What the user gets to see of a job: the diff or the machine format on stdout, all else on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size

from migrator import __version__, diff, faults, report, unread
from migrator.edits import write_atomically
from migrator.job import Job
from migrator.options import Options
from migrator.records import FileResult, Status
from migrator.target import lacking_torch_npu
from migrator.terminal import Stream, emit, is_coloured, say


def show(job: Job, paths: Sequence[str], options: Options) -> None:
    """After the main job.  Raises OSError if the --output cannot be written."""
    format = job.config.format
    if options.output or format != "text":
        deliver(job, paths, options)
    if options.output or format == "text":
        _show_code(job, paths, options)
    if options.check or options.quiet:
        _say_failures(job)
    elif format == "text" and not options.output:
        emit("stderr", _render(job, paths, options, "stderr"))


def deliver(job: Job, paths: Sequence[str], options: Options) -> None:
    """The report in its format, to --output or else to stdout.  Raises OSError."""
    if not options.output:
        emit("stdout", _render(job, paths, options, "stdout"))
        return
    path = Path(options.output)
    data = _render(job, paths, options).encode()
    if path.exists() and not path.is_file():  # /dev/stdout, a named pipe
        path.write_bytes(data)
    else:
        write_atomically(path, data)


def note_skipped(job: Job, paths: Sequence[str], options: Options) -> None:
    """Before the job: what is not looked at."""
    if options.verbose:
        for path, reason in job.discovery.skipped:
            say(f"not looked at: {path} ({reason})")
        if job.config.file:
            say(f"configuration: {job.config.file}")
    if not (options.quiet or options.check):
        for path in job.discovery.foreign:
            say(f"not looked at: {path} (no Python file)")
    if not job.discovery.files and not job.discovery.unreadable and not options.quiet:
        say(f"no Python files in {', '.join(paths)}")


def _show_code(job: Job, paths: Sequence[str], options: Options) -> None:
    """The diff of a dry run; the migrated source of standard input."""
    if options.dry_run:
        changed = ((r.path, r.before, r.after) for r in _as_shown(job, paths))
        patches = (diff.unified(path, old or b"", new) for path, old, new in changed if new is not None)
        colour = diff.colourise if is_coloured("stdout", options.color) else bytes
        for patch in patches:
            emit("stdout", colour(patch))
    elif options.stdin_filename and not options.check:
        result = job.results[0]
        emit("stdout", (result.before or b"") if result.after is None else result.after)


def _render(job: Job, paths: Sequence[str], options: Options, stream: Stream | None = None) -> str:
    """The report; for a terminal with colours and as wide as that."""
    meta = report.ReportMeta(
        tool_version=__version__,
        target=job.target,
        rules=[*job.rules, *faults.ALL],
        dry_run=options.dry_run or options.check,
        root=_root(paths),
        paths=(options.stdin_filename,) if options.stdin_filename else paths,
    )
    format = job.config.format
    if format == "text":
        meta = replace(
            meta,
            unread=[_from_here(path) for path in unread.naming_cuda(job.discovery.beside)],
            requirements=[_from_here(path) for path in _lacking(job)],
        )
    color = stream is not None and is_coloured(stream, options.color)
    return report.render(
        format,
        job.results if format == "json" else _as_shown(job, paths),
        meta,
        color=color,
        width=min(get_terminal_size().columns, 120) if color else 80,
        verbose=options.verbose,
    )


def _lacking(job: Job) -> list[Path]:
    """Requirement files that do not go with the imports of torch_npu that were (or would be) added."""
    added = [
        file.path
        for file, result in zip(job.discovery.files, job.results, strict=False)
        if b"import torch_npu" in (result.after or b"") and b"import torch_npu" not in (result.before or b"")
    ]
    return lacking_torch_npu(job.discovery.files[0].root, added) if added else []


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _root(paths: Sequence[str]) -> str:
    """The folder that the shown paths count from, as the user named it.

    That is a folder that is the only PATH.  Else names could be mistaken, and git would not find them: then
    they count from the current folder.
    """
    if len(paths) != 1:
        return "."
    path = Path(paths[0])
    if path.is_dir():
        return paths[0]
    return "." if path.resolve().is_relative_to(Path.cwd()) else str(path.parent)


def _as_shown(job: Job, paths: Sequence[str]) -> list[FileResult]:
    """The results with paths that count from `_root`, where a file is below it."""
    if _root(paths) != ".":
        return job.results
    shown = list(job.results)
    here = Path.cwd()
    for index, file in enumerate(job.discovery.files):
        if file.path.is_relative_to(here):
            shown[index] = replace(shown[index], path=file.path.relative_to(here).as_posix())
    return shown


def _say_failures(job: Job) -> None:
    for result in job.results:
        if result.status in (Status.FAILED, Status.SKIPPED):
            say(f"{result.path}: {result.diagnostics[0].rule} {result.error}")
