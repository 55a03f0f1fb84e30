"""Text for a terminal: what is left for a person, file by file, then the figures and the next step."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migrator.records import Diagnostic, FileResult, Severity, Status
from migrator.report.meta import (
    SEVERITIES,
    ReportMeta,
    RuleCount,
    Totals,
    by_rule,
    in_order,
    printable,
    unexplained_error,
    unsafe_left,
)

_SHOWN = 3
_INDENT = "    "
_SHORTEST_LINE = 20
_NARROWEST = 40
_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}
_BOLD, _DIM, _GREEN = "1", "2", "32"


def render(
    results: Sequence[FileResult],
    meta: ReportMeta,
    *,
    color: bool = False,
    width: int = 80,
    verbose: bool = False,
) -> str:
    """The report for `width` columns (at least 40).  `verbose` also lists what was fixed, and folds none."""
    page = _Page(meta, max(width, _NARROWEST), _painted if color else _plain, verbose)
    blocks = [*(page.file(result) for result in results), page.overview(results)]
    blocks += [page.fixed(results), page.left(results), page.unread(), page.requirements(), page.next_steps(results)]
    texts = ["\n".join(block) for block in blocks]
    return "\n\n".join(text for text in texts if text) + "\n"


def _plain(text: str, code: str) -> str:
    return text


def _painted(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


@dataclass(frozen=True)
class _Page:
    """Every method yields the lines of one block; a block without lines is left out."""

    meta: ReportMeta
    width: int
    paint: Callable[[str, str], str]
    verbose: bool

    def file(self, result: FileResult) -> Iterator[str]:
        path = printable(self.meta.located(result.path))
        if error := unexplained_error(result):
            colour = _COLOURS[Severity.ERROR] if result.status is Status.FAILED else _DIM
            yield from self._wrapped([(f"{path}:", _BOLD), (f"{result.status.value}:", colour)], error)
        shown = [d for d in in_order(result.diagnostics) if self.verbose or not d.fixed]
        alike = defaultdict(list)
        for d in shown:
            alike[d.rule, d.remedy, d.fixed].append(d)
        told: Counter[tuple[str, str | None, bool]] = Counter()
        for d in shown:
            key = (d.rule, d.remedy, d.fixed)
            told[key] += 1
            # Folding a single finding would save nothing.
            folded = [] if self.verbose or len(alike[key]) == _SHOWN + 1 else alike[key][_SHOWN:]
            if not folded or told[key] <= _SHOWN:
                yield from self._finding(path, d, with_remedy=self.verbose or told[key] == 1)
            if folded and told[key] == _SHOWN:
                yield self._folded(d.rule, folded)

    def _finding(self, path: str, d: Diagnostic, *, with_remedy: bool) -> Iterator[str]:
        fixed = (", would be fixed" if self.meta.dry_run else ", fixed") if d.fixed else ""
        head = [
            (f"{path}:{d.line}:{d.column}:", _BOLD),
            (d.rule, _COLOURS[d.severity]),
            (f"[{d.applicability.value}{fixed}]", _DIM),
        ]
        yield from self._wrapped(head, d.message)
        if d.remedy and with_remedy and not d.fixed:
            yield from self._wrapped([(f"{_INDENT}help:", _GREEN)], d.remedy, deeper=True)

    def _folded(self, rule: str, rest: Sequence[Diagnostic]) -> str:
        lines = ", ".join(str(line) for line in dict.fromkeys(d.line for d in rest))
        text = f"… and {len(rest)} more {rule}: line{'s' if ',' in lines else ''} {lines}"
        return _INDENT + self.paint(textwrap.shorten(text, self.width - len(_INDENT), placeholder=" …"), _DIM)

    def _wrapped(self, head: Sequence[tuple[str, str]], text: str, *, deeper: bool = False) -> Iterator[str]:
        """`text` behind its coloured head; further lines are indented."""
        text = printable(text)
        length = sum(len(part) + 1 for part, _ in head)
        first_word = text.split(maxsplit=1)[0] if text.strip() else ""
        beside = length + max(len(first_word), _SHORTEST_LINE) <= self.width
        indent = _INDENT * 2 if deeper else _INDENT
        lines = textwrap.wrap(
            text,
            self.width,
            initial_indent=" " * length if beside else indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        painted = " ".join(self.paint(part, colour) for part, colour in head)
        if beside and lines:
            painted += " " + lines.pop(0)[length:]
        return iter([painted, *lines])

    def overview(self, results: Sequence[FileResult]) -> Iterator[str]:
        totals = Totals.of(results)
        changed = "would change" if self.meta.dry_run else "changed"
        parts = [(totals.changed, changed), (totals.failed, "failed"), (totals.skipped, "skipped")]
        figures = ", ".join(f"{count} {what}" for count, what in parts if count) or "nothing to change"
        noun = "file" if totals.files == 1 else "files"
        yield self.paint(f"{totals.files} {noun}: {figures}.", _BOLD)
        target = self.meta.target
        chip = f" on {target.soc}" if target.soc else ""
        yield from self._paragraph(f"Target: torch_npu {target.torch_npu}{chip} ({target.reason}).")

    def unread(self) -> Iterator[str]:
        names = [printable(name) for name in self.meta.unread]
        if names:
            noun = "1 file of another kind names" if len(names) == 1 else f"{len(names)} files of other kinds name"
            yield from self._paragraph(f"Not read: {noun} CUDA or NCCL. Look at what your programs take from there:")
            shown = names if self.verbose or len(names) == _SHOWN + 1 else names[:_SHOWN]
            yield from (_INDENT + name for name in shown)
            if len(shown) < len(names):
                yield _INDENT + self.paint(f"… and {len(names) - len(shown)} more (-v names all)", _DIM)

    def requirements(self) -> Iterator[str]:
        names = [printable(name) for name in self.meta.requirements]
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            line = f"torch-npu=={self.meta.target.torch_npu}"
            yield from self._paragraph(
                f"The code now imports torch_npu, and nothing installs it: add `{line}` to "
                f"{', '.join(names[:_SHOWN])}{more}."
            )

    def fixed(self, results: Sequence[FileResult]) -> Iterator[str]:
        counts = sorted((c for c in by_rule(results) if c.fixed), key=lambda c: (-c.fixed, c.rule))
        if counts:
            total = sum(count.fixed for count in counts)
            yield self.paint(f"{'Would fix' if self.meta.dry_run else 'Fixed'} {total}", _BOLD)
            for count in counts:
                yield self._row(count.fixed, "", count)

    def left(self, results: Sequence[FileResult]) -> Iterator[str]:
        counts = sorted((c for c in by_rule(results) if c.remaining), key=_worst_first)
        if counts:
            yield self.paint(f"Left {sum(count.remaining for count in counts)}", _BOLD)
            for count in counts:
                yield self._row(count.remaining, f"{count.severity.value:7}  ", count)

    def _row(self, number: int, severity: str, count: RuleCount) -> str:
        title = self.meta.titles().get(count.rule, count.name)
        start = f"{number:6}  {severity}{count.rule}  "
        room = max(self.width - len(start), 1)
        row = start + (title if len(title) <= room else title[: room - 1].rstrip() + "…")
        return row.replace(severity, self.paint(severity, _COLOURS[count.severity]), 1) if severity else row

    def next_steps(self, results: Sequence[FileResult]) -> Iterator[str]:
        totals = Totals.of(results)
        if self.meta.dry_run and totals.changed:
            command = f"npu-migrate {printable(shlex.join(self.meta.paths))}"
            yield from self._paragraph(f"Nothing was written: `{command}` makes these changes.")
        if unsafe := unsafe_left(results):
            yield from self._paragraph(f"`--unsafe` would fix {unsafe} of what is left; review each of those changes.")
        if totals.remaining:
            worst = min((c for c in by_rule(results) if c.remaining), key=_worst_first)
            yield from self._paragraph(f"`npu-migrate rule {worst.rule}` explains a finding and its way out.")
        elif totals.files and not totals.failed and not self.meta.unread and not self.meta.requirements:
            yield "Nothing is left to do by hand."

    def _paragraph(self, text: str) -> list[str]:
        return textwrap.wrap(printable(text), self.width, break_long_words=False, break_on_hyphens=False)


def _worst_first(count: RuleCount) -> tuple[int, int, str]:
    return SEVERITIES.index(count.severity), -count.remaining, count.rule
