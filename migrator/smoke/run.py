"""From the options of `npu-migrate smoke` to a report and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from migrator.config import ConfigError
from migrator.discover import PathError
from migrator.registry import RegistryError, SelectionError
from migrator.smoke import document, report, session
from migrator.smoke.device import Kind
from migrator.smoke.recording import is_golden
from migrator.smoke.request import Request, SmokeError, Verdict
from migrator.smoke.tolerances import Tolerances
from migrator.target import TargetError
from migrator.terminal import PROGRAM, emit, say


def run(path: Path, command: tuple[str, ...], format: str, options: Mapping[str, Any]) -> int:
    """Make the checks and print the report; the exit code."""
    try:
        request = _request(path, command, options)
        found = session.check(request, _progress)
    except (SmokeError, ConfigError, PathError, RegistryError, SelectionError, TargetError) as error:
        say(f"{PROGRAM}: {error}")
        return Verdict.NOT_RUN.exit_code
    emit("stdout", document.render(found) if format == "json" else report.render(found, request.verbose))
    return found.verdict.exit_code


def _request(path: Path, command: tuple[str, ...], options: Mapping[str, Any]) -> Request:
    names = {field.name for field in fields(Request)}
    given = {name: value for name, value in options.items() if name in names}
    given["device"] = Kind(given["device"]) if given["device"] else None
    for name in ("select", "ignore"):
        given[name] = tuple(rule.strip() for value in given[name] for rule in value.split(",") if rule.strip())
    given["tolerances"] = Tolerances(options["rtol"], options["atol"])
    record = given["record"]
    if record is not None and not is_golden(record):
        raise SmokeError(f"--record {record}: the folder holds other files; name a new one")
    return Request(path=path, command=command, **given)


def _progress(message: str) -> None:
    if sys.stderr.isatty():
        say(f"{message} …")
