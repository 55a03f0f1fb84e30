"""Runs torch_npu's own tests on the emulated NPU: python benchmarks/conformance.py DIR [FOLDER ...]

DIR is a checkout of the public repository Ascend/pytorch whose version fits the installed wheel; FOLDER is
a folder of test files in it, or one such file. Each file runs in its own process with a time limit. Prints
how many tests passed, failed and were skipped per folder, and the failures by kind and reason. Nothing here
is part of the test suite: many of those tests are about things that the emulator leaves out, or need
packages that are not installed (expecttest, torchvision, einops).
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from migrator.emulator import check, environment

FOLDERS = ("test/contrib", "test/optim", "test/npu", "test/autograd", "test/nn", "test")
OUTCOMES = ("passed", "failed", "skipped", "unfinished")
OUTSIDE = "outside of the emulator"
# What a failure's message says about its kind; the first match counts.
KINDS = (
    (
        "error of the test itself",
        r"is not defined|has no attribute|cannot import name|fixture '\w+' not found|Unpickling"
        r"|names=|argument '(names|interpolation|dtypes)'|missing \d+ required|already been set|Nx=0"
        r"|not compiled with CUDA|CUDA must be|dummy base class|JitTestCase",
    ),
    (
        OUTSIDE,
        r"graph capture|NPUGraph|aclmdlRI|aclgraph|inductor|triton|torchair|does not implement|find function"
        r"|not in libopapi|no reference for quantized",
    ),
    (
        "refused by the wheel's own code",
        r"ERR\d+ (OPS|PTA feature)|c10::MemoryFormat|Only contiguous_format"
        r"|float32 != torch.float64|float64 != torch.float32|complex64 != torch.complex128|(Float|Double) did not match"
        r"|expected dtype Double",
    ),
    (
        "missing package or file",
        r"No module named|No such file|not found in PATH|torchvision::nms|Error building",
    ),
    ("missing reference", r"emulated NPU has no"),
    ("crash or time limit", r"^ended with|time limit"),
    ("wrong result or behaviour", r"AssertionError|not raised"),
)
NOT_INSIDE = frozenset(kind for kind, _ in KINDS[:4])
# Files about capturing graphs, compilers (functionalized random operators are for CUDA) and faults of the hardware.
LEFT_OUT = re.compile(
    r"aclgraph|graph_tree|npugraph|inductor|fault_mode|test_uce|test_recovery|ipc_event|flexattention|test_dvm|functionalization"
)
# What differs from one failure to the next of the same kind.
_PARTICULARS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?|'[^']*'")


@dataclass(frozen=True)
class Result:
    """A test, or with the outcome "unfinished" the rest of its file's tests."""

    file: str
    test: str
    outcome: str
    reason: str

    @property
    def kind(self) -> str:
        """What kind of failure this is."""
        return next((kind for kind, pattern in KINDS if re.search(pattern, self.reason)), "other")


class Recorder:
    """A pytest plugin that writes the result of each test to a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._record(report)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._record(report)

    def _record(self, report: Any) -> None:
        reason = ""
        if report.failed:
            crash = _origin(report.longrepr)
            reason = crash.message if crash is not None else _last_error(str(report.longrepr))
        print(json.dumps([report.nodeid.rpartition("::")[2], report.outcome, reason]), file=self._file, flush=True)


def _origin(failure: Any) -> Any:
    """Where the error began: PyTorch's tests of operators wrap it in others that only name the sample."""
    crash = getattr(failure, "reprcrash", None)
    for _, place, link in reversed(getattr(failure, "chain", [])):
        if link and "direct cause" not in link:
            break
        crash = place or crash
    return crash


def run_tests(path: Path, root: Path, folder: Path) -> None:
    """Run the tests of a file in this process, which ends with pytest's status."""
    import pytest
    from torch.testing._internal import common_utils

    os.setsid()
    os.chdir(path.parent)
    sys.path.insert(0, str(root / "test"))
    sys.argv[:] = [str(path)]
    common_utils.parse_cmd_line_args()  # as when the file is run by itself: its options have defaults
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=prepend", f"--rootdir={root}", "-c", os.devnull]
    status = pytest.main([str(path), *options], plugins=[Recorder(folder / "results")])
    sys.stdout.flush()
    os._exit(status)  # what the tests leave behind must not keep the process


class Run:
    """A process that runs the tests of one file."""

    def __init__(self, path: Path, root: Path, seconds: float) -> None:
        self.name = str(path.relative_to(root))
        self.folder = Path(tempfile.mkdtemp())
        self.deadline = time.monotonic() + seconds
        (self.folder / "results").touch()
        # Variables that are to be set before torch is imported need a process that has not imported it.
        is_cold = "os.environ" in path.read_text(encoding="utf-8").partition("import torch")[0]
        context = multiprocessing.get_context("spawn" if is_cold else "fork")
        self.process = context.Process(target=run_tests, args=(path, root, self.folder))
        self.process.start()

    def is_over(self) -> bool:
        """Whether the process has ended or is out of time."""
        return self.process.exitcode is not None or time.monotonic() > self.deadline

    def results(self) -> list[Result]:
        """The results of the tests of the file, once it is over."""
        ending = ""
        if self.process.exitcode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.join()
            ending = "reached the time limit"
        elif self.process.exitcode not in (0, 1, 2, 5):
            output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
            ending = f"ended with {self.process.exitcode}: {_last_error(output)}"
        lines = (self.folder / "results").read_text(encoding="utf-8").splitlines()
        shutil.rmtree(self.folder)
        unfinished = [Result(self.name, "", "unfinished", ending)] if ending else []
        return [Result(self.name, *json.loads(line)) for line in lines] + unfinished


def run_files(paths: list[Path], root: Path, seconds: float, jobs: int) -> Iterator[list[Result]]:
    """The results of one file after the other, in the order in which they end."""
    waiting, running = iter(paths), []
    while True:
        running += [Run(path, root, seconds) for path in itertools.islice(waiting, jobs - len(running))]
        if not running:
            return
        wait([run.process.sentinel for run in running], timeout=1)
        over = [run for run in running if run.is_over()]
        running = [run for run in running if run not in over]
        yield from (run.results() for run in over)


def _last_error(output: str) -> str:
    errors = [line for line in output.splitlines() if re.match(r"E  |\w*Error|Fatal", line)]
    return errors[-1].removeprefix("E ").strip() if errors else "no message"


def group(reason: str) -> str:
    """The reason with the numbers and names left out that tell failures of one kind apart."""
    return _PARTICULARS.sub("…", (reason.splitlines() or [""])[0])[:140]


def test_files(root: Path, folder: str, pattern: str) -> list[Path]:
    """The test files of a folder, or the one file, that are not left out."""
    place = root / folder
    files = [place] if place.is_file() else sorted(place.glob(pattern))
    return [path for path in files if not LEFT_OUT.search(path.name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--seconds", type=int, default=300, help="time limit per file (default: 300)")
    parser.add_argument("--match", default="test_*.py", help="pattern of the files' names")
    parser.add_argument("--jobs", type=int, default=2, help="how many files run at once (default: 2)")
    parser.add_argument("--details", type=Path, metavar="FILE", help="write every test's result as a line of JSON")
    options = parser.parse_args()
    if "NPU_MIGRATE_EMULATOR_DEVICES" not in os.environ:
        check()
        variables = {**os.environ, **environment(devices=2), "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], variables)
    # Importing the wheel takes longer than most files of tests: it happens once, in the process that forks the others.
    for module in ("pytest", "torch_npu.testing.testcase", "torch_npu.testing.common_utils"):
        importlib.import_module(module)
    root = options.root.resolve()
    paths = [path for folder in options.folders for path in test_files(root, folder, options.match)]
    results: list[Result] = []
    for found in run_files(paths, root, options.seconds, options.jobs):
        results += found
        if found:
            print(f"{found[0].file}: {describe(found)}", file=sys.stderr, flush=True)
        if options.details:
            with options.details.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(vars(result)) + "\n" for result in found)
    print_summary(results)


def print_summary(everything: list[Result]) -> None:
    """Print the table of the folders and the failures by kind and reason."""
    folders = sorted({str(Path(result.file).parent) for result in everything})
    for folder in folders:
        print(f"{folder:16} {describe([result for result in everything if str(Path(result.file).parent) == folder])}")
    print(f"{'all':16} {describe(everything)}")
    failures = [result for result in everything if result.outcome in ("failed", "unfinished")]
    inside = sum(result.kind not in NOT_INSIDE for result in failures)
    passed = sum(result.outcome == "passed" for result in everything)
    print(f"passed of those inside: {passed} of {passed + inside}, {passed / max(passed + inside, 1):.1%}")
    for kind in [*(kind for kind, _ in KINDS), "other"]:
        of_kind = [result for result in failures if result.kind == kind]
        print(f"\n{kind}: {len(of_kind)}")
        for reason, count in Counter(group(result.reason) for result in of_kind).most_common():
            files = Counter(result.file for result in of_kind if group(result.reason) == reason)
            print(f"{count:5}  {reason}\n       in {', '.join(name for name, _ in files.most_common(3))}")


def describe(results: list[Result]) -> str:
    """How many results have each outcome."""
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES)


if __name__ == "__main__":
    main()
