"""Loads rule files by path, selects rules, and builds the dispatch table and the byte prefilter from them."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from migrator.rule import Handler, Rule

_HERE = Path(__file__).parent
RULES_DIR = next(d for d in (_HERE / "rules", _HERE.parent / "rules") if d.is_dir())
_IDENTIFIER = re.compile(rb"\w+")
_ID = re.compile(r"[A-Z]{3,8}\d{3}")


class RegistryError(ValueError):
    """A rule file does not load, or breaks the contract."""


class SelectionError(ValueError):
    """A selected rule id, name or tag does not exist."""


@dataclass(frozen=True)
class Registry:
    """The loaded rules, sorted by id."""

    rules: tuple[Rule, ...]

    def __getitem__(self, key: str) -> Rule:
        """A rule by id or name (any case); KeyError if there is none."""
        for rule in self.rules:
            if key.lower() in (rule.id.lower(), rule.name):
                return rule
        raise KeyError(key)

    def select(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
        """The ids of the rules to run.  Words are ids, id prefixes (NPU3), names or tags."""
        chosen = [rule for rule in self.rules if rule.default]
        if select := list(select):
            chosen = [rule for word in select for rule in self._meant(word)]
            # What answers to the changes of others (the import of torch_npu) is part of each of them.
            chosen += [rule for rule in self.rules if any(handler.kind == "change" for handler in rule.handlers)]
        dropped = {rule.id for word in ignore for rule in self._meant(word)}
        return frozenset(rule.id for rule in chosen if rule.id not in dropped)

    def _meant(self, word: str) -> list[Rule]:
        if word.lower() == "all":
            return list(self.rules)
        found = [r for r in self.rules if word.lower() == r.name or word.lower() in r.tags]
        if not found and re.fullmatch(r"[A-Za-z]{3,8}\d{0,3}", word):
            found = [rule for rule in self.rules if rule.id.startswith(word.upper())]
        if not found:
            known = {word for rule in self.rules for word in (rule.id, rule.name, *rule.tags)}
            near = difflib.get_close_matches(word, sorted(known), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `npu-migrate rules` lists them all"
            raise SelectionError(f"no rule, name or tag {word!r}{hint}")
        return found

    @cached_property
    def table(self) -> dict[str, dict[str, list[tuple[Rule, Handler]]]]:
        """Handlers by kind and pattern: what the engine dispatches on.  The user's own rules are asked first."""
        found: dict[str, dict[str, list[tuple[Rule, Handler]]]] = defaultdict(lambda: defaultdict(list))
        for rule in sorted(self.rules, key=lambda rule: rule.id.startswith("NPU")):
            for handler in rule.handlers:
                for pattern in handler.patterns or ("",):
                    found[handler.kind][pattern].append((rule, handler))
        return found

    def prefilter(self, enabled: frozenset[str]) -> Prefilter:
        """Whether an enabled rule could find something in the bytes of a file."""
        handlers = [handler for rule in self.rules if rule.id in enabled for handler in rule.handlers]
        anywhere = {word.lower() for handler in handlers if handler.kind == "string" for word in handler.words}
        named = {word for handler in handlers if handler.kind != "string" for word in handler.words}
        return Prefilter(
            names=frozenset(word.encode() for word in named if word.isidentifier()),
            phrases=tuple(sorted(word.encode() for word in named if not word.isidentifier())),
            anywhere=tuple(sorted(word.encode() for word in anywhere)),
        )


@dataclass(frozen=True)
class Prefilter:
    """The words without which no rule finds anything: what keeps most files from being parsed.

    names     whole identifiers, as written
    phrases   any other text, as written
    anywhere  words of strings: in any case, also inside others
    """

    names: frozenset[bytes]
    phrases: tuple[bytes, ...]
    anywhere: tuple[bytes, ...]

    def __call__(self, raw: bytes) -> bool:
        """Whether one of the words is there."""
        if not self.names.isdisjoint(_IDENTIFIER.findall(raw)) or any(phrase in raw for phrase in self.phrases):
            return True
        lowered = raw.lower()
        return any(word in lowered for word in self.anywhere)


def load(rules_dirs: Sequence[Path | str] = ()) -> Registry:
    """The built-in rules and those of further folders; RegistryError names the file that is wrong."""
    return _load(tuple(str(d) for d in rules_dirs))


@cache
def _load(rules_dirs: tuple[str, ...]) -> Registry:
    files = sorted(RULES_DIR.glob("*.py"))
    for folder in rules_dirs:
        if not Path(folder).is_dir():
            raise RegistryError(f"{folder}: no such folder of rule files")
        files += sorted(p for p in Path(folder).glob("*.py") if not p.name.startswith("_"))
    rules: dict[str, tuple[Rule, Path]] = {}
    for path in files:
        rule = _load_file(path)
        for other, where in rules.values():
            if rule.id == other.id or rule.name == other.name:
                raise RegistryError(f"{path}: rule {rule.id} ({rule.name}) has the id or name of the rule in {where}")
        rules[rule.id] = (rule, path)
    return Registry(tuple(rules[key][0] for key in sorted(rules)))


def _load_file(path: Path) -> Rule:
    spec = importlib.util.spec_from_file_location(f"migrator.rules.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise RegistryError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RegistryError(f"{path}: {type(error).__name__}: {error}") from error
    rule = getattr(module, "rule", None)
    if not isinstance(rule, Rule):
        raise RegistryError(f"{path}: a rule file binds `rule = Rule(…)`")
    if not _ID.fullmatch(rule.id):
        raise RegistryError(f"{path}: rule id {rule.id!r} is not letters and three digits, such as NPU201")
    if not module.__doc__:
        raise RegistryError(f"{path}: the file's docstring must say why the rule exists")
    rule.doc = inspect.cleandoc(module.__doc__)
    return rule
