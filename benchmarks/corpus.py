"""Run npu-migrate over real packages: is anything missed, broken or overdone?

    corpus.py                            all pinned packages (downloaded once, then from the cache)
    corpus.py timm peft                  some of them
    corpus.py --dir CHECKOUTS            each subfolder of CHECKOUTS is one repository

Each tree is copied to a temporary git repository. The tool previews (JSON, then diff), rewrites in place, and
runs again on its own result. The table counts per tree; the summary counts each kind of violation, and -v
lists them with file and line (of the original file).

    run          the tool crashed, or its exit code or its report contradicts what it did
    dry-run      --dry-run wrote to the tree
    failed       a file of valid Python was not processed
    syntax       a changed file no longer parses
    second-run   the tool changed its own result
    patch        the printed diff, applied by git, is not what the tool wrote
    bytes        encoding, byte-order mark, newlines or file mode changed
    unrelated    a file without a word of CUDA was changed
    silent       a CUDA reference was left without a diagnostic (see oracle.py)
    edit         a comment, docstring, message, key, URL or path was edited (see oracle.py)

Exit code: 0 all checks hold, 1 some do not, 2 the benchmark could not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from checks import Result, Unusable, check_tree

PACKAGES = (  # releases from before the package supported NPUs, or just about
    "timm==0.9.12",
    "pytorch-lightning==1.9.5",
    "TTS==0.22.0",
    "mmengine==0.7.0",
    "kornia==0.7.0",
    "open_clip_torch==2.20.0",
    "peft==0.4.0",
    "stable-baselines3==2.1.0",
    "facexlib==0.3.0",
    "realesrgan==0.3.0",
    "torch-fidelity==0.3.0",
    "k-diffusion==0.1.1",
    "lpips==0.1.4",
)
COLUMNS = (
    "files",
    "cand.",
    "changed",
    "fixed",
    "remaining",
    "failed",
    "silent",
    "edits",
    "other",
    "s",
    "klines/s",
)


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "npu-migrate" / "corpus"


def wheel_of(pin: str, cache: Path) -> Path:
    """The wheel of a pinned package, downloaded if the cache lacks it; the same file on every machine."""
    project, version = pin.split("==")
    start = f"{re.sub(r'[-_.]+', '_', project)}-{version}-".lower()

    def cached() -> Path | None:
        return next((path for path in cache.glob("*.whl") if path.name.lower().startswith(start)), None)

    if not cached():
        cache.mkdir(parents=True, exist_ok=True)
        kind = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux1_x86_64"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *kind, "--dest", str(cache), pin]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unusable(f"cannot download {pin}: {done.stderr.strip()[-500:]}")
    wheel = cached()
    if not wheel:
        raise Unusable(f"pip downloaded {pin}, but {cache} has no wheel named {start}*")
    return wheel


def unpack(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def default_tool() -> str:
    beside = shutil.which("npu-migrate", path=str(Path(sys.executable).parent))
    return beside or "npu-migrate"


def row(result: Result) -> list[str]:
    silent, edits = result.count("silent"), result.count("edit")
    other = len(result.violations) - silent - edits
    numbers = (result.files, result.candidates, result.changed, result.fixed, result.remaining, result.failed)
    speed = result.lines / result.seconds / 1000 if result.seconds else 0.0
    return [str(n) for n in (*numbers, silent, edits, other)] + [f"{result.seconds:.1f}", f"{speed:.1f}"]


def total(results: Sequence[Result]) -> Result:
    result = Result("total")
    for one in results:
        for name in ("files", "candidates", "lines", "changed", "fixed", "remaining", "failed", "seconds"):
            setattr(result, name, getattr(result, name) + getattr(one, name))
        result.violations += one.violations
    return result


def print_row(name: str, cells: Sequence[str]) -> None:
    widths = (max(len(title), 5) + 2 for title in COLUMNS)
    print(f"{name[:34]:34}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True)), flush=True)


def print_violations(results: Sequence[Result], verbose: bool) -> None:
    kinds = Counter(violation.kind for result in results for violation in result.violations)
    for kind, number in sorted(kinds.items()):
        print(f"{kind:20}{number:6}")
        for result in results if verbose else ():
            for v in result.violations:
                if v.kind == kind:
                    print(f"    {result.name}/{v.path}:{v.line}: {v.detail}")
    if kinds and not verbose:
        print("(-v lists each with its file and line)")


def trees(names: Sequence[str], folders: Sequence[Path], cache: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of each tree to check."""
    for folder in folders:
        if not folder.is_dir():
            raise Unusable(f"--dir {folder}: no such folder")
        yield from ((path.name, path) for path in sorted(folder.iterdir()) if path.is_dir())
    pins = {pin.split("==")[0].lower(): pin for pin in PACKAGES}
    unknown = [name for name in names if name.lower() not in pins]
    if unknown:
        raise Unusable(f"no such package in the corpus: {', '.join(unknown)} (it has {', '.join(pins)})")
    for name in names or ([] if folders else pins):
        pin = pins[name.lower()]
        yield pin, unpack(wheel_of(pin, cache), scratch / name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the corpus (default: all)")
    parser.add_argument("--dir", action="append", default=[], type=Path, help="check each subfolder instead")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are kept (%(default)s)")
    parser.add_argument("--tool", default=default_tool(), help="the command to check (%(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="list each violation")
    options = parser.parse_args(arguments)
    results = []
    try:
        print_row("", COLUMNS)
        with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
            for name, source in trees(options.names, options.dir, options.cache, Path(scratch)):
                results.append(check_tree(name, source, shlex.split(options.tool)))
                print_row(name, row(results[-1]))
    except Unusable as error:
        print(f"corpus.py: {error}", file=sys.stderr)
        return 2
    print_row("total", row(total(results)))
    print_violations(results, options.verbose)
    return 1 if any(result.violations for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
