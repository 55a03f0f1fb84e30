"""The options of the command line, and how the help shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from migrator.report import FORMATS

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True)
class Options:
    """What was given; `analyze` has only the options without a default."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    unsafe: bool
    torch_npu: str | None
    soc: str | None
    exclude: tuple[str, ...]
    jobs: int | None
    rules_dir: tuple[str, ...]
    baseline: str | None
    format: str | None
    output: str | None
    color: bool
    verbose: bool
    quiet: bool
    dry_run: bool = False
    check: bool = False
    stdin_filename: str | None = None
    write_baseline: str | None = None
    commit_per_rule: bool = False
    remove: bool = False
    allow_dirty: bool = False

    @property
    def writes(self) -> bool:
        """Whether files are to be written."""
        return not (self.dry_run or self.check or self.stdin_filename)


_SECTIONS = {
    "What to do": ("dry_run", "check", "stdin_filename", "commit_per_rule", "remove", "allow_dirty"),
    "Which files and findings": (
        *("exclude", "select", "ignore", "unsafe"),
        *("rules_dir", "baseline", "write_baseline"),
    ),
    "Target": ("torch_npu", "soc"),
    "Output": ("format", "output", "color", "verbose", "quiet"),
}


def write_sections(params: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The help of the options, in sections; what no section names comes last."""
    options = (param for param in params if isinstance(param, click.Option))
    records = {option.name: record for option in options if (record := option.get_help_record(ctx))}
    sections = [(title, [records.pop(name) for name in names if name in records]) for title, names in _SECTIONS.items()]
    for title, rows in [*sections, ("General", list(records.values()))]:
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class SectionedCommand(click.Command):
    """A command whose help shows its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(self.get_params(ctx), ctx, formatter)


def _split(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Values of a repeatable option, each of which may be a list with commas."""
    return tuple(item.strip() for value in values for item in value.split(",") if item.strip())


def common_options(command: CommandT) -> CommandT:
    """What every command that looks at code takes."""
    return _add(
        command,
        click.argument("paths", metavar="PATH...", nargs=-1, type=click.UNPROCESSED),
        click.option("--select", metavar="RULES", multiple=True, callback=_split,
                     help="Only these rules: ids, beginnings of ids, names or tags, with commas."),
        click.option("--ignore", metavar="RULES", multiple=True, callback=_split, help="Not these rules."),
        click.option("--unsafe", is_flag=True, help="Also make the fixes that need a review."),
        click.option("--exclude", metavar="GLOB", multiple=True,
                     help="Leave out what matches, in the syntax of .gitignore. Repeatable."),
        click.option("--baseline", metavar="FILE", help="Do not report the findings that are recorded in FILE."),
        click.option("--rules-dir", metavar="DIR", multiple=True,
                     help="Also load the rules in DIR (this runs the code in it). Repeatable."),
        click.option("--torch-npu", metavar="VERSION",
                     help="The torch_npu version to write for. [default: what the project asks for]"),
        click.option("--soc", metavar="NAME", help="The chip, for example Ascend910B1."),
        click.option("--jobs", metavar="N", type=click.IntRange(min=1),
                     help="Worker processes; 1: work in this one. [default: one per processor]"),
        click.option("--format", type=click.Choice(FORMATS), metavar="FORMAT",
                     help=f"The report: {', '.join(FORMATS)}. [default: text]"),
        click.option("--output", metavar="FILE", help="Write the report to FILE."),
        click.option("--no-color", "color", flag_value=False, default=True, type=bool,
                     help="No colours (as with NO_COLOR in the environment)."),
        click.option("-v", "--verbose", is_flag=True, help="Also report what was fixed and what was passed over."),
        click.option("-q", "--quiet", is_flag=True, help="Report failures only."),
    )  # fmt: skip


def job_options(command: CommandT) -> CommandT:
    """What only the main job takes."""
    return _add(
        command,
        click.option("--dry-run", "--diff", "dry_run", is_flag=True, help="Print the diff, write nothing."),
        click.option("--check", is_flag=True,
                     help="Write nothing, print nothing but a --format that is asked for; the exit code tells."),
        click.option("--stdin-filename", metavar="FILE",
                     help="Read the source, named FILE, from stdin; write the result to stdout."),
        click.option("--commit-per-rule", is_flag=True, help="One git commit for each rule that changes something."),
        click.option("--remove", is_flag=True, help="Take out again what the selected rules put in (shape-detector)."),
        click.option("--allow-dirty", is_flag=True, help="Write even where changes are not committed."),
        click.option("--write-baseline", metavar="FILE", help="Record what is left in FILE, for --baseline."),
    )  # fmt: skip


def _add(command: CommandT, *decorators: Callable[[CommandT], CommandT]) -> CommandT:
    for decorator in reversed(decorators):
        command = decorator(command)
    return command
