"""The command line: commands, options, what goes to stdout and stderr, exit codes.

Only click is imported up front, so that `--version` and `--help` answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from migrator import __version__
from migrator.options import CommandT, Options, SectionedCommand, common_options, job_options, write_sections
from migrator.report import FORMATS
from migrator.smoke.command import smoke
from migrator.terminal import PROGRAM, emit, progress_bar, say

if TYPE_CHECKING:
    from migrator.faults import Fault
    from migrator.job import Job
    from migrator.records import FileResult
    from migrator.registry import Registry
    from migrator.rule import Rule

CLEAN, FINDINGS, TROUBLE = 0, 1, 2
HELP = {"help_option_names": ["-h", "--help"]}


class UserError(click.ClickException):
    """Something that the user can put right: exit code 2, the message on stderr."""

    exit_code = TROUBLE

    def show(self, file: Any = None) -> None:
        say(f"{PROGRAM}: {self.message}")


# --- the main job -----------------------------------------------------------------------------------------


def _run(paths: Sequence[str], options: Options) -> int:
    """Migrate, write or show, report; the exit code."""
    from migrator import present

    with _user_errors():
        source = _stdin(paths, options)
        _check_output(options)
        job = _job(paths, options)
        _migrate(job, paths, options, source)
        if options.writes:
            _write(job, paths, options)
        if options.write_baseline:
            _write_baseline(job, Path(options.write_baseline))
        present.show(job, paths, options)
    return _exit_code(job.results)


def _stdin(paths: Sequence[str], options: Options) -> bytes | None:
    """The source on standard input, if that is what is migrated."""
    name = options.stdin_filename
    if name is None:
        if not paths:
            raise click.UsageError(f"name a file or a folder, for example `{PROGRAM} . --dry-run`")
        if "-" in paths:
            raise click.UsageError("to migrate standard input, name it: --stdin-filename FILE")
        return None
    if set(paths) - {"-"}:
        raise click.UsageError("--stdin-filename reads standard input: leave out the PATH")
    if options.commit_per_rule or options.write_baseline:
        raise click.UsageError("--stdin-filename goes with neither --commit-per-rule nor --write-baseline")
    if not Path(name).name or Path(name).is_dir():
        raise click.UsageError(f"--stdin-filename must name a file, not {name!r}")
    return sys.stdin.buffer.read()


def _check_output(options: Options) -> None:
    """Refuse a report that cannot be written before anything else is."""
    for option, name in (("--output", options.output), ("--write-baseline", options.write_baseline)):
        if name and not (folder := Path(name).parent).is_dir():
            raise UserError(f"{option} {name}: there is no folder {folder}")
        if name and Path(name).is_dir():
            raise UserError(f"{option} {name}: this is a folder; name a file")


def _migrate(job: Job, paths: Sequence[str], options: Options, source: bytes | None = None) -> None:
    from migrator import present
    from migrator.suppress import Baseline

    present.note_skipped(job, paths, options)
    with progress_bar(not (options.quiet or options.check), options.color) as progress:
        job.migrate(progress, source)
    if job.config.baseline:
        path = Path(job.config.baseline)
        job.apply_baseline(Baseline.load(path), path.resolve().parent)


def _job(paths: Sequence[str], options: Options) -> Job:
    """Configuration, files, rules and target of a run."""
    from migrator import config, discover, registry
    from migrator.chips import doubt_about
    from migrator.job import Job
    from migrator.target import detect

    first = Path(options.stdin_filename or paths[0])
    names = (*config.ADDITIVE, "select", "unsafe", "torch_npu", "soc", "jobs", "baseline", "format")
    given = {name: getattr(options, name) for name in names}
    chosen = config.load(first, given, FORMATS)
    if options.stdin_filename:
        discovery = discover.discover_one(first, chosen.exclude, chosen.root)
    else:
        discovery = discover.discover(paths, chosen.exclude, chosen.root)
    version = detect(first, cli=options.torch_npu, config=chosen.torch_npu, soc=chosen.soc)
    if chosen.soc and (doubt := doubt_about(chosen.soc)) and not options.quiet:
        say(f"--soc: {doubt}")
    job = Job(chosen, discovery, registry.load(chosen.rules_dir), version, options.remove)
    if options.remove and not any(handler.kind == "remove" for rule in job.rules for handler in rule.handlers):
        raise click.UsageError("--remove works with rules that can undo their work: add --select shape-detector")
    return job


def _write(job: Job, paths: Sequence[str], options: Options) -> None:
    from migrator.job import DirtyTreeError

    if not options.allow_dirty:
        try:
            job.check_committed([Path(path) for path in paths])
        except DirtyTreeError as error:
            raise UserError(_refusal(error.files)) from error
    if not options.commit_per_rule:
        job.write()
        return
    for message in job.commit_per_rule():
        if not options.quiet:
            say(f"committed: {message}")


def _refusal(dirty: Sequence[Path]) -> str:
    shown = [f"  {os.path.relpath(path)}" for path in dirty[:5]]
    more = [f"  … and {len(dirty) - 5} more"] if len(dirty) > 5 else []
    return "\n".join(
        [
            "nothing was written, because these files have changes that are not committed:",
            *shown,
            *more,
            "Commit or stash them first, look with --dry-run, or write all the same with --allow-dirty.",
        ]
    )


def _write_baseline(job: Job, path: Path) -> None:
    folder = path.resolve().parent
    baseline = job.record_baseline(folder)
    baseline.save(path)
    job.apply_baseline(baseline, folder)


def _exit_code(results: Sequence[FileResult]) -> int:
    from migrator.records import Status

    if any(result.status in (Status.FAILED, Status.SKIPPED) for result in results):
        return TROUBLE
    return FINDINGS if any(result.after is not None or result.diagnostics for result in results) else CLEAN


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn what the user can put right into a message and exit code 2."""
    from migrator.config import ConfigError
    from migrator.discover import PathError
    from migrator.gitrepo import GitError
    from migrator.registry import RegistryError, SelectionError
    from migrator.suppress import BaselineError
    from migrator.target import TargetError

    try:
        yield
    except (ConfigError, PathError, GitError, RegistryError, SelectionError, BaselineError, TargetError) as error:
        raise UserError(str(error)) from error


# --- commands and their options ---------------------------------------------------------------------------


class Cli(click.Group):
    """Sub-commands by name; anything else is the main job.

    Only the first word can name a sub-command, and it always does: a folder called rules is `./rules`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # No option but these is the group's own: "--" hands everything else over untouched.
        if args and args[0] not in (*self.commands, "--help", "-h", "--version"):
            args = ["--", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        close = get_close_matches(args[0], self.commands, n=1, cutoff=0.75)
        if close and not Path(args[0]).exists():
            raise UserError(f"no such command, file or folder: {args[0]} (did you mean {close[0]}?)")
        return None, main_job, args

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "PATH... [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND ...", prefix="   or: ")
        main_job.format_help_text(ctx, formatter)
        write_sections([*main_job.params, *self.get_params(ctx)], ctx, formatter)
        self.format_commands(ctx, formatter)
        self.format_epilog(ctx, formatter)


class _NamelessContext(click.Context):
    """Of the main job, which has no name after the program's."""

    @property
    def command_path(self) -> str:
        return super().command_path.rstrip()


class MainJob(SectionedCommand):
    """What runs when the first word names no command."""

    context_class = _NamelessContext


@click.group(cls=Cli, context_settings=HELP, epilog="""\
\b
Exit codes:
  0  nothing to change and nothing to report
  1  files were (or would be) changed, or findings are left
  2  wrong usage or configuration, or a file that could not be handled

\b
Examples:
  npu-migrate . --dry-run                  show the diff, write nothing
  npu-migrate .                            write the changes
  npu-migrate src train.py --diff --unsafe
  npu-migrate . --check --format sarif --output npu.sarif
  npu-migrate --stdin-filename a.py < a.py
  npu-migrate rule device-string           what a rule does, and why
""")  # fmt: skip
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Migrate PyTorch code from CUDA to Ascend NPUs."""


@click.command(cls=MainJob, context_settings=HELP)
@common_options
@job_options
@click.pass_context
def main_job(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Rewrite PyTorch code for Ascend NPUs: in place, or as a diff with
    --dry-run. What cannot be rewritten is reported with what to do instead.

    PATH is a file or a folder. What .gitignore names, virtual environments and
    build output are left out. Defaults come from [tool.npu-migrate] in
    pyproject.toml.
    """
    chosen = Options(**options)
    if chosen.commit_per_rule and (chosen.allow_dirty or not chosen.writes):
        raise click.UsageError("--commit-per-rule goes with none of --dry-run, --check and --allow-dirty")
    ctx.exit(_run(paths, chosen))


@cli.command(cls=SectionedCommand, context_settings=HELP)
@common_options
@click.pass_context
def analyze(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Say what will and will not work, change nothing."""
    from migrator import present

    if not paths:
        raise click.UsageError("name a file or a folder")
    chosen = Options(**options, dry_run=True)
    _check_output(chosen)
    with _user_errors():
        job = _job(paths, chosen)
        _migrate(job, paths, chosen)
        present.deliver(job, paths, chosen)
    ctx.exit(_exit_code(job.results))


def _rules_dir_option(command: CommandT) -> CommandT:
    return click.option("--rules-dir", metavar="DIR", multiple=True, help="Also load the rules in DIR.")(command)


def _registry(rules_dir: Sequence[str]) -> Registry:
    from migrator import registry

    with _user_errors():
        return registry.load(rules_dir)


@cli.command()
@_rules_dir_option
@click.option("--format", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
def rules(rules_dir: tuple[str, ...], format: str) -> None:
    """List all rules."""
    from migrator import catalogue

    known = _registry(rules_dir).rules
    emit("stdout", catalogue.table_json(known) if format == "json" else catalogue.table(known))


@cli.command()
@_rules_dir_option
@click.argument("rule", metavar="ID|NAME")
def rule(rules_dir: tuple[str, ...], rule: str) -> None:
    """Explain a rule: what, why, example, safety."""
    from migrator import catalogue, faults

    entries: list[Rule | Fault] = [*_registry(rules_dir).rules, *faults.ALL]
    by_word = {word.lower(): entry for entry in entries for word in (entry.id, entry.name)}
    if found := by_word.get(rule.lower()):
        emit("stdout", catalogue.page(found))
        return
    close = get_close_matches(rule.lower(), by_word, n=1)
    hint = f"did you mean {by_word[close[0]].id} ({by_word[close[0]].name})?" if close else ""
    raise UserError(f"no rule {rule!r}; {hint or f'`{PROGRAM} rules` lists them all'}")


@cli.command()
@click.argument("name")
@click.option("--torch-npu", metavar="VERSION", help="For this version. [default: what the project asks for]")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
@click.pass_context
def api(ctx: click.Context, /, name: str, torch_npu: str | None, format: str) -> None:
    """Tell what a CUDA or NPU name becomes, and since when."""
    import json

    from migrator.api.describe import Subject, describe
    from migrator.target import detect

    with _user_errors():
        target = detect(Path.cwd(), cli=torch_npu, config=None, soc=None)
    answer = describe(name, target)
    if torch_npu and target.torch_npu not in torch_npu:
        say(f"Target: torch_npu {target.torch_npu} ({target.reason}).")
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    text = json.dumps(answer.to_json(), indent=2) if format == "json" else answer.to_text(width)
    emit("stdout", f"{text}\n")
    ctx.exit(FINDINGS if answer.subject is Subject.UNKNOWN else CLEAN)


cli.add_command(smoke)


# --- the process ------------------------------------------------------------------------------------------


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        code = cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        say(f"{PROGRAM}: {error}")
        return TROUBLE
    except (KeyboardInterrupt, Exception):
        # An interrupt may arrive as another exception: Python wraps those that come while a class is made.
        if received:
            say(f"{PROGRAM}: interrupted; files that were not written yet are as they were")
            return 128 + received[0]
        traceback.print_exc()
        say(f"{PROGRAM}: this is a bug; please report it with the lines above")
        return TROUBLE
    return code if isinstance(code, int) else CLEAN
