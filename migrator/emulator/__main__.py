"""python -m migrator.emulator [options] script.py args... | -m module args... | -c code args..."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from . import EmulatorError, check, environment


def main() -> NoReturn:
    """Replace this process by Python running the given program on an emulated NPU."""
    parser = argparse.ArgumentParser(
        prog="python -m migrator.emulator",
        usage="%(prog)s [options] (script.py | -m module | -c code) [args ...]",
        description="Run a Python program with the real torch_npu on an emulated NPU.",
    )
    parser.add_argument("--devices", type=int, default=1, help="number of NPUs to emulate (default: 1)")
    parser.add_argument("--shared-rng", action="store_true", help="draw random numbers from the CPU's stream")
    parser.add_argument("--soc", help="name of the chip (default: Ascend910B1)")
    parser.add_argument("--doctor", action="store_true", help="say whether the emulator can run here, and why not")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("-c", dest="code", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.doctor:
        from .doctor import report

        sys.exit(report())
    program = ["-m", *options.module] if options.module else ["-c", *options.code] if options.code else options.script
    if not program:
        parser.error("say what to run: a script, -m module or -c code")
    try:
        variables = environment(devices=options.devices, shared_rng=options.shared_rng, soc=options.soc)
        check()
    except ValueError as error:
        parser.error(str(error))
    except EmulatorError as error:
        parser.exit(2, f"error: {error}\n")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *program], {**os.environ, **variables})


if __name__ == "__main__":
    main()
