"""What the user has decided to live with: ignore comments in the code, and a baseline file beside it."""

from __future__ import annotations

import difflib
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from migrator import edits, faults
from migrator.records import Diagnostic, FileResult, Status

_MARK = "npu-migrate:"
_COMMENT = re.compile(r"#\s*npu-migrate:\s*(?P<verb>[\w-]+)\s*(?:\[(?P<codes>[^\]]*)\])?(?P<rest>.*)")
_NEXT_COMMENT = re.compile(r"(?:^|\s)#\s.*")
_VERBS = ("ignore", "ignore-file")
_NEWLINES = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class Suppression:
    """One ignore comment: the lines [first, last] whose findings of these rules it silences.

    codes   rule ids and names, lower case
    line, column   where the comment is (1-based)
    """

    codes: tuple[str, ...]
    reason: str
    first: int
    last: int
    line: int
    column: int

    def covers(self, code: str, line: int) -> bool:
        return code.lower() in self.codes and self.first <= line <= self.last


class Suppressions:
    """The ignore comments of one file.

    `# npu-migrate: ignore[NPU101,device-string] reason` at the end of a line is for the findings that start
    on that line; on a line of its own, for the whole statement below it (inside brackets: for the next
    line).  `ignore-file[…]` anywhere is for the whole file.  A comment without a reason works, but is
    reported; one without a rule does nothing, and is reported.
    """

    def __init__(self, items: Iterable[Suppression] = (), malformed: Iterable[Diagnostic] = ()) -> None:
        self.items = tuple(items)
        self._malformed = tuple(malformed)

    @classmethod
    def parse(cls, text: str) -> Suppressions:
        """The ignore comments in decoded source; strings that only look like one do not count."""
        if _MARK not in text:
            return cls()
        lines = re.split(r"\r\n|\n|\r", text)
        try:
            comments, statements = _tokenized(lines)
        except (tokenize.TokenError, SyntaxError, ValueError):
            comments, statements = _by_line(lines), {}
        last = len(lines)
        items, malformed = [], []
        for line, column, comment in comments:
            match = _COMMENT.search(comment)
            if match is None:
                continue
            at = column + match.start()
            if problem := _malformed(match, line, at):
                malformed.append(problem)
                continue
            if match["verb"] == "ignore-file":
                span = (1, last)
            elif lines[line - 1][: column - 1].strip():
                span = (line, line)
            else:
                below = _next_code_line(lines, line)
                span = (below, statements.get(below, below))
            items.append(Suppression(_codes(match), _reason(match), *span, line, at))
        return cls(items, malformed)

    def covers(self, rule_id: str, rule_name: str, line: int) -> bool:
        """Whether a finding of this rule that starts on this line is silenced."""
        return any(item.covers(code, line) for item in self.items for code in (rule_id, rule_name))

    def faults(self, used: Iterable[tuple[str, str, int]], inactive: Collection[str] = frozenset()) -> list[Diagnostic]:
        """What is wrong with the comments themselves.

        used      (rule id, rule name, line) of every finding that `covers` silenced
        inactive  ids and names of rules that did not run: their comments cannot be called unused
        """
        found = list(self._malformed)
        silenced = [(code, line) for rule_id, name, line in used for code in (rule_id, name)]
        not_run = {code.lower() for code in inactive}
        for item in self.items:
            if not item.reason:
                found.append(
                    faults.INCOMPLETE_IGNORE.at(
                        "this ignore comment gives no reason",
                        item.line,
                        item.column,
                        "say why after the bracket: `# npu-migrate: ignore[ID] reason`",
                    )
                )
            matched = {code.lower() for code, line in silenced if item.covers(code, line)}
            unused = [code for code in item.codes if code not in matched and code not in not_run]
            if unused:
                names = ", ".join(_display(code) for code in unused)
                found.append(
                    faults.UNUSED_IGNORE.at(
                        f"nothing to ignore here for {names}",
                        item.line,
                        item.column,
                        "remove the comment, or correct the rule's id",
                    )
                )
        return sorted(found, key=lambda fault: (fault.line, fault.column, fault.rule))


def _tokenized(lines: list[str]) -> tuple[list[tuple[int, int, str]], dict[int, int]]:
    """Comments as (line, column, text), and the first → last line of every statement (or its header)."""
    comments: list[tuple[int, int, str]] = []
    statements: dict[int, int] = {}
    first = 0
    trivia = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        line, column = token.start
        if token.type == tokenize.COMMENT:
            comments.append((line, column + 1, token.string))
        elif token.type == tokenize.NEWLINE:
            statements[first] = line
            first = 0
        elif token.type not in trivia and not first:
            first = line
    return comments, statements


def _by_line(lines: list[str]) -> list[tuple[int, int, str]]:
    """Comments of source that does not tokenize: whatever looks like one."""
    found = ((number, _COMMENT.search(line)) for number, line in enumerate(lines, 1))
    return [(number, match.start() + 1, match.group()) for number, match in found if match]


def _next_code_line(lines: list[str], line: int) -> int:
    """The line below a comment and any comment lines that follow it directly."""
    while line < len(lines) and lines[line].lstrip().startswith("#"):
        line += 1
    return line + 1


def _malformed(match: re.Match[str], line: int, column: int) -> Diagnostic | None:
    verb = match["verb"]
    if verb not in _VERBS:
        if not (close := difflib.get_close_matches(verb, _VERBS, n=1, cutoff=0.7)):
            return None
        return faults.INCOMPLETE_IGNORE.at(
            f"`{verb}` is not an ignore comment", line, column, f"did you mean `{close[0]}[ID] reason`?"
        )
    if not _codes(match):
        return faults.INCOMPLETE_IGNORE.at(
            "this ignore comment names no rule, so it ignores nothing",
            line,
            column,
            f"name the rules in brackets: `# npu-migrate: {verb}[ID] reason`",
        )
    return None


def _codes(match: re.Match[str]) -> tuple[str, ...]:
    codes = (code.strip().lower() for code in (match["codes"] or "").split(","))
    return tuple(dict.fromkeys(code for code in codes if code))


def _reason(match: re.Match[str]) -> str:
    """The text after the bracket, up to the next comment on the line (`# noqa`)."""
    return _NEXT_COMMENT.sub("", match["rest"]).strip().lstrip(":-–—").strip()


def _display(code: str) -> str:
    return code.upper() if re.fullmatch(r"[a-z]+\d+", code) else code


class BaselineError(ValueError):
    """The baseline file cannot be used; the message says why."""


class Baseline:
    """Findings that were there before and are not reported again.

    A finding is known by its file, its rule and the text of its line (white space apart), so it stays known
    when lines are added or removed above it; of equal ones in a file, as many are known as were recorded.
    Only findings that are left for a person count: what can be fixed is fixed.
    """

    VERSION = 1

    def __init__(self, known: Counter[tuple[str, str, str]] | None = None) -> None:
        self.known = Counter() if known is None else known

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read the file; raises BaselineError if that fails or it is not one of ours."""
        try:
            content = json.loads(path.read_bytes())
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise BaselineError(f"{path}: not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("version") != cls.VERSION:
            raise BaselineError(f"{path}: not a baseline file of version {cls.VERSION}")
        try:
            findings = content["findings"]
            return cls(Counter({(row["path"], row["rule"], row["text"]): int(row["count"]) for row in findings}))
        except (KeyError, TypeError, ValueError) as error:
            raise BaselineError(f"{path}: damaged; write it anew with --write-baseline") from error

    def save(self, path: Path) -> None:
        """Write the file, one finding a line, sorted, so that it diffs and merges well.  Raises OSError."""
        rows = [
            json.dumps({"path": file, "rule": rule, "text": text, "count": count})
            for (file, rule, text), count in sorted(self.known.items())
        ]
        body = ",\n  ".join(rows)
        content = f'{{"version": {self.VERSION}, "findings": [\n  {body}\n]}}\n'
        edits.write_atomically(path, content.encode())

    def add(self, result: FileResult, path: str) -> None:
        """Record what is left in one file; `path` is how the baseline knows it."""
        self.known.update(key for _, key in _left(result, path))

    def filter(self, result: FileResult, path: str) -> FileResult:
        """The result without the findings that are known.  Files that failed stay as they are."""
        left = _left(result, path)
        budget = {key: self.known[key] for _, key in left}
        known = set()
        for index, key in left:
            if budget[key] > 0:
                budget[key] -= 1
                known.add(index)
        kept = tuple(found for index, found in enumerate(result.diagnostics) if index not in known)
        return replace(result, diagnostics=kept)


def _left(result: FileResult, path: str) -> list[tuple[int, tuple[str, str, str]]]:
    """The findings that are left for a person, as (index, baseline key)."""
    left = [(index, found) for index, found in enumerate(result.diagnostics) if not found.fixed]
    if not left or result.status in (Status.FAILED, Status.SKIPPED):
        return []
    texts = _settled_lines(result)
    return [(index, (path, found.rule, texts[min(found.line, len(texts)) - 1])) for index, found in left]


def _settled_lines(result: FileResult) -> list[str]:
    """The text of each line of the file before the change, as it will be after the change.

    So a finding has one text before its line's other findings are fixed, and after.
    """
    before = _NEWLINES.split(result.before or b"")
    settled = list(before)
    if result.after is not None:
        after = _NEWLINES.split(result.after)
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after).get_opcodes():
            if tag == "replace" and i2 - i1 == j2 - j1:
                settled[i1:i2] = after[j1:j2]
    return [b" ".join(line.split()).decode("utf-8", "backslashreplace") for line in settled]
