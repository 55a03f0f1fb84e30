"""Runs torch_npu's own tests on the emulated NPU: python benchmarks/conformance.py DIR [FOLDER ...]

DIR is a checkout of the public repository Ascend/pytorch whose version fits the installed wheel. Each test
file runs in its own process with a time limit. Prints how many tests passed, failed and were skipped per
folder, and the failures grouped by their reason. Nothing here is part of the test suite: many of those
tests are about things that the emulator leaves out, or need packages that are not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from migrator.emulator import check, environment

FOLDERS = ("test/npu", "test/contrib", "test/optim", "test/autograd", "test/nn", "test")
REPORT = "NPU_CONFORMANCE_REPORT"
# What differs from one failure to the next of the same kind.
_PARTICULARS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?|'[^']*'")


def pytest_runtest_logreport(report) -> None:  # this file is also the plugin of the processes that it starts
    if report.when == "call" or report.outcome != "passed":
        reason = getattr(getattr(report.longrepr, "reprcrash", None), "message", "") if report.failed else ""
        with Path(os.environ[REPORT]).open("a", encoding="utf-8") as file:
            print(json.dumps([report.nodeid, report.outcome, reason]), file=file)


def run_file(path: Path, root: Path, seconds: int) -> Iterator[tuple[str, str]]:
    """The (outcome, reason) of each test of a file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        report.touch()
        variables = environment(devices=2)
        variables["PYTHONPATH"] += os.pathsep + os.pathsep.join([str(Path(__file__).parent), str(root / "test")])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "conformance", "-p", "no:cacheprovider", str(path)]
        process = subprocess.Popen(
            [*command, "--import-mode=prepend", f"--rootdir={root}", "-c", os.devnull],
            cwd=path.parent,
            env={**os.environ, **variables, REPORT: str(report), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
            ending = (
                "" if process.returncode in (0, 1, 5) else f"ended with {process.returncode}: {_last_error(output)}"
            )
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            ending = "reached the time limit"
        for line in report.read_text(encoding="utf-8").splitlines():
            _, outcome, reason = json.loads(line)
            yield outcome, reason
        if ending:
            yield "unfinished", ending


def _last_error(output: str) -> str:
    errors = [line for line in output.splitlines() if re.match(r"E  |\w*Error|Fatal", line)]
    return errors[-1].strip() if errors else "no message"


def group(reason: str) -> str:
    """The reason with the numbers and names left out that tell failures of one kind apart."""
    return _PARTICULARS.sub("…", (reason.splitlines() or [""])[0])[:140]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--seconds", type=int, default=300, help="time limit per file (default: 300)")
    parser.add_argument("--match", default="test_*.py", help="pattern of the files' names")
    options = parser.parse_args()
    check()
    totals: dict[str, Counter[str]] = {}
    reasons: dict[str, list[str]] = defaultdict(list)
    for folder in options.folders:
        totals[folder] = Counter()
        for path in sorted((options.root / folder).glob(options.match)):
            counts: Counter[str] = Counter()
            for outcome, reason in run_file(path.resolve(), options.root.resolve(), options.seconds):
                counts[outcome] += 1
                if outcome in ("failed", "unfinished"):
                    reasons[group(reason)].append(str(path.relative_to(options.root)))
            totals[folder] += counts
            print(f"{path.relative_to(options.root)}: {_describe(counts)}", file=sys.stderr, flush=True)
    for folder, counts in totals.items():
        print(f"{folder:16} {_describe(counts)}")
    print(f"{'all':16} {_describe(sum(totals.values(), Counter()))}\n")
    for reason, files in sorted(reasons.items(), key=lambda item: -len(item[1])):
        names = ", ".join(name for name, _ in Counter(files).most_common(3))
        print(f"{len(files):5}  {reason}\n       in {names}")


def _describe(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped", "unfinished"))


if __name__ == "__main__":
    main()
