"""Migrates and runs real repositories: python benchmarks/zoo.py [NAME ...] --repos DIR

For each recipe: a pinned public repository is copied, small input data are made, and
`npu-migrate smoke --migrate --compare cpu` runs the original on the CPU and the migrated copy on an NPU, or on the
emulated one, and compares every step. Prints a table and what went wrong; exit code 0 when every recipe passed.

A repository that is not in DIR yet is fetched from GitHub. docs/zoo.md describes recipes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent / "zoo"
TOOL = [sys.executable, "-m", "migrator"]
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
HEADINGS = (
    *("recipe", "rewrites", "findings left", "CPU s", "NPU s", "steps", "loss", "parameters", "verdict"),
    "unmodified under transfer_to_npu",
)
RIGHT = {"rewrites", "findings left", "CPU s", "NPU s", "steps", "loss", "parameters"}
NOTHING = "–"


class RecipeError(RuntimeError):
    """A recipe could not be prepared or run; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """A repository and what to run in it; docs/zoo.md describes the fields."""

    name: str
    repo: str
    commit: str
    command: str
    pip: list[str] = field(default_factory=list)
    edits: list[dict[str, str]] = field(default_factory=list)
    setup: str = ""
    cwd: str = "."
    env: dict[str, str] = field(default_factory=dict)
    unsafe: bool = False
    ranks: int = 1
    max_steps: int = 0
    artifacts: list[str] = field(default_factory=list)
    rtol: float | None = None
    atol: float | None = None
    timeout_s: float = 120


def read_recipe(path: Path) -> Recipe:
    """Read a recipe's file. Raises RecipeError."""
    known = {item.name for item in fields(Recipe)}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Recipe(**{key: value for key, value in values.items() if key in known})
    except (OSError, ValueError, TypeError) as error:
        raise RecipeError(f"{path}: {error}") from error


# --- preparing --------------------------------------------------------------------------------------------


def repository(recipe: Recipe, repos: Path) -> Path:
    """The folder with the repository at its commit; fetched when it is not there."""
    folder = repos / f"{recipe.repo.replace('/', '__')}-{recipe.commit[:7]}"
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for arguments in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", f"https://github.com/{recipe.repo}", recipe.commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            _call(["git", *arguments], partial, os.environ, f"fetching {recipe.repo}")
        partial.rename(folder)
    return folder


def prepare(recipe: Recipe, source: Path, tree: Path) -> None:
    """Copy the repository, make the edits and run the set-up."""
    shutil.copytree(source, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    for edit in recipe.edits:
        path = tree / edit["file"]
        text = path.read_text(encoding="utf-8")
        if edit["old"] not in text:
            raise RecipeError(f"{edit['file']} does not contain {edit['old']!r}")
        path.write_text(text.replace(edit["old"], edit["new"]), encoding="utf-8")
    if recipe.setup:
        _call(["bash", "-ec", recipe.setup], tree, environment(recipe, tree), "the set-up")


def environment(recipe: Recipe, tree: Path) -> dict[str, str]:
    """The environment of a recipe's processes; relative folders of its PYTHONPATH are in the tree."""
    own = {name: value.replace("$ZOO", str(ZOO)) for name, value in recipe.env.items()}
    path = [str(tree / entry) for entry in own.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        **own,
        "ZOO": str(ZOO),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ZOO / "site"), *path]),
    }


def _call(command: list[str], cwd: Path, variables: Mapping[str, str], what: str) -> None:
    done = subprocess.run(command, cwd=cwd, env=dict(variables), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecipeError(f"{what} failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")


# --- running ----------------------------------------------------------------------------------------------


def tool(arguments: list[str], variables: Mapping[str, str]) -> Any:
    """The JSON that the tool prints."""
    done = subprocess.run(
        [*TOOL, *arguments], env=dict(variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RecipeError((done.stderr.strip() or "no message").splitlines()[-1]) from None


def smoke(recipe: Recipe, tree: Path, reference: str, keep: bool) -> Any:
    """The report of the smoke check, against the original on the CPU or under transfer_to_npu."""
    options = ["--migrate", "--compare", reference, "--format", "json", "--cwd", recipe.cwd]
    options += ["--devices", str(recipe.ranks), "--timeout", str(recipe.timeout_s)]
    options += ["--max-steps", str(recipe.max_steps)] if recipe.max_steps else []
    options += [word for name in recipe.artifacts for word in ("--artifact", name)]
    for name, value in (("--rtol", recipe.rtol), ("--atol", recipe.atol)):
        options += [name, str(value)] if value is not None else []
    options += ["--unsafe"] if recipe.unsafe else []
    options += ["--keep"] if keep else []
    command = ["python", *recipe.command.split()]
    return tool(["smoke", str(tree), *options, "--", *command], environment(recipe, tree))


@dataclass(frozen=True)
class Result:
    """What became of a recipe.

    cells    of its row in the table
    problem  what went wrong, for people
    versions of torch and torch_npu
    """

    name: str
    cells: tuple[str, ...]
    passed: bool
    problem: str = ""
    versions: str = ""


def run(recipe: Recipe, repos: Path, work: Path, *, transfer: bool, keep: bool) -> Result:
    """Prepare and check one recipe."""
    tree = work / recipe.name / recipe.repo.partition("/")[2]
    tree.parent.mkdir(parents=True, exist_ok=True)
    try:
        prepare(recipe, repository(recipe, repos), tree)
        options = ["--dry-run", "--format", "json", *(["--unsafe"] if recipe.unsafe else [])]
        summary = tool([str(tree), *options], environment(recipe, tree))["summary"]
        report = smoke(recipe, tree, "cpu", keep)
        if keep:
            (tree.parent / "smoke.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
        other = under_transfer(smoke(recipe, tree, "transfer_to_npu", keep)) if transfer else NOTHING
    except RecipeError as error:
        cells = (*(NOTHING for _ in RIGHT), "could not run", NOTHING)
        return Result(recipe.name, cells, False, str(error))
    numbers = (summary["fixed"], summary["remaining"], *measured(report))
    verdict = verdict_of(report)
    cells = (*map(shown, numbers), verdict, other)
    device = report["device"]
    versions = f"torch {device['torch']}, torch_npu {device['torch_npu']}, {device['kind']}"
    passed = report["verdict"] == "pass"
    return Result(recipe.name, cells, passed, "" if passed else "\n".join(problems(report)), versions)


# --- reporting --------------------------------------------------------------------------------------------


def measured(report: Any) -> tuple[float | None, ...]:
    """Seconds of both runs, steps compared, largest relative loss difference, largest parameter difference."""
    seconds = [report[side]["seconds"] if report[side] else None for side in ("reference", "run")]
    comparison = report["comparison"] or {"ranks": [], "final_parameters": [], "artifacts": []}
    steps = [step for rank in comparison["ranks"] for step in rank["steps"]]
    files = [*comparison["final_parameters"], *comparison["artifacts"]]
    losses = [float(step["relative"]) for step in steps if step["relative"] is not None]
    parameters = [float(item["max_abs"]) for compared in files for item in compared["differences"]]
    return (*seconds, len(steps), max(losses, default=None), max(parameters, default=None))


def shown(number: float | None) -> str:
    """A number of the table."""
    if number is None:
        return NOTHING
    return f"{number:.2g}" if isinstance(number, float) and number < 1 else f"{number:.0f}"


def verdict_of(report: Any) -> str:
    """The verdict; "equal" where there is no difference at all."""
    if report["verdict"] != "pass":
        return str(report["verdict"])
    return "equal" if not any(number for number in measured(report)[3:]) else "within tolerance"


def problems(report: Any) -> Iterator[str]:
    """What went wrong."""
    for side in ("reference", "run"):
        ran = report[side]
        if ran and ran["exit_code"] != 0:
            yield f"{ran['title']}: {_error(ran)}"
    comparison = report["comparison"]
    for rank in comparison["ranks"] if comparison else []:
        found = rank["divergence"]
        if found:
            place = f"rank {rank['rank']}, step {found['step']}"
            where = f" of {found['module']}" if found["module"] else ""
            yield f"{place}: {found['what']}{where}: {found['detail']}"
    for files in [*comparison["final_parameters"], *comparison["artifacts"]] if comparison else []:
        if not files["passed"]:
            yield f"{files.get('name', 'final parameters')}: {files['problem'] or 'differ'}"
    yield from report["notes"]


def _error(ran: Any) -> str:
    """The error that ended a run, in one line."""
    if ran["timed_out"]:
        return "reached the time limit"
    errors = [str(failure["error"]).splitlines()[0] for failure in ran["failures"]]
    for error in errors:
        if not error.endswith(":"):  # as the error of another process begins, which is told behind it
            return error
    return (ran["stderr"].strip() or "no message").splitlines()[-1]


def under_transfer(report: Any) -> str:
    """How the unmodified repository fares under transfer_to_npu."""
    ran = report["reference"]
    if ran["exit_code"] != 0:
        return f"fails: {_error(ran)}".replace("|", "/")
    return "same" if report["verdict"] == "pass" else "differs"


def table(rows: Mapping[str, tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [HEADINGS, tuple("--:" if name in RIGHT else "---" for name in HEADINGS)]
    lines += [(name, *cells) for name, cells in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_into(path: Path, rows: Mapping[str, tuple[str, ...]], below: str) -> None:
    """Replace the table between the marks in a Markdown file; its rows of other recipes stay."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path}: needs the lines {BEGIN} and {END}")
    lines = [line[2:-2].split(" | ") for line in old.splitlines() if line.startswith("| ")]
    known = {name: tuple(cells) for name, *cells in lines[2:]}
    text = f"{table(dict(sorted({**known, **rows}.items())))}\n{below}"
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes to run (default: all)")
    parser.add_argument("--repos", type=Path, required=True, metavar="DIR", help="where the repositories are kept")
    parser.add_argument("--recipes", type=Path, default=ZOO / "recipes", metavar="DIR", help="folder of recipes")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many to run at once (default: 1)")
    parser.add_argument("--transfer", action="store_true", help="also run the originals under transfer_to_npu")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the rows into the table of a page")
    parser.add_argument("--keep", action="store_true", help="keep the copies and the reports, and say where")
    options = parser.parse_args()
    try:
        recipes = {path.stem: read_recipe(path) for path in sorted(options.recipes.glob("*.json"))}
    except RecipeError as error:
        parser.error(str(error))
    unknown = [name for name in options.names if name not in recipes]
    if unknown or not recipes:
        parser.error(f"no recipe {', '.join(unknown) or 'at all'} in {options.recipes}")
    chosen = [recipes[name] for name in options.names or recipes]
    work = Path(tempfile.mkdtemp(prefix="zoo-"))
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            results = []
            for result in pool.map(
                lambda recipe: run(recipe, options.repos, work, transfer=options.transfer, keep=options.keep), chosen
            ):
                results.append(result)
                print(f"{result.name}: {', '.join(result.cells)}  {result.problem}", file=sys.stderr, flush=True)
    finally:
        if options.keep:
            print(f"kept in {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    rows = {result.name: result.cells for result in results}
    below = next((result.versions for result in results if result.versions), "")
    print(f"{table(rows)}\n{below}")
    if options.markdown:
        write_into(options.markdown, rows, below)
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
