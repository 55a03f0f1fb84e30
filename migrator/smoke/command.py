"""npu-migrate smoke: its options. Imports only click; the work is loaded when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_NOT_COMPARED = "--compare, --artifact, --record and --against need a CMD to run"
DIRECTORY = click.Path(path_type=Path)


@click.command(short_help="Run converted code on an NPU or the emulated one.", epilog="""\
\b
Exit codes:
  0  all checks passed
  1  a check failed
  2  the check could not be made; the message says what to install or to change

\b
Examples:
  npu-migrate smoke .                                     import every module
  npu-migrate smoke . --migrate -- python train.py --epochs 1
  npu-migrate smoke . --migrate --compare cpu -- torchrun --nproc-per-node 2 train.py
  npu-migrate smoke . --record golden --device cuda -- python train.py
  npu-migrate smoke . --against golden -- python train.py
""")  # fmt: skip
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.argument("command", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--migrate", is_flag=True, help="Migrate PATH into a temporary copy and check that.")
@click.option("--unsafe", is_flag=True, help="With --migrate: also make the fixes that need a review.")
@click.option("--select", metavar="RULES", multiple=True, help="With --migrate: only these rules, with commas.")
@click.option("--ignore", metavar="RULES", multiple=True, help="With --migrate: not these rules.")
@click.option(
    "--compare",
    type=click.Choice(["cpu", "transfer_to_npu"]),
    help="Also run the original, on the CPU or under torch_npu's transfer_to_npu, and compare.",
)
@click.option("--original", type=DIRECTORY, metavar="DIR", help="Where the original is, if PATH is not with --migrate.")
@click.option(
    "--artifact",
    "artifacts",
    metavar="FILE",
    multiple=True,
    help="Compare this file that CMD writes, tensor by tensor. Repeatable.",
)
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance. [default: by dtype]")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance. [default: by dtype]")
@click.option("--record", type=DIRECTORY, metavar="DIR", help="Save a golden set: what CMD computes, and its modules.")
@click.option("--against", type=DIRECTORY, metavar="DIR", help="Compare CMD with a golden set.")
@click.option(
    "--modules",
    metavar="GLOB",
    default="",
    help="Modules of a golden set, by name or class. [default: all without modules in them]",
)
@click.option(
    "--module-steps",
    metavar="N",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Look at modules until the N-th backward pass.",
)
@click.option(
    "--device",
    type=click.Choice(["npu", "emulated", "cuda", "cpu"]),
    help="Where to run; cuda and cpu are for golden sets. [default: an NPU if there is one, else emulated]",
)
@click.option(
    "--devices", metavar="N", type=click.IntRange(1, 64), default=1, show_default=True, help="How many NPUs to emulate."
)
@click.option("--soc", metavar="NAME", help="The chip, for example Ascend910B1.")
@click.option("--torch-npu", metavar="VERSION", help="The version to migrate for. [default: what the project asks for]")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True), help="End a run after that long."
)
@click.option(
    "--max-steps",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="End a run after N backward passes. [default: at its own end]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of compared and recorded runs.")
@click.option("--cwd", metavar="DIR", default=".", help="Where in PATH to run CMD. [default: PATH]")
@click.option("--keep", is_flag=True, help="Keep the temporary folder with copies and recordings.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
@click.option("-v", "--verbose", is_flag=True, help="Show the output of CMD while it runs, and every step.")
@click.pass_context
def smoke(ctx: click.Context, /, path: Path, command: tuple[str, ...], format_: str, **options: Any) -> None:
    """Run code on an NPU, or where there is none on an emulated one.

    Without CMD every module in PATH is imported. With CMD, that runs in PATH:
    a Python script, python -m, torchrun, pytest or another program. The user's
    tree is not touched with --migrate or --compare: they work on copies.
    """
    from migrator.smoke import run

    problem = _problem(command, options)
    if problem:
        raise click.UsageError(problem)
    ctx.exit(run.run(path, command, format_, options))


def _problem(command: tuple[str, ...], options: dict[str, Any]) -> str | None:
    """What is contradictory in the options."""
    needs_command = ("compare", "artifacts", "record", "against")
    if not command and any(options[name] for name in needs_command):
        return _NOT_COMPARED
    if options["compare"] and (options["record"] or options["against"]):
        return "--compare runs its own reference: leave out --record and --against"
    if options["record"] and options["against"]:
        return "--record makes a golden set, --against uses one: one at a time"
    if options["artifacts"] and not options["compare"]:
        return "--artifact is compared with that of the original: add --compare cpu"
    if options["device"] in ("cuda", "cpu") and not (options["record"] or options["against"]):
        return f"--device {options['device']} is for --record and --against"
    if options["original"] and not options["compare"]:
        return "--original is what --compare runs: add --compare cpu"
    if options["original"] and options["migrate"]:
        return "with --migrate, PATH is the original: leave out --original"
    return None
