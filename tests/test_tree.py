"""Spans and parents, against libcst's own (slow) position provider as the oracle."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesmith import from_grammar
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

from migrator.source import decode
from migrator.tree import SpanError, Tree

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "migrator" / f"{name}.py" for name in ("names", "engine", "roles", "source", "diff", "run")]
AWKWARD = [
    "x = 1\f\ny = 2\rz = (3)\n  ",
    "\fx = 1\n",
    "if a:\r\n\tb('cuda')  # d\r\n\t\f\r\n",
    "",
    "\n\n",
    "a",
    "def f():\n    pass\n    # comment",
    "x = (  # one\n    a.b  # two\n    .c\n)\n",
    "x = f'{a!r:>{width}} {b}' 'tail'\n",
    "é = 'ü'; ß = é\n",
    "@d\nasync def f(*, a: int = 1) -> None: ...\n",
    "match x:\n    case {'a': [1, *_]}: pass\n",
]


def names(tree: Tree) -> list[cst.Name | cst.SimpleString]:
    return [*tree.all(cst.Name), *tree.all(cst.SimpleString)]


@pytest.mark.parametrize("text", AWKWARD)
def test_tokens_stand_where_the_spans_say(text):
    source = decode(text.encode())
    tree = Tree(source)
    for node in names(tree):
        start, end = tree.span(node)
        assert source.parse_text[start:end] == node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_spans_equal_the_position_provider(path):
    source = decode(path.read_bytes())
    tree = Tree(source)
    wrapper = MetadataWrapper(tree.module, unsafe_skip_copy=True)
    positions, parents = wrapper.resolve(PositionProvider), wrapper.resolve(ParentNodeProvider)
    checked = 0
    for node, where in positions.items():
        if node not in tree.parents or isinstance(node, (cst.BaseSuite, cst.Annotation)):
            continue
        assert tree.parents[node] is parents[node]
        start, end = tree.span(node)
        expected = (where.start.line, where.start.column + 1, where.end.line, where.end.column + 1)
        assert (*source.position(start), *source.position(end)) == expected, type(node)
        checked += 1
    assert checked > 100


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(from_grammar())
def test_any_module(text):
    try:
        tree = Tree(decode(text.encode()))
    except (cst.ParserSyntaxError, ValueError, RecursionError):
        return
    for node in names(tree):
        try:
            start, end = tree.span(node)
        except SpanError:
            continue
        assert tree.source.parse_text[start:end] == node.value


def test_import_statements_hold_no_expressions():
    tree = Tree(decode(b"import a.b as c\nfrom .d.e import f as g\n"))
    assert not tree.all(cst.Name) and not tree.all(cst.Attribute)
    assert [tree.text(alias) for alias in tree.all(cst.ImportAlias)] == ["a.b as c", "f as g"]
