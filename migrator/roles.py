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

from migrator.names import Binding, dotted

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


@dataclass(frozen=True)
class SinkKind:
    """What counts as a place that takes a device, or a backend.

    words        whole words (split at _ and at capitals) that say so in a variable, parameter or option name
    calls        qualified function → index of the positional argument that takes one
    methods      method name → index, on any receiver
    siblings     strings that only stand beside one: 'cpu' beside 'cuda'
    receivers    attribute or function names whose value is one
    """

    words: frozenset[str]
    calls: dict[str, int]
    methods: dict[str, int]
    siblings: frozenset[str]
    receivers: frozenset[str]


SINKS = {
    "device": SinkKind(
        words=frozenset({"device", "devices", "dev", "devs", "devicetype", "location"}),
        calls={
            "torch.device": 0, "torch.set_default_device": 0, "torch.autocast": 0, "torch.amp.autocast": 0,
            "torch.amp.autocast_mode.autocast": 0, "torch.amp.GradScaler": 0, "torch.amp.grad_scaler.GradScaler": 0,
            "torch.amp.is_autocast_available": 0, "torch.Generator": 0, "torch.load": 1, "torch.jit.load": 1,
            "torch.get_device_module": 0, "torch.Stream": 0, "torch.Event": 0, "torch.is_autocast_enabled": 0,
            "torch.set_autocast_enabled": 0, "torch.get_autocast_dtype": 0, "torch.set_autocast_dtype": 0,
            "torch.distributed.device_mesh.init_device_mesh": 0, "torch.distributed.init_device_mesh": 0,
            "torch.distributed.device_mesh.DeviceMesh": 0, "torch.distributed.DeviceMesh": 0,
        },
        methods={"to": 0, "cuda": 0, "pin_memory": 0, "set_device": 0, "to_device": 0, "get_device": 0},
        siblings=frozenset({"cpu", "mps", "npu", "xpu", "meta", "hpu", "mlu", "musa", "tpu"}),
        receivers=frozenset({"device", "device_type", "get_default_device", "current_accelerator", "get_device"}),
    ),
    "backend": SinkKind(
        words=frozenset({"backend", "backends", "communication"}),
        calls={
            "torch.distributed.init_process_group": 0, "torch.distributed.distributed_c10d.init_process_group": 0,
            "torch.distributed.Backend": 0, "torch.distributed.is_backend_available": 0,
        },
        methods={"init_process_group": 0, "init_distributed": 0},
        siblings=frozenset({"gloo", "mpi", "ucc", "hccl"}),
        receivers=frozenset({"get_backend", "backend", "get_default_backend_for_device"}),
    ),
}  # fmt: skip

_LOGGERS = frozenset(
    [
        "print",
        "warn",
        "warning",
        "info",
        "debug",
        "error",
        "critical",
        "exception",
        "log",
        "echo",
        "secho",
        "write",
        "fail",
        "skip",
        "skipif",
        "xfail",
        "print_rank_0",
        "log_rank_0",
        "writelines",
        "set_description",
        "set_postfix",
        "set_description_str",
        "add_text",
    ]
)
_PATHS = frozenset({"join", "Path", "open", "joinpath", "exists", "isdir", "isfile", "listdir", "makedirs", "glob"})
_DEFAULTED = frozenset({"get", "getenv", "pop", "setdefault", "getattr"})
_STRING_METHODS = frozenset(
    [
        "startswith",
        "endswith",
        "replace",
        "split",
        "rsplit",
        "strip",
        "lstrip",
        "rstrip",
        "removeprefix",
        "removesuffix",
        "find",
        "index",
        "count",
        "partition",
    ]
)
_PASS_THROUGH = frozenset(
    {"str", "list", "tuple", "set", "frozenset", "sorted", "cycle", "iter", "reversed", "Choice", "param"}
)
_OPTION_CALLS = re.compile(r"^(add_argument|option|Option|argument|Argument|DEFINE_\w+|add_arg|hp_choice)$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HELP = frozenset(
    {
        "help",
        "description",
        "doc",
        "msg",
        "message",
        "title",
        "label",
        "name",
        "reason",
        "metavar",
        "epilog",
        "usage",
    }
)
MAX_DEPTH = 6


def words_of(name: str) -> set[str]:
    """`gpuDevice_type` → {gpu, device, type}."""
    return {word.lower() for word in _WORD.findall(name)}


class Roles:
    """The roles of one file's strings."""

    def __init__(self, file: FileContext) -> None:
        self._file, self._tree, self._names = file, file.tree, file.names
        self._busy: set[tuple[cst.CSTNode | str, str]] = set()

    def of(self, node: cst.CSTNode, sink: str) -> Verdict:
        """What the value of an expression is used as."""
        return self._value(node, sink, 0)

    # --- names say it ---------------------------------------------------------------------------------------

    def _says(self, name: str, sink: str) -> bool:
        """Whether a variable, parameter or option of this name holds a device: by its words, or as the repo uses it."""
        words = words_of(name)
        if words & SINKS[sink].words and not words & {
            "count",
            "num",
            "name",
            "names",
            "map",
            "msg",
            "ids",
            "idx",
            "index",
        }:
            return True
        if sink == "device" and name in {"map_location", "device_map", "device_name"}:
            return True
        return self._file.project.reaches(sink, name.replace("-", "_").lstrip("_"))

    def is_sink(self, node: cst.CSTNode, sink: str, depth: int = 0) -> bool:
        """Whether an expression's value is a device (or backend), or its text."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, cst.Attribute):
            if node.attr.value == "type":
                return sink == "device" and self.is_sink(node.value, sink, depth + 1)
            return node.attr.value in SINKS[sink].receivers or self._says(node.attr.value, sink)
        if isinstance(node, cst.Call):
            return self._call_gives_sink(node, sink, depth)
        if isinstance(node, cst.Subscript):
            key = self._subscript_text(node)
            return (key is not None and self._says(key, sink)) or self.is_sink(node.value, sink, depth + 1)
        if isinstance(node, cst.Name):
            return self._says(node.value, sink) or any(
                self._binding_is_sink(binding, sink, depth) for binding in self._names.bindings_of(node)
            )
        if isinstance(node, (cst.IfExp, cst.BooleanOperation)):
            parts = (node.body, node.orelse) if isinstance(node, cst.IfExp) else (node.left, node.right)
            return any(self.is_sink(part, sink, depth + 1) for part in parts)
        return False

    def _call_gives_sink(self, node: cst.Call, sink: str, depth: int) -> bool:
        function = self._names.resolve(node.func)
        if function == "torch.device" or (sink == "backend" and function == "torch.distributed.get_backend"):
            return function == "torch.device" if sink == "device" else True
        name = _last(node.func)
        if name == "str" and node.args:
            return self.is_sink(node.args[0].value, sink, depth + 1)
        if name in {"lower", "strip", "split", "upper", "format"} and isinstance(node.func, cst.Attribute):
            return self.is_sink(node.func.value, sink, depth + 1)
        if name in _DEFAULTED:
            return any(self._says(key, sink) for key in _texts(node))
        return name in SINKS[sink].receivers or bool(words_of(name) & SINKS[sink].words and "get" in words_of(name))

    def _binding_is_sink(self, binding: Binding, sink: str, depth: int) -> bool:
        key = (binding.node, sink + ":is")
        if key in self._busy or binding.value is None:
            return False
        self._busy.add(key)
        try:
            return self.is_sink(binding.value, sink, depth + 1)
        finally:
            self._busy.discard(key)

    @staticmethod
    def _subscript_text(node: cst.Subscript) -> str | None:
        index = node.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
            text = index.value.evaluated_value
            return text if isinstance(text, str) else None
        return None

    # --- where a value goes -----------------------------------------------------------------------------------

    def _value(self, node: cst.CSTNode, sink: str, depth: int) -> Verdict:
        parent = self._tree.parents.get(node)
        if parent is None or depth > MAX_DEPTH * 4:
            return Verdict(Role.UNKNOWN, "its use cannot be followed")
        if (sibling := self._sibling(node, parent, sink)) is not None:
            return sibling
        climb = (
            cst.ConcatenatedString, cst.FormattedString, cst.FormattedStringExpression, cst.BooleanOperation,
            cst.Element, cst.Lambda, cst.Await, cst.StarredElement, cst.NamedExpr,
        )  # fmt: skip
        if isinstance(parent, cst.IfExp):
            if node is parent.test:
                return Verdict(Role.UNKNOWN, "it is only tested for truth")
            return self._value(parent, sink, depth + 1)
        if isinstance(parent, cst.NamedExpr):
            return self._first(self._goes_to(parent.target, sink, depth), self._value(parent, sink, depth + 1))
        if isinstance(parent, cst.BinaryOperation):
            return self._value(parent, sink, depth + 1)
        if isinstance(parent, climb) or isinstance(parent, (cst.List, cst.Tuple, cst.Set)):
            return self._value(parent, sink, depth + 1)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            return self._attribute(parent, sink, depth)
        if isinstance(parent, cst.Arg):
            return self._argument(parent, sink, depth)
        if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
            return self._comparison(node, parent, sink, depth)
        if isinstance(parent, (cst.Index, cst.Slice)):
            return Verdict(Role.KEY, "it is a subscript")
        if isinstance(parent, (cst.DictElement, cst.DictComp)):
            return self._dict(node, parent, sink, depth)
        if isinstance(parent, cst.Expr):
            return Verdict(Role.WORDS, "it is a docstring or bare text")
        if isinstance(parent, cst.Assert) and node is parent.msg:
            return Verdict(Role.WORDS, "it is a message")
        return self._target(node, parent, sink, depth)

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
            if match is not None and self.is_sink(match.subject, sink):
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

    def _sibling(self, node: cst.CSTNode, parent: cst.CSTNode, sink: str) -> Verdict | None:
        """`"cuda" if … else "cpu"`, `["cpu", "cuda"]`: what stands beside it says what it is."""
        beside: list[cst.CSTNode] = []
        if isinstance(parent, cst.IfExp) and node is not parent.test:
            beside = [parent.orelse if node is parent.body else parent.body]
        elif isinstance(parent, cst.BooleanOperation):
            beside = [parent.left, parent.right]
        elif isinstance(parent, cst.Element):
            container = self._tree.parents[parent]
            beside = [e.value for e in getattr(container, "elements", ())]
        for other in beside:
            if isinstance(other, cst.SimpleString) and other.evaluated_value in SINKS[sink].siblings:
                return Verdict(Role.SINK, f"it stands beside {other.value}")
            if isinstance(other, cst.Call) and self._names.resolve(other.func) == "torch.device" and sink == "device":
                return Verdict(Role.SINK, "it stands beside a torch.device")
        return None

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
        if any(self.is_sink(other, sink) for other in others):
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
                and self._says(key.evaluated_value, sink)
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
        function, name = self._names.resolve(call.func) or "", _last(call.func)
        if _OPTION_CALLS.match(name):
            return self._option(call, arg, sink)
        keyword = arg.keyword.value if arg.keyword else None
        if keyword is not None:
            return self._keyword_argument(call, keyword, name, sink, depth)
        index = call.args.index(arg)
        kind = SINKS[sink]
        if kind.calls.get(function) == index:
            return Verdict(Role.SINK, f"{function} takes it" + (" as a location" if function == "torch.load" else ""))
        if isinstance(call.func, cst.Attribute) and kind.methods.get(name) == index:
            return Verdict(Role.SINK, f".{name}() takes a {sink}")
        if name in _LOGGERS or name.endswith(("Error", "Exception", "Warning")):
            return Verdict(Role.WORDS, "it is a message")
        if name in {"getattr", "hasattr", "setattr", "delattr"} and index == 1:
            return Verdict(Role.NAME, "it is an attribute name")
        return self._other_call(call, function, name, index, sink, depth)

    def _other_call(self, call: cst.Call, function: str, name: str, index: int, sink: str, depth: int) -> Verdict:
        if name in _DEFAULTED and index >= 1:
            if any(self._says(key, sink) for key in _texts(call)):
                return Verdict(Role.SINK, "it is the default of a device setting")
            return self._value(call, sink, depth + 1)
        if name in {"get", "pop"} and index == 0:
            return Verdict(Role.KEY, "it is a key")
        if name in _STRING_METHODS and isinstance(call.func, cst.Attribute):
            if self.is_sink(call.func.value, sink):
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
            if index and any(self._says(n.strip(), sink) for n in names):
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
            if index < len(parameters):
                if self._says(parameters[index], sink):
                    return Verdict(Role.SINK, f"parameter {parameters[index]} of {name}() is a {sink}")
        if name in SINKS[sink].receivers or words_of(name) & SINKS[sink].words:
            return Verdict(Role.SINK, f"{name}() takes a {sink}")
        return Verdict(Role.UNKNOWN, f"what {name or 'the call'}() does with it is unknown")

    def _keyword_argument(self, call: cst.Call, keyword: str, name: str, sink: str, depth: int) -> Verdict:
        if self._says(keyword, sink):
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
        typer = _last(call.func) in {"Option", "Argument"}  # their first argument is the default
        names = [text.lstrip("-") for text in _texts(call) if not typer or text.startswith("-")]
        positional = call.args.index(arg) if keyword is None else -1
        absl = _last(call.func).startswith("DEFINE_")
        if keyword in _HELP or (absl and positional >= (3 if "enum" in _last(call.func) else 2)):
            return Verdict(Role.WORDS, "it is a help text")
        if keyword is None and not typer and not (absl and positional):
            return Verdict(Role.NAME, "it is an option's name")
        if keyword in {"dest", "action", "nargs", "metavar"}:
            return Verdict(Role.NAME, "it is an option's setting")
        dest = call_keyword_text(call, "dest")
        if any(self._says(name, sink) for name in (*names, dest or "")):
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
            if self._says(name, sink):
                return Verdict(Role.SINK, f"it becomes .{name}")
            return self._followed(
                name,
                [a for a in self._tree.all(cst.Attribute) if a.attr.value == name and a is not target],
                sink,
                depth,
            )
        if isinstance(target, cst.Subscript):
            key = self._subscript_text(target)
            if key is not None and self._says(key, sink):
                return Verdict(Role.SINK, f"it becomes [{key!r}]")
            if self.is_sink(target.value, sink):
                return Verdict(Role.SINK, "it becomes an entry of a device map")
            return Verdict(Role.UNKNOWN, "it becomes an entry of a container")
        if isinstance(target, cst.Name):
            name = target.value
            if self._says(name, sink):
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
        if self._says(name, sink) or words_of(name) & SINKS[sink].words:
            return Verdict(Role.SINK, f"{name}() gives a {sink}")
        calls = [c for c in self._tree.all(cst.Call) if _last(c.func) == name]
        return self._followed(name + "()", list(calls), sink, depth)


def _last(function: cst.BaseExpression) -> str:
    """The last name of what is called: `a.b.c(…)` → c."""
    if isinstance(function, cst.Attribute):
        return function.attr.value
    if isinstance(function, cst.Subscript):
        return _last(function.value)
    return function.value if isinstance(function, cst.Name) else ""


def _texts(call: cst.Call) -> list[str]:
    """The positional string arguments of a call."""
    values = [a.value.evaluated_value for a in call.args if a.keyword is None and isinstance(a.value, cst.SimpleString)]
    return [value for value in values if isinstance(value, str)]


def call_keyword_text(call: cst.Call, keyword: str) -> str | None:
    """The text of a keyword argument that is a plain string."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword and isinstance(arg.value, cst.SimpleString):
            text = arg.value.evaluated_value
            return text if isinstance(text, str) else None
    return None


__all__ = ["SINKS", "Role", "Roles", "SinkKind", "Verdict", "call_keyword_text", "dotted", "words_of"]
