"""One file: decode, parse once, dispatch, collect, apply; again while a fix had to wait for another.

`migrate` never raises for user input: what goes wrong becomes a FAILED record and the file stays as it was.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import libcst as cst

from migrator import faults, gate, registry
from migrator.context import FileContext
from migrator.edits import Edit, OffsetMap, apply, select_non_overlapping
from migrator.match import Call, FileMatch, Import, Keyword, Match, Method, Name, Text
from migrator.names import Binding, Reference
from migrator.ported import ported_branch
from migrator.project import Project
from migrator.records import Applicability, Diagnostic, FileResult, Severity, Status
from migrator.rule import Fix, Handler, Report, Rule
from migrator.source import Source, SourceError, decode
from migrator.suppress import Suppressions
from migrator.target import Target
from migrator.tree import SpanError

MAX_ROUNDS = 10


@dataclass(frozen=True)
class Settings:
    """What the engine needs to know; picklable."""

    target: Target
    enabled: frozenset[str]
    unsafe: bool = False
    rules_dirs: tuple[str, ...] = ()
    remove: bool = False
    """Take out again what the rules put in; only those that can (`Rule.on_remove`) are asked."""


@dataclass(frozen=True)
class Finding:
    """What a rule said about a place."""

    rule: Rule
    outcome: Fix | Report
    node: cst.CSTNode

    def applies(self, unsafe: bool) -> bool:
        """Whether its fix is to be made."""
        return isinstance(self.outcome, Fix) and (
            self.applicability is Applicability.SAFE or (unsafe and self.applicability is Applicability.UNSAFE)
        )

    @property
    def edits(self) -> Sequence[Edit]:
        """The edits of its fix."""
        return self.outcome.edits if isinstance(self.outcome, Fix) else ()

    @property
    def applicability(self) -> Applicability:
        """Of this finding; a report is always for a person."""
        if isinstance(self.outcome, Report):
            return Applicability.MANUAL
        return self.outcome.applicability or self.rule.applicability


class RuleError(Exception):
    """A rule raised: its id and what it said."""


@cache
def _prefilter(enabled: frozenset[str], rules_dirs: tuple[str, ...]) -> registry.Prefilter:
    return registry.load(rules_dirs).prefilter(enabled)


def is_candidate(raw: bytes, settings: Settings) -> bool:
    """Whether some enabled rule could find anything in these bytes."""
    return _prefilter(settings.enabled, settings.rules_dirs)(raw)


def migrate(raw: bytes, path: str, settings: Settings, project: Project) -> FileResult:
    """Migrate one file; `path` is posix, below the repository root."""
    try:
        source = decode(raw)
    except SourceError as error:
        return _failed(path, raw, faults.UNDECODABLE.at(str(error)))
    try:
        return _Migration(source, raw, path, settings, project).run()
    except cst.ParserSyntaxError as error:
        return _failed(path, raw, faults.unparsable(source, max(error.raw_line, 1), error.raw_column + 1))
    except RecursionError:
        return _failed(path, raw, faults.UNPARSABLE.at("cannot parse: the code is nested too deeply"))
    except RuleError as error:
        return _failed(path, raw, faults.RULE_CRASHED.at(str(error)))
    except (SpanError, SourceError, BrokenResultError) as error:
        return _failed(path, raw, faults.BROKEN_RESULT.at(str(error)))


class BrokenResultError(Exception):
    """The edited text is no Python."""


def _failed(path: str, raw: bytes, diagnostic: Diagnostic) -> FileResult:
    return FileResult(path, Status.FAILED, (diagnostic,), raw, None, diagnostic.message)


class _Migration:
    """The rounds over one file."""

    def __init__(self, source: Source, raw: bytes, path: str, settings: Settings, project: Project) -> None:
        self.original, self.source, self.raw, self.path = source, source, raw, path
        self.settings, self.project = settings, project
        self.registry = registry.load(settings.rules_dirs)
        self.suppressions = Suppressions.parse(source.text)
        self.used: set[tuple[str, str, int]] = set()
        self.settled: list[Diagnostic] = []
        self.offsets = OffsetMap()

    def run(self) -> FileResult:
        """All rounds."""
        left: list[Diagnostic] = []
        for _ in range(MAX_ROUNDS):
            left, again = self._round()
            if not again:
                break
        off = [rule for rule in self.registry.rules if rule.id not in self.settings.enabled]
        inactive = {word for rule in off for word in (rule.id, rule.name)}
        diagnostics = [*self.settled, *left, *self.suppressions.faults(self.used, inactive)]
        diagnostics.sort(key=lambda d: (d.line, d.column, d.rule, d.message))
        after = self.original.encode(self.source.text)
        if after == self.raw:
            return FileResult(self.path, Status.UNCHANGED, tuple(diagnostics), self.raw)
        _check_parses(self.source.parse_text)
        return FileResult(self.path, Status.CHANGED, tuple(diagnostics), self.raw, after)

    def _round(self) -> tuple[list[Diagnostic], bool]:
        """One pass: what is left for a person, and whether another one is needed."""
        file = FileContext(self.source, self.path, self.settings.target, self.project)
        file.acts = partial(self._acts, file)
        findings = list(self._wanted(file, self._collect(file)))
        applied = [f for f in findings if f.applies(self.settings.unsafe)]
        taken, flags = select_non_overlapping([f.edits for f in applied])
        made = [f for f, flag in zip(applied, flags, strict=True) if flag]
        made, taken = self._passing(file, made)
        self.settled += [self._diagnostic(file, f, fixed=True) for f in made]
        done = {id(f) for f in made}
        waiting = {id(f) for f, flag in zip(applied, flags, strict=True) if not flag}
        left = [
            self._diagnostic(file, f, fixed=False)
            for f in findings
            if id(f) not in done and not _is_deleted(file, f, taken)
        ]
        if taken:
            self.source = replace(self.source, text=apply(self.source.text, taken))
            self.offsets = self.offsets.then(taken)
        return left, bool(waiting) or any(isinstance(f.outcome, Fix) and f.outcome.again for f in made)

    def _passing(self, file: FileContext, made: list[Finding]) -> tuple[list[Finding], list[Edit]]:
        """The fixes that write only names that exist, what follows from them, and the edits of both."""
        while made:
            following = [f for f in self._wanted(file, self._on_change(file, made)) if f.applies(self.settings.unsafe)]
            taken = sorted({edit for finding in (*made, *following) for edit in finding.edits})
            after, shift, wrong = apply(self.source.text, taken), 0, {}
            for edit in taken:
                if problem := gate.invented(file, after, edit.start + shift, edit, taken):
                    wrong[edit] = problem
                shift += len(edit.text) - (edit.end - edit.start)
            withdrawn = [(f, edit) for f in made for edit in f.edits if edit in wrong]
            if not withdrawn:
                return [*made, *following], taken
            for finding, edit in withdrawn:
                line, column = self.original.position(self.offsets.back(file.tree.span(finding.node)[0]))
                message = f"rule {finding.rule.id} was withdrawn: {wrong[edit]}"
                self.settled.append(faults.INVENTED_NAME.at(message, line, column, "Ask `npu-migrate api NAME`."))
            made = [f for f in made if not any(edit in wrong for edit in f.edits)]
        return [], []

    def _wanted(self, file: FileContext, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Leave out what is not selected or is silenced by a comment."""
        for finding in findings:
            if finding.rule.id not in self.settings.enabled:
                continue
            line, _ = self.original.position(self.offsets.back(file.tree.span(finding.node)[0]))
            if self.suppressions.covers(finding.rule.id, finding.rule.name, line):
                self.used.add((finding.rule.id, finding.rule.name, line))
                continue
            yield finding

    def _acts(self, file: FileContext, place: Reference | Binding) -> bool:
        """Whether a use, or the statement that binds a name, will be changed: see FileContext.acts."""
        if isinstance(place, Reference):
            found = self._name(file, place, self.registry.table.get("name", {}), set())
            return any(finding.applies(self.settings.unsafe) for finding in self._wanted(file, found))
        if not place.is_import and not isinstance(place.node, cst.ImportStar):
            return all(self._acts(file, r) for r in file.names.references if r.node is place.value)
        statement = file.tree.parents[place.node]
        name = file.names.imported_name(place)
        line, _ = self.original.position(self.offsets.back(file.tree.span(statement)[0]))
        return not ported_branch(file, statement) and any(
            rule.id in self.settings.enabled and not self.suppressions.covers(rule.id, rule.name, line)
            for module, pairs in self.registry.table.get("import", {}).items()
            if name == module or name.startswith(module + ".")
            for rule, _ in pairs
        )

    def _diagnostic(self, file: FileContext, finding: Finding, fixed: bool) -> Diagnostic:
        start, end = file.tree.span(finding.node)
        line, column = self.original.position(self.offsets.back(start))
        end_line, end_column = self.original.position(self.offsets.back(end))
        if isinstance(finding.node, cst.Module):
            line, column, end_line, end_column = 1, 1, 1, 1
        return Diagnostic(
            rule=finding.rule.id,
            name=finding.rule.name,
            severity=finding.outcome.severity or finding.rule.severity,
            message=finding.outcome.message,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
            applicability=finding.applicability,
            fixed=fixed,
            remedy=finding.outcome.remedy,
        )

    # --- dispatch -------------------------------------------------------------------------------------------

    def _collect(self, file: FileContext) -> Iterator[Finding]:
        if self.settings.remove:
            yield from self._whole_file(file, "remove")
            return
        table = self.registry.table
        claimed: set[cst.CSTNode] = set()
        for reference in file.names.references:
            yield from self._name(file, reference, table.get("name", {}), claimed)
        for attribute in file.tree.all(cst.Attribute) if "method" in table else ():
            if attribute.attr.value in table["method"] and attribute not in claimed:
                yield from self._ask(table["method"][attribute.attr.value], Method(file, attribute))
        yield from self._strings(file)
        for arg in file.tree.all(cst.Arg) if "keyword" in table else ():
            if arg.keyword is not None and arg.keyword.value in table["keyword"]:
                call = file.tree.parents[arg]
                if isinstance(call, cst.Call):
                    for pair in table["keyword"][arg.keyword.value]:
                        yield from self._ask([pair], Keyword(file, arg, Call(file, call)))
        yield from self._imports(file)
        yield from self._whole_file(file, "file")

    def _whole_file(self, file: FileContext, kind: str) -> Iterator[Finding]:
        once = {id(pair[1]): pair for pairs in self.registry.table.get(kind, {}).values() for pair in pairs}
        text = file.source.text
        for rule, handler in once.values():
            if rule.id in self.settings.enabled and any(word in text for word in handler.words):
                yield from self._ask([(rule, handler)], FileMatch(file, file.tree.module))

    def _ask(self, pairs: Sequence[tuple[Rule, Handler]], match: Match) -> Iterator[Finding]:
        """The first answer of several handlers that could speak of the same place."""
        for rule, handler in pairs:
            try:
                outcome = handler.function(match)
            except (SpanError, RecursionError):
                raise
            except Exception as error:
                line, _ = match.file.source.position(match.file.tree.span(match.node)[0])
                raise RuleError(
                    f"rule {rule.id} ({rule.name}) raised {type(error).__name__} at line {line}: {error}"
                ) from error
            outcomes = [] if outcome is None else [outcome] if isinstance(outcome, (Fix, Report)) else outcome
            for found in outcomes:
                node = found.node if found.node is not None else match.node
                if isinstance(found, Fix) and not self.settings.remove and ported_branch(match.file, node):
                    found = _kept_for_ported(found)
                yield Finding(rule, found, node)
            if outcomes:
                return

    def _name(
        self,
        file: FileContext,
        reference: Reference,
        table: dict[str, list[tuple[Rule, Handler]]],
        claimed: set[cst.CSTNode],
    ) -> Iterator[Finding]:
        """The most specific handler for a reference or the front of it: longer patterns first, exact before `.*`."""
        levels: list[tuple[cst.BaseExpression, str]] = []
        node, qualified = reference.node, reference.qualified
        for depth in range(len(reference.parts) + 1):
            levels.append((node, qualified))
            if depth < len(reference.parts) and isinstance(node, cst.Attribute):
                node, qualified = node.value, qualified.rpartition(".")[0]
        candidates: list[tuple[float, cst.BaseExpression, str, list[tuple[Rule, Handler]]]] = []
        for node, qualified in levels:
            if qualified in table:
                candidates.append((qualified.count(".") + 0.5, node, qualified, table[qualified]))
        full_node, full = levels[0]
        prefix = full
        while prefix:
            if prefix + ".*" in table:
                candidates.append((prefix.count("."), full_node, full, table[prefix + ".*"]))
            prefix = prefix.rpartition(".")[0]
        for _, node, qualified, pairs in sorted(candidates, key=lambda c: -c[0]):
            found = list(self._ask(pairs, Name(file, node, reference, qualified)))
            if found:
                claimed.update(level for level, _ in levels)
                yield from found
                return

    def _strings(self, file: FileContext) -> Iterator[Finding]:
        table = self.registry.table.get("string", {})
        words = re.compile("|".join(map(re.escape, sorted(table, key=len, reverse=True))) or "(?!)", re.IGNORECASE)
        nodes: list[cst.SimpleString | cst.FormattedString | cst.ConcatenatedString] = [
            *file.tree.all(cst.SimpleString),
            *file.tree.all(cst.FormattedString),
            *file.tree.all(cst.ConcatenatedString),
        ]
        for node in nodes:
            if isinstance(file.tree.parents.get(node), cst.ConcatenatedString):
                continue
            value = string_value(node)
            found = {m.lower() for m in words.findall(value)}
            for word, pairs in table.items():
                if word.lower() in found:
                    answer = list(self._ask(pairs, Text(file, node, value)))
                    yield from answer
                    if answer:
                        break

    def _imports(self, file: FileContext) -> Iterator[Finding]:
        table = self.registry.table.get("import", {})
        statements: list[cst.Import | cst.ImportFrom] = [
            *file.tree.all(cst.Import),
            *file.tree.all(cst.ImportFrom),
        ]
        for statement in statements:
            for module, pairs in table.items():
                bindings = file.names.bindings_in(statement, module)
                if bindings:
                    yield from self._ask(pairs, Import(file, statement, module, bindings))

    def _on_change(self, file: FileContext, made: list[Finding]) -> Iterator[Finding]:
        nodes = [(f.outcome, f.node) for f in made if isinstance(f.outcome, Fix)]
        for pairs in self.registry.table.get("change", {}).values() if not self.settings.remove else ():
            for pair in pairs:
                yield from self._ask([pair], FileMatch(file, file.tree.module, nodes))


def _is_deleted(file: FileContext, finding: Finding, edits: Sequence[Edit]) -> bool:
    """Whether edits delete the code that a report speaks of."""
    start, end = file.tree.span(finding.node)
    return isinstance(finding.outcome, Report) and any(
        edit.start <= start and end <= edit.end and not edit.text.strip() for edit in edits
    )


def _kept_for_ported(fix: Fix) -> Report:
    return Report(
        "left as it is: this branch stands beside one for the NPU",
        f"Check that the NPU branch does the same. Without one this would be changed: {fix.message}",
        Severity.INFO,
        fix.node,
    )


def string_value(node: cst.CSTNode) -> str:
    """A literal's text; `{}` for each expression in an f-string."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else value.decode("latin-1")
    if isinstance(node, cst.ConcatenatedString):
        return string_value(node.left) + string_value(node.right)
    if isinstance(node, cst.FormattedString):
        return "".join(p.value if isinstance(p, cst.FormattedStringText) else "{}" for p in node.parts)
    return ""


def _check_parses(text: str) -> None:
    """Python's own parser is quick; libcst decides where this Python is older than the code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        try:
            cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            line = text.splitlines()[error.raw_line - 1 : error.raw_line] or [""]
            raise BrokenResultError(
                f"the result would not parse at line {error.raw_line}: {line[0].strip()}"
            ) from error


__all__ = ["Edit", "Finding", "Settings", "is_candidate", "migrate", "string_value"]
