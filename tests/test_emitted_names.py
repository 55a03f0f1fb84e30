"""Every torch_npu name that an example or a fixture comes out with exists in the version it was written for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from migrator import api, registry
from migrator.engine import Settings, migrate
from migrator.project import Project
from migrator.target import Target

TARGETS = ("2.1", "2.4.0", "2.7.1", "2.11.0", "2.14.0")
RULES = registry.load()
FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*/before"))


def npu_names(code: str) -> set[str]:
    """The torch_npu names that code spells, import aliases followed."""
    tree = ast.parse(code)
    known: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in known:
            found.add(".".join([known[node.id], *reversed(parts)]))
    return {name for name in found if name.startswith(("torch_npu.", "torch.npu.")) and not name.endswith(".*")}


def missing(before: str, after: str, target: str) -> list[str]:
    """Names that the migration wrote and that do not exist; below a class its data knows nothing."""
    return [
        name
        for name in sorted(npu_names(after) - npu_names(before))
        if not api.exists(name, target)
        and not (
            name.rpartition(".")[0].rpartition(".")[2][:1].isupper() and api.exists(name.rpartition(".")[0], target)
        )
        and not (name.rpartition(".")[0] + "." in ("torch_npu.npu.", "torch.npu.") and name.endswith(".npu"))
    ]


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
@pytest.mark.parametrize("target", TARGETS)
def test_examples(target, unsafe):
    settings = Settings(Target(target, None, "test"), RULES.select(["all"]), unsafe)
    wrong = {}
    for rule in RULES.rules:
        for number, example in enumerate(rule.examples):
            files = [("example.py", example.before.encode()), *((p, t.encode()) for p, t in example.files)]
            result = migrate(example.before.encode(), "example.py", settings, Project.scan(files))
            after = (result.after or example.before.encode()).decode()
            if found := missing(example.before, after, target):
                wrong[f"{rule.id}-{number}"] = found
            assert not any(d.rule == "NPU011" for d in result.diagnostics), result.diagnostics
    assert not wrong


@pytest.mark.parametrize("target", TARGETS)
def test_fixtures(target):
    settings = Settings(Target(target, None, "test"), RULES.select(), True)
    for folder in FIXTURES:
        files = [(p.relative_to(folder).as_posix(), p.read_bytes()) for p in sorted(folder.rglob("*.py"))]
        project = Project.scan(files)
        for path, raw in files:
            result = migrate(raw, path, settings, project)
            before, after = raw.decode("utf-8-sig"), (result.after or raw).decode("utf-8-sig")
            assert not missing(before, after, target), path
