"""Runs a command in a process group of its own, with a time limit, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MAX_LOG = 64 << 20
"""Bytes of output that are kept of each stream."""
GRACE_SECONDS = 3
_MARK = "NPU_MIGRATE_SMOKE_RUN"


class LaunchError(RuntimeError):
    """The command could not be started; the message says why."""


@dataclass(frozen=True)
class Run:
    """A finished command.

    exit_code  as the shell would say it (128 + signal); None when the time limit ended it
    stdout     and stderr: what it wrote, up to MAX_LOG bytes each
    """

    command: tuple[str, ...]
    exit_code: int | None
    seconds: float
    stdout: str
    stderr: str

    @property
    def succeeded(self) -> bool:
        """Whether it ended in time and without an error."""
        return self.exit_code == 0

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it, such as SIGSEGV; None: it ended by itself, or by the time limit."""
        try:
            return signal.Signals((self.exit_code or 0) - 128).name
        except ValueError:
            return None


def run(
    command: Sequence[str], *, cwd: Path, variables: Mapping[str, str], timeout: float | None, echo: bool = False
) -> Run:
    """Run a command to its end, or for at most `timeout` seconds.

    A `python` without a path is this interpreter, and the scripts that were installed beside it come first.
    echo: also write its output to stderr while it runs. Raises LaunchError; on KeyboardInterrupt the command
    and all its children are ended first.
    """
    mark = uuid.uuid4().hex
    environment = {**os.environ, **variables, _MARK: mark}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = _find(command[0], cwd, environment["PATH"])
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"cannot run {command[0]}: {error.strerror or error}") from error
    streams = [_Stream(pipe, echo) for pipe in (process.stdout, process.stderr) if pipe is not None]
    exit_code: int | None
    try:
        code = process.wait(timeout)
        exit_code = code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        exit_code = None
    finally:
        _end(process, mark)
    stdout, stderr = (stream.text() for stream in streams)
    return Run(tuple(command), exit_code, time.monotonic() - started, stdout, stderr)


def _find(name: str, cwd: Path, path: str) -> str:
    if name in ("python", "python3"):
        return sys.executable
    if os.sep in name:
        return name if Path(name).is_absolute() else str(cwd / name)
    found = shutil.which(name, path=path)
    if found is None:
        hint = f": is it installed in the environment of {sys.executable}?" if (cwd / name).exists() is False else ""
        hint = hint or f"; to run the file of that name: -- python {name}"
        raise LaunchError(f"command not found: {name}{hint}")
    return found


class _Stream:
    """Reads one of the process's streams in a thread."""

    def __init__(self, pipe: IO[bytes], echo: bool) -> None:
        self._pipe = pipe
        self._echo = echo
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in iter(self._pipe.readline, b""):
            if len(self._kept) < MAX_LOG:
                self._kept += line
            if self._echo:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()

    def text(self) -> str:
        """All of it; to be called when the processes have ended."""
        self._thread.join(timeout=GRACE_SECONDS)
        return self._kept.decode(errors="replace")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End the process, its group, and children of its that began groups of their own (as torchrun's do)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in _marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    process.wait()


def _marked(mark: str) -> Iterator[int]:
    """The processes that have this run's mark in their environment; none where there is no /proc."""
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            yield int(folder.name)
