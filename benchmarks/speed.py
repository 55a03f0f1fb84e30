"""How fast npu-migrate is, as ratios to things that run beside it on the same machine.

    speed.py                 on timm (downloaded once, see corpus.py)
    speed.py --dir REPO      on a checkout

Prints a table and judges nothing: absolute seconds differ from machine to machine, and the ratios tell
whether a change made the tool slower. Each figure is the median of --repeat runs. The tree stays as it is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from checks import WORDS, Unusable
from corpus import PACKAGES, default_cache, default_tool, unpack, wheel_of

VENDOR = 55  # lines per second of the vendor's script on one core
PARSE = """
import sys, time
from pathlib import Path
import libcst
sources = [Path(name).read_bytes() for name in sys.stdin.read().split("\\0")]
start = time.process_time()
for source in sources:
    try:
        libcst.parse_module(source)
    except (libcst.ParserSyntaxError, UnicodeError):
        pass
print(time.process_time() - start)
"""


class Usage(NamedTuple):
    """What a process and its children took: seconds of CPU, seconds of wall clock, bytes at the peak.

    The peak is that of the largest single process.
    """

    cpu: float
    wall: float
    memory: float


def measure(command: Sequence[str], repeat: int) -> Usage:
    """The median usage of a command; its output is dropped."""
    runs = [measure_once(command) for _ in range(repeat)]
    return Usage(*(statistics.median(values) for values in zip(*runs, strict=True)))


def measure_once(command: Sequence[str]) -> Usage:
    start = time.perf_counter()
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise Unusable(f"cannot run {command[0]}: install it (pip install -e .) or name it with --tool") from error
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 2):
        raise Unusable(f"exit {process.returncode} of: {shlex.join(command)}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss * unit)


def parse_seconds(files: Sequence[Path], repeat: int) -> float:
    """CPU seconds of `libcst.parse_module` over the files, without the import."""
    names = "\0".join(map(str, files))
    command = [sys.executable, "-c", PARSE]
    runs = [subprocess.run(command, input=names, capture_output=True, text=True) for _ in range(repeat)]
    failed = next((run for run in runs if run.returncode), None)
    if failed:
        raise Unusable(f"libcst cannot parse the files: {failed.stderr.strip()[-400:]}")
    return statistics.median(float(run.stdout) for run in runs)


def table(tree: Path, tool: Sequence[str], repeat: int) -> list[tuple[str, str, str, str]]:
    """Rows of what, the tool's figure, the figure it is compared with, and the ratio."""
    sources = {path: path.read_bytes() for path in sorted(tree.rglob("*.py")) if path.is_file()}
    candidates = [path for path, data in sources.items() if WORDS.search(data)]
    if not candidates:
        raise Unusable(f"{tree} has no Python file that names CUDA")
    lines = sum(data.count(b"\n") for data in sources.values())
    print(f"{tree.name}: {len(sources)} files, {lines} lines, {len(candidates)} files name CUDA\n")

    dry = [*tool, str(tree), "--dry-run"]
    one, all_cores = measure([*dry, "--jobs", "1"], repeat), measure(dry, repeat)
    parse = parse_seconds(candidates, repeat)
    start, python = measure([*tool, "--version"], repeat), measure([sys.executable, "-c", "pass"], repeat)
    libcst = measure([sys.executable, "-c", "import libcst"], repeat)

    def row(what: str, ours: float, theirs: float, unit: str) -> tuple[str, str, str, str]:
        return what, f"{figure(ours)} {unit}", f"{figure(theirs)} {unit}", figure(ours / theirs)

    mega = 1e6
    return [
        row("CPU, --jobs 1 : libcst.parse_module of the files that name CUDA", one.cpu, parse, "s"),
        row("lines per second, --jobs 1 : the vendor's script", lines / one.wall, VENDOR, "/s"),
        row("lines per second, all cores : the vendor's script", lines / all_cores.wall, VENDOR, "/s"),
        row("CPU of --version : python -c pass", start.cpu, python.cpu, "s"),
        row("peak memory, --jobs 1 : import libcst", one.memory / mega, libcst.memory / mega, "MB"),
    ]


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="measure on this tree instead of timm")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are kept (%(default)s)")
    parser.add_argument("--tool", default=default_tool(), help="the command to measure (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each command (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="speed-") as scratch:
            if options.dir and not options.dir.is_dir():
                raise Unusable(f"--dir {options.dir}: no such folder")
            if options.dir:
                tree = options.dir
            else:
                pin = next(pin for pin in PACKAGES if pin.startswith("timm=="))
                tree = unpack(wheel_of(pin, options.cache), Path(scratch, pin))
            rows = table(tree, shlex.split(options.tool), options.repeat)
    except Unusable as error:
        print(f"speed.py: {error}", file=sys.stderr)
        return 2
    for what, ours, theirs, ratio in rows:
        print(f"{what:64}{ours:>14}{theirs:>12}{ratio:>9}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
