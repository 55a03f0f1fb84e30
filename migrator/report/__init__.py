"""Reports: the same result records as text, JSON, SARIF, JUnit, CSV or one HTML page.

Each format is the module of its name with a `render` function; a module is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from migrator.records import FileResult
from migrator.report.meta import ReportMeta, RuleInfo, TargetInfo

__all__ = ["FORMATS", "ReportMeta", "RuleInfo", "TargetInfo", "render"]

FORMATS: tuple[str, ...] = ("text", "json", "sarif", "junit", "csv", "html")


def render(
    format: str,
    results: Sequence[FileResult],
    meta: ReportMeta,
    *,
    color: bool = False,
    width: int = 80,
    verbose: bool = False,
) -> str:
    """The whole report as text that encodes to UTF-8, its last line ended.

    Files appear in the order given, findings in the order of their lines.  CSV has CRLF line ends: write
    the text with `newline=""`.  `color`, `width` (columns) and `verbose` matter to the text report only.
    Raises ValueError for a format that is not in `FORMATS`.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown report format {format!r}; choose one of {', '.join(FORMATS)}")
    options = {"color": color, "width": width, "verbose": verbose} if format == "text" else {}
    report: str = import_module(f"{__name__}.{format}").render(results, meta, **options)
    return report
