"""The recording of one process: a file with a JSON object a line, complete up to the moment of a crash."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

MAX_EVENTS = 200_000


class Writer:
    """Writes events to FOLDER/PID.jsonl, which is made with the first of them."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._file: TextIO | None = None
        self._count = 0

    @property
    def stem(self) -> Path:
        """What the names of this process's files begin with."""
        return self.folder / str(os.getpid())

    @property
    def is_full(self) -> bool:
        """Whether further events are dropped."""
        return self._count >= MAX_EVENTS

    def write(self, kind: str, **fields: Any) -> None:
        """Add an event. Floats may be NaN or infinite."""
        if self.is_full:
            return
        if self._file is None:
            self._file = self.stem.with_suffix(".jsonl").open("w", encoding="utf-8")
            start = {"argv": sys.argv, "started": time.time(), "rank": int(os.environ.get("RANK", "0"))}
            self._put({"kind": "process", **start})
        self._count += 1
        self._put({"kind": kind, **fields})

    def _put(self, event: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()
