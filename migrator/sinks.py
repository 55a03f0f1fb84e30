"""Places that take a device, or a communication backend, and expressions that hold one.

`torch.device(x)`, `device=x`, `t.to(x)` take a device; `x.device.type`, `args.device`, `str(dev)` and a variable
that is used as one hold it.  roles.py follows a string's value to such a place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from migrator.names import Binding

if TYPE_CHECKING:
    from migrator.context import FileContext


@dataclass(frozen=True)
class SinkKind:
    """What counts as a place that takes a device, or a backend.

    words        whole words (split at _ and at capitals) that say so in a variable, parameter or option name
    names        whole names that say so
    calls        qualified function → index of the positional argument that takes one
    methods      method name → index, on any receiver
    siblings     strings that only stand beside one: 'cpu' beside 'cuda'
    receivers    attribute or function names whose value is one
    """

    words: frozenset[str]
    names: frozenset[str]
    calls: dict[str, int]
    methods: dict[str, int]
    siblings: frozenset[str]
    receivers: frozenset[str]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FIRST_ARGUMENT = _set(
    "torch.device torch.set_default_device torch.autocast torch.amp.autocast torch.amp.autocast_mode.autocast "
    "torch.amp.GradScaler torch.amp.grad_scaler.GradScaler torch.amp.is_autocast_available torch.Generator "
    "torch.get_device_module torch.Stream torch.Event torch.is_autocast_enabled torch.set_autocast_enabled "
    "torch.get_autocast_dtype torch.set_autocast_dtype torch.distributed.init_device_mesh "
    "torch.distributed.device_mesh.init_device_mesh torch.distributed.device_mesh.DeviceMesh "
    "torch.distributed.DeviceMesh"
)
SINKS = {
    "device": SinkKind(
        words=_set("device devices dev devs devicetype location"),
        names=_set("map_location device_map device_name"),
        calls={**dict.fromkeys(_FIRST_ARGUMENT, 0), "torch.load": 1, "torch.jit.load": 1},
        methods=dict.fromkeys(_set("to cuda pin_memory set_device to_device get_device"), 0),
        siblings=_set("cpu mps npu xpu meta hpu mlu musa tpu"),
        receivers=_set("device device_type get_default_device current_accelerator get_device"),
    ),
    "backend": SinkKind(
        words=_set("backend backends communication"),
        names=frozenset(),
        calls=dict.fromkeys(
            _set(
                "torch.distributed.init_process_group torch.distributed.distributed_c10d.init_process_group "
                "torch.distributed.Backend torch.distributed.is_backend_available"
            ),
            0,
        ),
        methods={"init_process_group": 0, "init_distributed": 0},
        siblings=_set("gloo mpi ucc hccl"),
        receivers=_set("get_backend backend get_default_backend_for_device"),
    ),
}
# `device_count` counts devices, `device_ids` lists integers: they hold none.
_ABOUT_A_DEVICE = _set("count num name names map msg ids idx index")
# Calls that name what a value is for: the default of `get("device", …)`, what `setattr(x, "device", …)` sets.
WITH_DEFAULT = _set("get getenv pop setdefault getattr setattr __setattr__ setitem")
_SAME_TEXT = _set("lower strip split upper format")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
MAX_DEPTH = 6


def words_of(name: str) -> set[str]:
    """`gpuDevice_type` → {gpu, device, type}."""
    return {word.lower() for word in _WORD.findall(name)}


class Sinks:
    """Which names and expressions of one file hold a device or a backend."""

    def __init__(self, file: FileContext) -> None:
        self._file, self._names = file, file.names
        self._busy: set[tuple[cst.CSTNode, str]] = set()

    def named(self, name: str, sink: str) -> bool:
        """Whether a variable, parameter, key or option of this name is one: by its words, or as the repo uses it."""
        words, kind = words_of(name), SINKS[sink]
        if name in kind.names or (words & kind.words and not words & _ABOUT_A_DEVICE):
            return True
        return self._file.project.reaches(sink, name.replace("-", "_").lstrip("_"))

    def holds(self, node: cst.CSTNode, sink: str, depth: int = 0) -> bool:
        """Whether an expression's value is a device (or backend), or its text."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, cst.Attribute):
            if node.attr.value == "type":
                return sink == "device" and self.holds(node.value, sink, depth + 1)
            return node.attr.value in SINKS[sink].receivers or self.named(node.attr.value, sink)
        if isinstance(node, cst.Call):
            return self._given_by(node, sink, depth)
        if isinstance(node, cst.Subscript):
            key = subscript_text(node)
            return (key is not None and self.named(key, sink)) or self.holds(node.value, sink, depth + 1)
        if isinstance(node, cst.Name):
            return self.named(node.value, sink) or any(
                self._bound(binding, sink, depth) for binding in self._names.bindings_of(node)
            )
        if isinstance(node, cst.IfExp):
            return any(self.holds(part, sink, depth + 1) for part in (node.body, node.orelse))
        if isinstance(node, cst.BooleanOperation):
            return any(self.holds(part, sink, depth + 1) for part in (node.left, node.right))
        return False

    def _given_by(self, call: cst.Call, sink: str, depth: int) -> bool:
        function = self._names.resolve(call.func)
        if function in ("torch.device", "torch.distributed.get_backend"):
            return (function == "torch.device") == (sink == "device")
        name = last_name(call.func)
        if name == "str" and call.args:
            return self.holds(call.args[0].value, sink, depth + 1)
        if name in _SAME_TEXT and isinstance(call.func, cst.Attribute):
            return self.holds(call.func.value, sink, depth + 1)
        if name in WITH_DEFAULT:
            return any(self.named(key, sink) for key in positional_texts(call))
        words = words_of(name)
        return name in SINKS[sink].receivers or bool(words & SINKS[sink].words and "get" in words)

    def _bound(self, binding: Binding, sink: str, depth: int) -> bool:
        key = (binding.node, sink)
        if key in self._busy or binding.value is None:
            return False
        self._busy.add(key)
        try:
            return self.holds(binding.value, sink, depth + 1)
        finally:
            self._busy.discard(key)


def subscript_text(node: cst.Subscript) -> str | None:
    """The key of `x["key"]`, where it is a plain string."""
    index = node.slice[0].slice
    if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
        text = index.value.evaluated_value
        return text if isinstance(text, str) else None
    return None


def last_name(function: cst.BaseExpression) -> str:
    """The last name of what is called: `a.b.c(…)` → c."""
    if isinstance(function, cst.Attribute):
        return function.attr.value
    if isinstance(function, cst.Subscript):
        return last_name(function.value)
    return function.value if isinstance(function, cst.Name) else ""


def positional_texts(call: cst.Call) -> list[str]:
    """The positional arguments of a call that are plain strings."""
    values = [a.value.evaluated_value for a in call.args if a.keyword is None and isinstance(a.value, cst.SimpleString)]
    return [value for value in values if isinstance(value, str)]


def keyword_text(call: cst.Call, keyword: str) -> str | None:
    """The text of a keyword argument that is a plain string."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword and isinstance(arg.value, cst.SimpleString):
            text = arg.value.evaluated_value
            return text if isinstance(text, str) else None
    return None
