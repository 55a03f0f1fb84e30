"""Every example of every rule is a test; so is the contract that rule files keep."""

from __future__ import annotations

import ast
import re

import pytest

from migrator import registry
from migrator.engine import Settings, is_candidate, migrate
from migrator.project import Project
from migrator.records import Status
from migrator.rule import Example, Rule
from migrator.target import Target

RULES = registry.load().rules
NEWEST = "2.14.0"
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.id}-{number}")
    for rule in RULES
    for number, example in enumerate(rule.examples)
]


def run(code: str, rule: Rule, example: Example):
    files = [("example.py", code.encode()), *((path, text.encode()) for path, text in example.files)]
    target = Target(example.target or NEWEST, None, "test")
    settings = Settings(
        target, frozenset({rule.id, "NPU100"} | {r.id for r in RULES if r.id in example_rules(rule)}), example.unsafe
    )
    return migrate(code.encode(), "example.py", settings, Project.scan(files)), settings


def example_rules(rule: Rule) -> set[str]:
    """An example shows one rule beside the core ones, as its reader will see it."""
    return {r.id for r in RULES if "core" in r.tags} | {rule.id}


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example) -> None:
    result, settings = run(example.before, rule, example)
    assert result.status is not Status.FAILED, result.error
    after = (result.after or example.before.encode()).decode()
    assert after == (example.before if example.after is None else example.after)
    left = [d for d in result.diagnostics if not d.fixed]
    assert len(left) == len(example.reports), [d.message for d in left]
    for words in example.reports:
        assert any(words in d.message for d in left), (words, [d.message for d in left])
    assert all(d.remedy for d in left), "every finding left for a person says what to do"
    ast.parse(after)
    if after != example.before or left:
        assert is_candidate(example.before.encode(), settings), "the prefilter would have passed the file over"
    again, _ = run(after, rule, example)
    assert again.after is None, "a second run changes nothing"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_contract(rule: Rule) -> None:
    assert re.fullmatch(r"NPU[1-9]\d\d", rule.id)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.title and not rule.title.endswith(".")
    assert rule.doc and rule.tags and rule.handlers
    assert rule.examples, "examples are the tests and the documentation"
    assert rule.docs.startswith("https://")
