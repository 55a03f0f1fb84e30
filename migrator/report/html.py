"""HTML: one self-contained page with the figures, the rules and every file's changes and findings.

The look is in page/: a template, its style sheet and its script, which become one file without outside parts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from migrator.records import Diagnostic, FileResult, Status
from migrator.report.meta import (
    SEVERITIES,
    ReportMeta,
    Totals,
    by_rule,
    in_order,
    printable,
    unexplained_error,
    unsafe_left,
)
from migrator.source import SourceError, decode

_PAGE = Path(__file__).parent / "page"
_CONTEXT = 3
_LONGEST_LINE = 1000
_BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass
class Row:
    """One line of a file's changes: its numbers before and after (None where it is not), and its text.

    kind    keep, del, add, or gap: that many lines (`text`) are left out here
    notes   the findings that are left on this line
    fixed   the findings that were fixed on this line
    """

    kind: str
    old: int | None
    new: int | None
    text: str
    notes: Sequence[Diagnostic] = ()
    fixed: Sequence[Diagnostic] = ()


@dataclass(frozen=True)
class FileView:
    """A file as the page shows it; `loose` are findings on lines that cannot be shown."""

    path: str
    anchor: str
    status: Status
    error: str | None
    fixed: int
    left: int
    rows: Sequence[Row]
    loose: Sequence[Diagnostic]


def render(results: Sequence[FileResult], meta: ReportMeta) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_legible,
    )
    environment.filters["code"] = _with_code
    counts = by_rule(results)
    counts.sort(key=lambda c: (not c.remaining, SEVERITIES.index(c.severity), -c.remaining, -c.fixed))
    views = [_view(result) for result in results if _worth_showing(result)]
    return environment.get_template("report.html").render(
        meta=meta,
        totals=Totals.of(results),
        unsafe=unsafe_left(results),
        counts=counts,
        rules={rule.id: rule for rule in meta.rules},
        files=views,
    )


def _legible(value: Any) -> Any:
    """What the template prints: text from files with its control characters spelled out, markup as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _with_code(text: str) -> Markup:
    """Text with what stands between backticks set as code."""
    # str, as the pieces of a Markup would be escaped once more.
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(printable(text)))))


def _worth_showing(result: FileResult) -> bool:
    return bool(result.diagnostics or result.error or result.after is not None)


def _view(result: FileResult) -> FileView:
    old = _lines(result.before)
    new = old if result.after is None else _lines(result.after)
    found = in_order(result.diagnostics)
    rows = list(_folded(_annotated(_compared(old, new), found)))
    shown = {row.old for row in rows}
    return FileView(
        path=result.path,
        anchor=quote(printable(result.path)),
        status=result.status,
        error=unexplained_error(result),
        fixed=result.fixed,
        left=result.remaining,
        rows=rows,
        loose=[d for d in found if not d.fixed and d.line not in shown],
    )


def _lines(raw: bytes | None) -> list[str]:
    """The lines that positions count, without their ends; bytes that are no text are made legible."""
    if raw is None:
        return []
    try:
        text = decode(raw).text
    except SourceError:
        text = raw.decode("utf-8", "surrogateescape")
    lines = _NEWLINE.split(text)
    return lines if lines[-1] else lines[:-1]


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield from (Row("keep", i + 1, i - i1 + j1 + 1, old[i]) for i in range(i1, i2))
        else:
            yield from (Row("del", i + 1, None, old[i]) for i in range(i1, i2))
            yield from (Row("add", None, j + 1, new[j]) for j in range(j1, j2))


def _annotated(rows: Iterator[Row], diagnostics: Sequence[Diagnostic]) -> list[Row]:
    on_line = defaultdict(list)
    for d in diagnostics:
        on_line[d.line].append(d)
    return [
        replace(row, notes=[d for d in found if not d.fixed], fixed=[d for d in found if d.fixed])
        if (found := on_line[row.old] if row.old else [])
        else row
        for row in rows
    ]


def _folded(rows: Sequence[Row]) -> Iterator[Row]:
    """The changed and annotated rows with some lines around them; the rest is gaps."""
    shown: set[int] = set()
    for index, row in enumerate(rows):
        if row.kind != "keep" or row.notes or row.fixed:
            shown.update(range(index - _CONTEXT, index + _CONTEXT + 1))
    hidden = 0
    for index, row in enumerate(rows):
        if index not in shown:
            hidden += 1
            continue
        if hidden:
            yield Row("gap", None, None, str(hidden))
            hidden = 0
        text = row.text
        yield row if len(text) <= _LONGEST_LINE else replace(row, text=text[:_LONGEST_LINE] + "…")
    if hidden and shown:
        yield Row("gap", None, None, str(hidden))
