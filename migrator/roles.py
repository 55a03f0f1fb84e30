"""What is this string for?  A device, a communication backend, or just a word that contains `cuda`.

A string's role is decided by where its value goes, not by its spelling: the expression around it is climbed
to a call argument, a target, a comparison, a default …; names are followed through the file to where they
are used, and attributes, options and parameters through the repository (project.py).  Only when nothing
decides does the spelling count, and then as UNKNOWN: a guess is for a person to confirm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import libcst as cst

from migrator import siblings
from migrator.sinks import (
    MAX_DEPTH,
    SINKS,
    WITH_DEFAULT,
    Sinks,
    keyword_text,
    last_name,
    positional_texts,
    subscript_text,
    words_of,
)

if TYPE_CHECKING:
    from migrator.context import FileContext


class Role(Enum):
    """What a string's value is used as."""

    SINK = "sink"  # a device (or, asked for backends, a backend): it reaches a place that takes one
    KEY = "key"  # a dictionary key or subscript: a name inside the program
    WORDS = "words"  # for people: message, log line, docstring, help text
    NAME = "name"  # an attribute, option or file name
    COMPARED = "compared"  # compared with something that is no known device
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """A role, and for a comparison the node of the whole test."""

    role: Role
    why: str
    test: cst.CSTNode | None = None

    @property
    def is_sink(self) -> bool:
        """Whether the string surely is a device (or backend)."""
        return self.role is Role.SINK


_LOGGERS = frozenset(
    "print warn warning info debug error critical exception log echo secho write fail skip skipif xfail "
    "print_rank_0 log_rank_0 writelines set_description set_postfix set_description_str add_text".split()
)
_PATHS = frozenset("join Path open joinpath exists isdir isfile listdir makedirs glob".split())
_STRING_METHODS = frozenset(
    "startswith endswith replace split rsplit strip lstrip rstrip removeprefix removesuffix find index count "
    "partition".split()
)
_PASS_THROUGH = frozenset(
    "str list tuple set frozenset sorted cycle iter reversed Choice param ib attrib Field".split()
)  # fmt: skip
_OPTION_CALLS = re.compile(r"^(add_argument|option|Option|argument|Argument|DEFINE_\w+|add_arg|hp_choice)$")
_HELP = frozenset("help description doc msg message title label name reason metavar epilog usage".split())
# What passes the value on as it is.
_SAME_VALUE = (
    cst.ConcatenatedString, cst.FormattedString, cst.FormattedStringExpression, cst.BooleanOperation,
    cst.BinaryOperation, cst.Element, cst.StarredElement, cst.List, cst.Tuple, cst.Set, cst.Lambda, cst.Await,
)  # fmt: skip


class Roles:
    """The roles of one file's strings."""

    def __init__(self, file: FileContext) -> None:
        self._file, self._tree, self._names = file, file.tree, file.names
        self._sinks = Sinks(file)
        self._busy: set[tuple[str, str]] = set()

    def of(self, node: cst.CSTNode, sink: str) -> Verdict:
        """What the value of an expression is used as."""
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.FormattedStringExpression) and self._goes_on(parent):
                return Verdict(Role.NAME, "it is part of a longer word")
            if not isinstance(parent, (*_SAME_VALUE, cst.IfExp)):
                break
        return self._value(node, sink, 0)

    # --- where a value goes -----------------------------------------------------------------------------------

    def _value(self, node: cst.CSTNode, sink: str, depth: int) -> Verdict:
        parent = self._tree.parents.get(node)
        if parent is None or depth > MAX_DEPTH * 4:
            return Verdict(Role.UNKNOWN, "its use cannot be followed")
        if (beside := siblings.reason(self._file, node, sink)) is not None:
            return Verdict(Role.SINK, beside)
        if isinstance(parent, cst.IfExp):
            if node is parent.test:
                return Verdict(Role.UNKNOWN, "it is only tested for truth")
            return self._value(parent, sink, depth + 1)
        if isinstance(parent, cst.NamedExpr):
            return self._first(self._goes_to(parent.target, sink, depth), self._value(parent, sink, depth + 1))
        if isinstance(parent, _SAME_VALUE):
            return self._value(parent, sink, depth + 1)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            return self._attribute(parent, sink, depth)
        if isinstance(parent, cst.Arg):
            return self._argument(parent, sink, depth)
        if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
            return self._comparison(node, parent, sink, depth)
        if siblings.literal_values(self._file, node):
            return self._type(node, sink, depth)
        if isinstance(parent, (cst.Index, cst.Slice)):
            return Verdict(Role.KEY, "it is a subscript")
        if isinstance(parent, (cst.DictElement, cst.DictComp)):
            return self._dict(node, parent, sink, depth)
        if isinstance(parent, cst.Expr):
            return Verdict(Role.WORDS, "it is a docstring or bare text")
        if isinstance(parent, cst.Assert) and node is parent.msg:
            return Verdict(Role.WORDS, "it is a message")
        return self._target(node, parent, sink, depth)

    def _goes_on(self, expression: cst.FormattedStringExpression) -> bool:
        """Whether the text behind an f-string's expression continues the word: `{device}_time_total`."""
        whole = self._tree.parents[expression]
        if not isinstance(whole, cst.FormattedString):
            return False
        rest = whole.parts[list(whole.parts).index(expression) + 1 :]
        return (
            bool(rest)
            and isinstance(rest[0], cst.FormattedStringText)
            and re.match(r"[\w./-]", rest[0].value) is not None
        )

    def _target(self, node: cst.CSTNode, parent: cst.CSTNode, sink: str, depth: int) -> Verdict:
        if isinstance(parent, cst.Assign):
            return self._first(*(self._goes_to(t.target, sink, depth) for t in parent.targets))
        if isinstance(parent, cst.AnnAssign) and node is parent.value:
            return self._goes_to(parent.target, sink, depth)
        if isinstance(parent, cst.Param) and node is parent.default:
            return self._goes_to(parent.name, sink, depth)
        if isinstance(parent, (cst.For, cst.CompFor)) and node is parent.iter:
            return self._goes_to(parent.target, sink, depth)
        if isinstance(parent, cst.Return):
            return self._returned(parent, sink, depth)
        if isinstance(parent, cst.MatchValue):
            match = self._tree.enclosing(parent, cst.Match)
            if match is not None and self._sinks.holds(match.subject, sink):
                return Verdict(Role.SINK, "it is matched against a device", match)
            return Verdict(Role.COMPARED, "it is matched against something unknown", match)
        if isinstance(parent, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
            return self._value(parent, sink, depth + 1)
        return Verdict(Role.UNKNOWN, "its use cannot be followed")

    @staticmethod
    def _first(*verdicts: Verdict) -> Verdict:
        """The surest of several uses."""
        order = (Role.SINK, Role.KEY, Role.NAME, Role.WORDS, Role.COMPARED, Role.UNKNOWN)
        return min(verdicts, key=lambda v: order.index(v.role), default=Verdict(Role.UNKNOWN, "it is not used"))

    def _type(self, node: cst.CSTNode, sink: str, depth: int) -> Verdict:
        """A value that an annotation allows: what takes it is what is annotated."""
        annotation = self._tree.enclosing(node, cst.Annotation)
        parent = self._tree.parents[annotation] if annotation is not None else None
        if isinstance(parent, cst.Param):
            return self._goes_to(parent.name, sink, depth)
        if isinstance(parent, cst.AnnAssign):
            return self._goes_to(parent.target, sink, depth)
        return Verdict(Role.UNKNOWN, "it is part of a type")

    def _attribute(self, attribute: cst.Attribute, sink: str, depth: int) -> Verdict:
        """`"cuda:{}".format(i)`, `"a b".split()`: the value of the call is what is used."""
        call = self._tree.parents.get(attribute)
        if isinstance(call, cst.Call) and call.func is attribute:
            if attribute.attr.value == "join":
                return Verdict(Role.UNKNOWN, "it joins other strings")
            return self._value(call, sink, depth + 1)
        return Verdict(Role.UNKNOWN, "its use cannot be followed")

    def _comparison(self, node: cst.CSTNode, parent: cst.CSTNode, sink: str, depth: int) -> Verdict:
        if isinstance(parent, cst.ComparisonTarget):
            test = self._tree.parents[parent]
            assert isinstance(test, cst.Comparison)
            others: list[cst.BaseExpression] = [test.left]
        else:
            assert isinstance(parent, cst.Comparison)
            test, others = parent, [target.comparator for target in parent.comparisons]
        if any(self._is_mapping_with(other, node) for other in others):
            return Verdict(Role.KEY, "it is looked up among keys")
        if any(self._sinks.holds(other, sink) for other in others):
            return Verdict(
                Role.SINK,
                "it is compared with a device" if sink == "device" else "it is compared with a backend",
                test,
            )
        for other in others:
            if isinstance(other, (cst.List, cst.Tuple, cst.Set)) and any(
                isinstance(e.value, cst.SimpleString) and e.value.evaluated_value in SINKS[sink].siblings
                for e in other.elements
            ):
                return Verdict(Role.SINK, "it is looked up among devices", test)
        return Verdict(Role.COMPARED, "it is compared with something that need not be a device", test)

    def _is_mapping_with(self, other: cst.CSTNode, key: cst.CSTNode) -> bool:
        """Whether `key in other` asks a dictionary: the file also writes `other[key]`."""
        if not isinstance(key, cst.SimpleString) or not isinstance(other, (cst.Name, cst.Attribute)):
            return False
        text = self._tree.text(other)
        return any(
            subscript_text(subscript) == key.evaluated_value and self._tree.text(subscript.value) == text
            for subscript in self._tree.all(cst.Subscript)
        )

    def _dict(self, node: cst.CSTNode, parent: cst.CSTNode, sink: str, depth: int) -> Verdict:
        if isinstance(parent, cst.DictElement):
            whole = self._tree.parents[parent]
            if node is parent.key:
                found = self._value(whole, sink, depth + 1)
                location = found.is_sink and "location" in found.why
                return found if location else Verdict(Role.KEY, "it is a dictionary key")
            key = parent.key
            if (
                isinstance(key, cst.SimpleString)
                and isinstance(key.evaluated_value, str)
                and self._sinks.named(key.evaluated_value, sink)
            ):
                return Verdict(Role.SINK, f"it is the value of {key.value}")
            return self._value(whole, sink, depth + 1)
        return (
            Verdict(Role.KEY, "it is a dictionary key")
            if node is getattr(parent, "key", None)
            else self._value(parent, sink, depth + 1)
        )

    # --- call arguments -------------------------------------------------------------------------------------------

    def _argument(self, arg: cst.Arg, sink: str, depth: int) -> Verdict:
        call = self._tree.parents[arg]
        if isinstance(call, cst.ClassDef):
            return Verdict(Role.NAME, "it is a class argument")
        if not isinstance(call, cst.Call):
            return Verdict(Role.UNKNOWN, "its use cannot be followed")
        func, index = call.func, -1 if arg.keyword else call.args.index(arg)
        if index > 0 and last_name(func) == "partial":
            func, index = call.args[0].value, index - 1  # partial(f, "cuda") calls f("cuda")
        function, name = self._names.resolve(func) or "", last_name(func)
        if _OPTION_CALLS.match(name):
            return self._option(call, arg, sink)
        keyword = arg.keyword.value if arg.keyword else None
        if keyword is not None:
            return self._keyword_argument(call, keyword, name, sink, depth)
        kind = SINKS[sink]
        if kind.calls.get(function) == index:
            return Verdict(Role.SINK, f"{function} takes it" + (" as a location" if function == "torch.load" else ""))
        if isinstance(func, cst.Attribute) and kind.methods.get(name) == index:
            return Verdict(Role.SINK, f".{name}() takes a {sink}")
        if name in _LOGGERS or name.endswith(("Error", "Exception", "Warning")):
            return Verdict(Role.WORDS, "it is a message")
        if name in {"getattr", "hasattr", "setattr", "delattr"} and index == 1:
            return Verdict(Role.NAME, "it is an attribute name")
        return self._other_call(call, function, name, index, sink, depth)

    def _other_call(self, call: cst.Call, function: str, name: str, index: int, sink: str, depth: int) -> Verdict:
        if name in WITH_DEFAULT and index >= 1:
            if any(self._sinks.named(key, sink) for key in positional_texts(call)):
                return Verdict(Role.SINK, "it is the default of a device setting")
            return self._value(call, sink, depth + 1)
        if name in {"get", "pop"} and index == 0:
            return Verdict(Role.KEY, "it is a key")
        if name in _STRING_METHODS and isinstance(call.func, cst.Attribute):
            if self._sinks.holds(call.func.value, sink):
                return Verdict(Role.SINK, f"it is looked for in a {sink}'s text", call)
            return Verdict(Role.COMPARED, "it is looked for in another text", call)
        if name == "join" and isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.SimpleString):
            if call.func.value.evaluated_value == ":" and sink == "device":
                return Verdict(Role.SINK, "it is joined with an index")
            return self._value(call, sink, depth + 1)
        if name == "format" and isinstance(call.func, cst.Attribute):
            return self._value(call.func.value, sink, depth + 1)
        if name == "parametrize" and call.args and isinstance(call.args[0].value, cst.SimpleString):
            names = str(call.args[0].value.evaluated_value).split(",")
            if index and any(self._sinks.named(n.strip(), sink) for n in names):
                return Verdict(Role.SINK, "it is a test parameter for a device")
        if name in _PATHS:
            return Verdict(Role.NAME, "it is part of a path")
        if name in _PASS_THROUGH:
            return self._value(call, sink, depth + 1)
        if (
            sink == "device"
            and function.startswith("torch.")
            and not function.startswith(("torch.utils.", "torch.ops.", "torch._C."))
        ):
            return Verdict(Role.SINK, f"{function} takes it")
        for parameters in self._file.project.parameters(name):
            if index < len(parameters) and self._sinks.named(parameters[index], sink):
                return Verdict(Role.SINK, f"parameter {parameters[index]} of {name}() is a {sink}")
        if any(base.endswith("Enum") for base in self._file.project.bases.get(name, ())):
            return Verdict(Role.UNKNOWN, f"it is a value of {name}")
        if name in SINKS[sink].receivers or words_of(name) & SINKS[sink].words:
            return Verdict(Role.SINK, f"{name}() takes a {sink}")
        return Verdict(Role.UNKNOWN, f"what {name or 'the call'}() does with it is unknown")

    def _keyword_argument(self, call: cst.Call, keyword: str, name: str, sink: str, depth: int) -> Verdict:
        if self._sinks.named(keyword, sink):
            return Verdict(Role.SINK, f"it is the {'location' if keyword == 'map_location' else keyword} argument")
        if keyword in {"default", "default_factory", "choices", "iterable"} or (keyword == "type" and name == "option"):
            return self._value(call, sink, depth + 1)
        if keyword == "type" and self._names.resolve(call.func) == "torch.device":
            return Verdict(Role.SINK, "torch.device takes it")
        if keyword in _HELP:
            return Verdict(Role.WORDS, "it is a text for people")
        if name == "format" and isinstance(call.func, cst.Attribute):
            return self._value(call.func.value, sink, depth + 1)
        return Verdict(Role.UNKNOWN, f"what {name or 'the call'}({keyword}=) does with it is unknown")

    def _option(self, call: cst.Call, arg: cst.Arg, sink: str) -> Verdict:
        """Options of argparse, click, typer, absl: the value by the option's name, its help text never."""
        keyword = arg.keyword.value if arg.keyword else None
        typer = last_name(call.func) in {"Option", "Argument"}  # their first argument is the default
        names = [text.lstrip("-") for text in positional_texts(call) if not typer or text.startswith("-")]
        positional = call.args.index(arg) if keyword is None else -1
        absl = last_name(call.func).startswith("DEFINE_")
        if keyword in _HELP or (absl and positional >= (3 if "enum" in last_name(call.func) else 2)):
            return Verdict(Role.WORDS, "it is a help text")
        if keyword is None and not typer and not (absl and positional):
            return Verdict(Role.NAME, "it is an option's name")
        if keyword in {"dest", "action", "nargs", "metavar"}:
            return Verdict(Role.NAME, "it is an option's setting")
        dest = keyword_text(call, "dest")
        if any(self._sinks.named(name, sink) for name in (*names, dest or "")):
            return Verdict(Role.SINK, f"option {names[0] if names else dest} is a {sink}")
        if not names:
            parent = self._tree.parents.get(call)
            return (
                self._target(call, parent, sink, 0)
                if parent is not None
                else Verdict(Role.UNKNOWN, "its use is unknown")
            )
        return Verdict(Role.UNKNOWN, f"what option {names[0]} is for is unknown")

    # --- names and attributes that take the value ---------------------------------------------------------------

    def _goes_to(self, target: cst.CSTNode, sink: str, depth: int) -> Verdict:
        if isinstance(target, cst.Attribute):
            name = target.attr.value
            if self._sinks.named(name, sink):
                return Verdict(Role.SINK, f"it becomes .{name}")
            return self._followed(
                name,
                [a for a in self._tree.all(cst.Attribute) if a.attr.value == name and a is not target],
                sink,
                depth,
            )
        if isinstance(target, cst.Subscript):
            key = subscript_text(target)
            if key is not None and self._sinks.named(key, sink):
                return Verdict(Role.SINK, f"it becomes [{key!r}]")
            if self._sinks.holds(target.value, sink):
                return Verdict(Role.SINK, "it becomes an entry of a device map")
            return Verdict(Role.UNKNOWN, "it becomes an entry of a container")
        if isinstance(target, cst.Name):
            name = target.value
            if self._sinks.named(name, sink):
                return Verdict(Role.SINK, f"it becomes {name}")
            return self._followed(name, self._loads(target), sink, depth)
        return Verdict(Role.UNKNOWN, "its use cannot be followed")

    def _loads(self, target: cst.Name) -> list[cst.CSTNode]:
        parent = self._tree.parents.get(target)
        scope = self._names.scope_at(target)
        if isinstance(parent, cst.Param):
            function = self._tree.enclosing(parent, cst.FunctionDef, cst.Lambda)
            bindings = [b for s in self._names.scopes() if s.node is function for b in s.bindings.get(target.value, [])]
        else:
            bindings = scope.lookup(target.value)
        if not bindings:
            return []
        return [
            name
            for name in self._tree.all(cst.Name)
            if name.value == target.value and name is not target and self._names.is_use(name)
            and self._names.scope_at(name).lookup(name.value) is not None
            and any(b in bindings for b in self._names.scope_at(name).lookup(name.value))
        ]  # fmt: skip

    def _followed(self, name: str, uses: list[cst.CSTNode], sink: str, depth: int) -> Verdict:
        """Where the uses of a name take its value."""
        key = (name, sink)
        if depth > MAX_DEPTH or key in self._busy:
            return Verdict(Role.UNKNOWN, f"{name} leads in a circle")
        self._busy.add(key)
        try:
            for use in uses:
                found = self._value(use, sink, depth + 1)
                if found.is_sink and found.test is None:
                    return Verdict(Role.SINK, f"it becomes {name}, and {found.why}")
            return Verdict(Role.UNKNOWN, f"where {name} goes is unknown")
        finally:
            self._busy.discard(key)

    def _returned(self, node: cst.Return, sink: str, depth: int) -> Verdict:
        function = self._tree.enclosing(node, cst.FunctionDef)
        if function is None:
            return Verdict(Role.UNKNOWN, "its use cannot be followed")
        name = function.name.value
        if self._sinks.named(name, sink) or words_of(name) & SINKS[sink].words:
            return Verdict(Role.SINK, f"{name}() gives a {sink}")
        calls = [c for c in self._tree.all(cst.Call) if last_name(c.func) == name]
        return self._followed(name + "()", list(calls), sink, depth)
