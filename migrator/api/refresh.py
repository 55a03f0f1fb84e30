"""Rebuild the torch_npu data from the wheels on the package index: ``python -m migrator.api.refresh 2.15.0``.

Wheels are fetched with pip and read as zip files; nothing from them is imported. Only what the given versions say
changes in migrator/api/data, so the difference in version control is what has to be reviewed.
"""

from __future__ import annotations

import argparse
import errno
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from migrator.api import _merge, mappings, versions
from migrator.api._extract import WheelFacts, read_wheel
from migrator.api._names import canonical
from migrator.api._package import WheelError
from migrator.api._versions import parse

DATA = Path(__file__).parent / "data"
PYTHONS = ("3.11", "3.10", "3.9", "3.12", "3.13")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""Wheels of one version hold the same Python code whatever the interpreter; the first one found is read."""


class RefreshError(Exception):
    """The data cannot be rebuilt; the message says why and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Command line; gives 0, 1 when --check found differences, 2 on errors."""
    options = _parser().parse_args(arguments)
    wanted = list(dict.fromkeys([*options.versions, *(versions() if options.all else ())]))
    if not wanted:
        print("refresh: name at least one version, or --all", file=sys.stderr)
        return 2
    try:
        return refresh(wanted, data=options.data, wheels=options.wheel_dir, check=options.check)
    except (RefreshError, WheelError) as error:
        print(f"refresh: {error}", file=sys.stderr)
    except OSError as error:
        print(f"refresh: {_explain(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        print("refresh: interrupted; the data files are as they were", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m migrator.api.refresh", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="torch_npu version, as on the package index")
    parser.add_argument("--all", action="store_true", help="every version that the data knows")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the data would change")
    parser.add_argument("--wheel-dir", type=Path, help="use wheels in this directory and keep downloads there")
    parser.add_argument("--data", type=Path, default=DATA, help=argparse.SUPPRESS)
    return parser


def refresh(wanted: list[str], *, data: Path = DATA, wheels: Path | None = None, check: bool = False) -> int:
    """Merge the wheels of these versions into the data files; gives 1 when ``check`` found a difference."""
    try:
        before = _merge.read(data)
    except ValueError as error:
        message = f"the data in {data} is damaged ({error}); restore it from version control"
        raise RefreshError(message) from error
    after = before
    for version in wanted:
        facts = _facts(version, wheels)
        after = _merge.merge(after, facts)
        print(
            f"{facts.version}: {len(facts.names)} names, {len(facts.signatures)} signatures, "
            f"{len(facts.operators)} operators"
        )
        _print_lost(facts)
    changed = [file for file in _merge.FILES if before[file] != after[file]]
    print("changed: " + (", ".join(changed) or "nothing"))
    if check:
        return 1 if changed else 0
    if changed:
        _merge.write(data, after)
    return 0


def _print_lost(facts: WheelFacts) -> None:
    """Point at rows of mapping.json whose replacement this version does not have, for the reviewer."""
    wheel = parse(facts.version)
    for row in mappings():
        name = canonical(row.npu or "")
        is_lost = name.startswith("torch_npu.") and name not in facts.names
        if is_lost and row.since and parse(row.since) <= wheel:
            print(f"  review mapping.json: {row.cuda} -> {row.npu} is not in {facts.version}")


def _facts(version: str, wheels: Path | None) -> WheelFacts:
    try:
        parse(version)
    except ValueError as error:
        raise RefreshError(str(error)) from None
    if wheels is not None:
        wheels.mkdir(parents=True, exist_ok=True)
        return read_wheel(_find(wheels, version) or _download(version, wheels))
    with tempfile.TemporaryDirectory(prefix="npu-migrate-") as directory:
        return read_wheel(_download(version, Path(directory)))


def _find(directory: Path, version: str) -> Path | None:
    for path in sorted(directory.glob("torch_npu-*.whl")):
        try:
            _, found, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if found == parse(version):
            return path
    return None


def _download(version: str, directory: Path) -> Path:
    """Fetch one wheel with pip, which moves a file into place only when it is complete."""
    output = ""
    for python in PYTHONS:
        platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
                   "--disable-pip-version-check", "--python-version", python, *platforms,
                   "--dest", str(directory), f"torch-npu=={version}"]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            path = _find(directory, version)
            if path is not None:
                return path
        output = result.stdout + result.stderr
        if "No matching distribution" not in output or _offered(output) == []:
            break
    raise RefreshError(_diagnose(version, output))


def _offered(output: str) -> list[str]:
    found = re.search(r"from versions: ([^)]*)\)", output)
    return [v.strip() for v in found.group(1).split(",") if v.strip() != "none"] if found else []


def _diagnose(version: str, output: str) -> str:
    """What went wrong in pip, for people."""
    offered = _offered(output)
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    last = errors[-1] if errors else "pip gave no reason"
    if "No space left" in output:
        return f"the disk is full; free about 200 MB (or set TMPDIR) and try torch-npu {version} again"
    if "No module named pip" in output:
        return "pip is missing in this Python; install it (python -m ensurepip) and try again"
    if offered:
        return f"the package index has no torch-npu {version}; it offers {', '.join(offered)}"
    if "No matching distribution" in output:
        return (
            f"the package index cannot be reached, or has no torch-npu at all ({last}). "
            "Check the network and pip's index settings, or give a directory with the wheel as --wheel-dir"
        )
    return f"the download of torch-npu {version} failed and left nothing behind; try again ({last})"


def _explain(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full; the data files are as they were. Free some space and try again"
    return f"{error}; the data files are as they were"


if __name__ == "__main__":
    sys.exit(main())
