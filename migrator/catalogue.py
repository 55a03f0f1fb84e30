"""The catalogue of rules for people and programs: one table of all, one page for each."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from migrator import diff
from migrator.faults import Fault
from migrator.records import Applicability
from migrator.rule import Example, Rule

_SAFETY = {
    Applicability.SAFE: "safe: the fix is applied by default",
    Applicability.UNSAFE: "unsafe: the fix is applied with --unsafe only; review it",
    Applicability.MANUAL: "manual: the rule reports, a person decides",
}


def table(rules: Sequence[Rule], width: int = 80) -> str:
    """One row a rule: id, name, how far its fix goes, why, tags."""
    name_width = max((len(rule.name) for rule in rules), default=0)
    lines = []
    for rule in rules:
        off = "" if rule.default else " (off by default)"
        head = f"{rule.id}  {rule.name:{name_width}}  {rule.applicability.value:6}  "
        why = f"{rule.title}{off}  [{', '.join(rule.tags)}]"
        lines += textwrap.wrap(
            why, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
    return "".join(f"{line}\n" for line in lines)


def table_json(rules: Sequence[Rule]) -> str:
    """The same as JSON, with all that a rule says of itself."""
    rows = [
        {
            "id": rule.id,
            "name": rule.name,
            "title": rule.title,
            "applicability": rule.applicability.value,
            "severity": rule.severity.value,
            "tags": list(rule.tags),
            "torch_npu": rule.torch_npu,
            "default": rule.default,
            "docs": rule.docs,
        }
        for rule in rules
    ]
    return json.dumps({"version": 1, "rules": rows}, indent=2) + "\n"


def page(entry: Rule | Fault, width: int = 80) -> str:
    """What, why, example, fix safety, versions and a link, as plain text."""
    parts = [f"{entry.id} {entry.name}\n{entry.title}", *_paragraphs(entry.doc, width)]
    if isinstance(entry, Rule):
        parts.append(
            f"Fix        {_SAFETY[entry.applicability]}\n"
            f"Severity   {entry.severity.value}\n"
            f"torch_npu  {entry.torch_npu}\n"
            f"Tags       {', '.join(entry.tags) or '-'}\n"
            f"Runs       {'by default' if entry.default else 'when selected: --select ' + entry.id}\n"
            f"Silence    # npu-migrate: ignore[{entry.id}] the reason\n"
            f"More       {entry.docs}"
        )
        parts += [f"Example {number}\n{_example(one)}" for number, one in enumerate(entry.examples, 1)]
    else:
        parts.append(f"Severity   {entry.severity.value}")
    return "\n\n".join(parts) + "\n"


def _paragraphs(doc: str, width: int) -> Iterator[str]:
    """The paragraphs of a docstring, wrapped; lists, code and tables as they are."""
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        lines = paragraph.splitlines()
        plain = all(re.match(r"[^\s\-*|`#]|`[^`]", line) for line in lines)
        yield textwrap.fill(paragraph, width, break_on_hyphens=False, break_long_words=False) if plain else paragraph


def _example(example: Example) -> str:
    """The change as a diff; code that stays as it is, with what is reported about it."""
    if example.after is None:
        shown = example.before
    else:
        shown = diff.body(example.before.encode(), example.after.encode()).decode()
    notes = [f"reported: {words}" for words in example.reports]
    if example.after is None and not example.reports:
        notes.append("not touched, not reported")
    if example.unsafe:
        notes.append("with --unsafe")
    if example.target:
        notes.append(f"for torch_npu {example.target}")
    lines = (f"  {line}".rstrip() for line in shown.rstrip("\n").split("\n"))
    return "\n".join(lines) + "".join(f"\n  ({note})" for note in notes)


_FAMILIES = {
    "1": "Devices and the CUDA API",
    "2": "Optimizers",
    "3": "Mixed precision",
    "4": "Streams, graphs and random state",
    "5": "Distributed training",
    "6": "Profiling and memory tools",
    "7": "Performance",
    "8": "Third-party packages",
    "9": "Environment and builds",
}


def markdown(rules: Sequence[Rule], faults: Sequence[Fault]) -> str:
    """The whole catalogue as one Markdown page, made from the rule files alone."""
    parts = ["# Rules\n\nMade from the rule files by `make docs`; edit those.\n"]
    for digit, title in _FAMILIES.items():
        family = [rule for rule in rules if rule.id[3] == digit]
        if family:
            rows = [f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {_reach(r)} | {r.title} |" for r in family]
            parts.append("\n".join([f"## {title}\n", "| id | name | fix | why |", "|---|---|---|---|", *rows]) + "\n")
            parts += [_section(rule) for rule in family]
    parts.append(
        "## The tool itself\n\n" + "\n".join(f"- **{f.id} {f.name}**: {f.title}. {f.doc}" for f in faults) + "\n"
    )
    return "\n".join(parts)


def _reach(rule: Rule) -> str:
    return rule.applicability.value + ("" if rule.default else ", off by default")


def _section(rule: Rule) -> str:
    shown = "\n\n".join(_example(example) for example in rule.examples)
    tags = ", ".join(rule.tags)
    return (
        f"### {rule.id} {rule.name}\n\n{rule.doc}\n\n"
        f"Fix: {_SAFETY[rule.applicability]}. torch_npu {rule.torch_npu}. Tags: {tags}. [More]({rule.docs})\n\n"
        f"```diff\n{textwrap.dedent(shown)}\n```\n"
    )


if __name__ == "__main__":
    from migrator import faults, registry

    print(markdown(registry.load().rules, faults.ALL), end="")
