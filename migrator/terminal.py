"""Standard streams: bytes out, colours, and a progress bar where somebody watches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

from migrator.report.meta import printable

PROGRAM = "npu-migrate"
"""How messages call the command."""

Stream = Literal["stdout", "stderr"]


def emit(stream: Stream, text: str | bytes) -> None:
    """Write text (as UTF-8) or bytes; when nobody reads any more (`| head`), be quiet."""
    output = _text_stream(stream).buffer
    try:
        output.write(text.encode() if isinstance(text, str) else text)
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _text_stream(stream: Stream) -> TextIO:
    return sys.stdout if stream == "stdout" else sys.stderr


def say(message: str) -> None:
    """A line for the user, on stderr; odd bytes of file names spelled out."""
    emit("stderr", f"{printable(message)}\n")


def is_coloured(stream: Stream, wanted: bool) -> bool:
    """Whether colours are wanted (--no-color, NO_COLOR) and the stream is a terminal that has them."""
    allowed = wanted and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return allowed and _text_stream(stream).isatty()


@contextmanager
def progress_bar(shown: bool, color: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Gives a function (done, total) that draws a bar on stderr; None if that is no terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Refreshed by hand: a refreshing thread and forked workers do not go together.
    with Progress(
        console=Console(stderr=True, no_color=not is_coloured("stderr", color)), transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("Migrating", total=None)
        drawn = 0.0

        def update(done: int, total: int) -> None:
            nonlocal drawn
            bar.update(task, completed=done, total=total)
            if time.monotonic() - drawn > 0.1:
                drawn = time.monotonic()
                bar.refresh()

        yield update
