"""The report of a smoke check as JSON: a documented contract (docs/smoke.md)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from migrator import __version__
from migrator.smoke.device import Kind
from migrator.smoke.report import CANNOT_VOUCH
from migrator.smoke.request import Comparison, Report, Side

VERSION = 1
"""Of the contract; raised when a key goes away or changes its meaning, not when one is added."""
LAST_CHARACTERS = 20_000


def render(report: Report) -> str:
    """The report as a JSON text."""
    target = report.target
    document = {
        "version": VERSION,
        "tool": {"name": "npu-migrate", "version": __version__},
        "verdict": report.verdict,
        "device": {
            **asdict(report.device),
            "cannot_vouch_for": CANNOT_VOUCH if report.device.kind is Kind.EMULATED else None,
        },
        "target": {"torch_npu": target.torch_npu, "soc": target.soc} if target else None,
        "migration": None if report.changed is None else {"changed": report.changed, "remaining": report.remaining},
        "imports": [asdict(module) for module in report.imports],
        "reference": _side(report.reference),
        "run": _side(report.run),
        "comparison": _comparison(report.comparison),
        "golden": asdict(report.golden) if report.golden else None,
        "operators": [asdict(operator) for operator in report.operators],
        "notes": report.notes,
        "recorded": report.recorded,
        "folder": report.folder,
    }
    return json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"


def _side(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    run = side.run
    return {
        "title": side.title,
        "command": list(run.command),
        "exit_code": run.exit_code,
        "signal": run.signal,
        "timed_out": run.exit_code is None,
        "seconds": round(run.seconds, 2),
        "stdout": run.stdout[-LAST_CHARACTERS:],
        "stderr": run.stderr[-LAST_CHARACTERS:],
        "failures": [asdict(failure) for failure in side.failures],
    }


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    return {
        "reference": comparison.reference,
        "passed": comparison.passed and not comparison.is_empty,
        "ranks": [{**asdict(ranked), "passed": ranked.passed} for ranked in comparison.ranks],
        "final_parameters": [{**asdict(files), "passed": comparison.accepts(files)} for files in comparison.final],
        "artifacts": [
            {"name": name, **asdict(files), "passed": comparison.accepts(files)} for name, files in comparison.artifacts
        ],
        "layers": [asdict(layer) for layer in comparison.layers],
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
