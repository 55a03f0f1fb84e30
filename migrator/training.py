"""How a module trains: its optimizers, where they go, and everything that a fused optimizer cannot bear.

torch_npu's fused optimizers gather all parameters and gradients of a group in one buffer at the first step,
and from then on only touch the buffer.  Code that gives a parameter or its gradient new memory afterwards is
wrong with them, mostly without an error.  These are the facts of one file; migrator.fused puts those of a whole
program together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from migrator.syntax import Syntax

OPTIMIZERS = frozenset({
    "SGD", "Adam", "AdamW", "RMSprop", "Adadelta", "Lamb", "BertAdam", "AdamP", "RMSpropTF", "Adagrad",
    "FusedAdam", "FusedSGD", "FusedAdagrad", "FusedLAMB",
})  # fmt: skip
_FUSED = "NpuFused"
_WORDS = re.compile(r"optim|zero_grad|\.grad\b|requires_grad|def forward|clip_grad")
_OPTIMIZER_NAME = re.compile(r"\w*optim\w*|(\w+_)?opts?(_\w+|[A-Z0-9]\w*)?", re.IGNORECASE)
_OPTIONS = frozenset({"args", "opt", "opts", "options", "cfg", "config", "conf", "hparams", "params", "flags", "FLAGS"})
SCHEDULER = re.compile(r"schedul|LR$|Plateau|WarmRestarts", re.IGNORECASE)
_HARMLESS_CALLS = frozenset({"print", "len", "isinstance", "type", "id", "str", "repr", "hasattr"})
_HARMLESS_PARENTS = (
    ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp, ast.Expr, ast.FormattedValue, ast.Assert,
)  # fmt: skip
_HARMLESS_ATTRIBUTES = frozenset({
    "__class__", "defaults", "lr_scheduler", "param_groups", "state_dict", "step", "zero_grad",
})  # fmt: skip
# They take the optimizer into their own hands.
_FRAMEWORKS = frozenset({
    "accelerate", "apex", "catalyst", "colossalai", "composer", "deepspeed", "fairscale", "fastai", "horovod", "ignite",
    "lightning", "lightning_fabric", "opacus", "pytorch_lightning", "ray", "skorch", "torch_xla", "torchtnt",
})  # fmt: skip
_STRANGERS = {
    "GradScaler": "a GradScaler changes the gradients and skips steps",
    "FSDP": "FSDP moves parameters and gradients around",
    "FullyShardedDataParallel": "FSDP moves parameters and gradients around",
    "fully_shard": "FSDP moves parameters and gradients around",
    "ZeroRedundancyOptimizer": "ZeroRedundancyOptimizer splits the parameters among processes",
    "parallelize_module": "parallelize_module() makes the parameters DTensors",
    "distribute_module": "distribute_module() makes the parameters DTensors",
    "make_graphed_callables": "a captured graph keeps the old addresses of parameters",
    "CUDAGraph": "a captured graph keeps the old addresses of parameters",
    "NPUGraph": "a captured graph keeps the old addresses of parameters",
    "vector_to_parameters": "vector_to_parameters() gives parameters new memory",
    "share_memory": "share_memory() gives parameters new memory",
    "import_module": "modules that are imported by name cannot be followed",
    "__import__": "modules that are imported by name cannot be followed",
}
_PARAMETERS = {"parameters", "named_parameters"}
_OF_MODELS = {*_PARAMETERS, "state_dict", "train", "eval", "modules", "named_modules"}
_WIDE = {
    "bfloat16": "bfloat16", "BFloat16Tensor": "bfloat16",
    "float64": "float64", "double": "float64", "DoubleTensor": "float64",
}  # fmt: skip
# Keywords that matter when they are not False: (functions or None for all, reason).
_KEYWORDS: dict[str, tuple[frozenset[str] | None, str]] = {
    "sparse": (None, "sparse gradients are refused"),
    "create_graph": (frozenset({"backward"}), "backward(create_graph=True) puts each gradient into new memory"),
    "inputs": (frozenset({"backward"}), "backward(inputs=…) leaves parameters without a gradient"),
    "assign": (frozenset({"load_state_dict"}), "load_state_dict(assign=True) gives parameters new memory"),
    "gradient_as_bucket_view": (None, "gradient_as_bucket_view makes gradients views of DDP's own buffers"),
    "find_unused_parameters": (None, "find_unused_parameters tells of parameters without a gradient in some steps"),
}


@dataclass(frozen=True)
class Hazard:
    """Something that torch_npu's fused optimizers cannot bear.

    of      only the optimizer of this name; "": every one
    sure    it goes wrong, not only may
    kernel  torch's own optimizers with fused=True cannot bear it on an NPU either
    """

    reason: str
    line: int
    of: str = ""
    sure: bool = False
    kernel: bool = False


@dataclass(frozen=True)
class Flow:
    """An optimizer that gets another name.

    to      the new name; None where it is an argument
    call    the function that it is handed to
    place   its position among the arguments, or its keyword
    """

    of: str
    line: int
    to: str | None = None
    call: str = ""
    place: int | str = 0


@dataclass(frozen=True)
class Made:
    """A construction of an optimizer.

    name   what it is bound to; "": it is not bound to one name
    whole  whether its parameters are seen to be those of modules
    fused  whether it is one of torch_npu's
    """

    name: str
    line: int
    whole: bool
    fused: bool


@dataclass(frozen=True)
class Training:
    """The facts of one module.

    functions  function or class → the parameters (without self) of each definition of that name
    steps      the names whose step() is called
    zeroed     the receivers of zero_grad(), with the line
    clips      lines that clip the norm of gradients
    """

    functions: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    made: tuple[Made, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    flows: tuple[Flow, ...] = ()
    steps: frozenset[str] = frozenset()
    zeroed: tuple[tuple[str, int], ...] = ()
    clips: tuple[int, ...] = ()


@cache
def is_optimizer_name(name: str) -> bool:
    """Whether a variable of this name is taken for an optimizer."""
    return _OPTIMIZER_NAME.fullmatch(name) is not None


def read_training(syntax: Syntax) -> Training | None:
    """The facts of a parsed file; None where nothing in it trains."""
    return _Reader(syntax.nodes, syntax.parents).read() if _WORDS.search(syntax.text) else None


@dataclass
class _Reader:
    nodes: Sequence[ast.AST]
    parents: dict[ast.AST, ast.AST]
    functions: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)
    hazards: dict[tuple[str, str], Hazard] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    steps: set[str] = field(default_factory=set)
    zeroed: list[tuple[str, int]] = field(default_factory=list)
    clips: list[int] = field(default_factory=list)

    def read(self) -> Training:
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self._assigned: dict[str, list[ast.expr]] = {}
        for assign in self.nodes:
            if isinstance(assign, ast.Assign) and len(assign.targets) == 1:
                self._assigned.setdefault(last_name(assign.targets[0]), []).append(assign.value)
        for call in calls:
            self._construction(call)
        self._models = {_base(owner) for call in calls if (owner := _receiver(call, _OF_MODELS))} - {""}
        self._stepped: set[tuple[str, ast.AST | None]] = set()
        self._tracked = {one.name for one in self.made if one.name}
        for node in self.nodes:
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, (ast.Name, ast.Attribute)):
                self._name(node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
                self._branch(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._function(node)
        return Training(
            functions={name: tuple(found) for name, found in self.functions.items()},
            made=tuple(self.made),
            hazards=tuple(self.hazards.values()),
            flows=tuple(self.flows),
            steps=frozenset(self.steps),
            zeroed=tuple(self.zeroed),
            clips=tuple(self.clips),
        )

    def _hazard(self, reason: str, node: ast.AST, of: str = "", sure: bool = False, kernel: bool = False) -> None:
        self.hazards.setdefault((reason, of), Hazard(reason, getattr(node, "lineno", 1), of, sure, kernel))

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        cls = self.parents[node]
        name = cls.name if isinstance(cls, ast.ClassDef) and node.name == "__init__" else node.name
        self.functions.setdefault(name, []).append(parameter_names(node))

    # --- optimizers ---------------------------------------------------------------------------------------

    def _construction(self, call: ast.Call) -> None:
        name = last_name(call.func)
        fused = name.startswith(_FUSED)
        if name.removeprefix(_FUSED) not in OPTIMIZERS or not (call.args or call.keywords):
            return
        parent = self.parents[call]
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        bound = last_name(targets[0]) if len(targets) == 1 else ""
        first = call.args[0] if call.args else call.keywords[0].value
        sources = [first, *self._assigned.get(last_name(first), ())]
        whole = any(_receiver(inner, _PARAMETERS) for source in sources for inner in ast.walk(source))
        self.made.append(Made(bound, call.lineno, whole, fused))

    def _is_optimizer(self, node: ast.AST) -> bool:
        name = last_name(node)
        if name not in self._tracked and not is_optimizer_name(name):
            return False
        return not (isinstance(node, ast.Attribute) and last_name(node.value) in _OPTIONS)

    def _use(self, node: ast.Name | ast.Attribute) -> None:
        """A place where an optimizer is read: harmless, a flow, or out of sight."""
        name, parent = last_name(node), self.parents[node]
        if isinstance(parent, ast.Attribute):
            self._attribute(name, parent)
        elif isinstance(parent, ast.keyword):
            call = self.parents[parent]
            self._argument(name, node, call, parent.arg) if isinstance(call, ast.Call) else None
        elif isinstance(parent, ast.Call) and node in parent.args:
            self._argument(name, node, parent, parent.args.index(node))
        elif isinstance(parent, ast.Assign):
            self.flows += [Flow(name, node.lineno, last_name(target)) for target in parent.targets]
        elif isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
            self.flows.append(Flow(name, node.lineno, last_name(parent.target)))
        elif not isinstance(parent, _HARMLESS_PARENTS):
            outer = self.parents[parent] if isinstance(parent, ast.Tuple) else parent
            how = "is returned" if isinstance(outer, (ast.Return, ast.Yield)) else "is put in a container"
            self._hazard(f"{name} {how}, where it is not followed", node, name)

    def _attribute(self, name: str, attribute: ast.Attribute) -> None:
        call = self.parents[attribute]
        called = isinstance(call, ast.Call) and call.func is attribute
        arguments = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) and called else []
        if attribute.attr == "step" and called and not arguments:
            self.steps.add(name)
        elif attribute.attr == "step" and called:
            self._hazard(f"{name}.step() with a closure computes no gradients", attribute, name, sure=True)
        elif attribute.attr == "step":
            self._hazard(f"{name}.step is called by someone else", attribute, name)
        elif attribute.attr == "zero_grad" and any(not _is_false(argument) for argument in arguments):
            self._hazard(f"{name}.zero_grad(set_to_none=…) is refused", attribute, name, sure=True)
        elif attribute.attr == "load_state_dict":
            self._hazard(f"{name}.load_state_dict() is ignored after the first step", attribute, name)
        elif attribute.attr == "add_param_group":
            self._hazard(f"{name}.add_param_group() fails after the first step", attribute, name)
        elif attribute.attr not in _HARMLESS_ATTRIBUTES and not attribute.attr[:1].isupper():
            self._hazard(f"{name}.{attribute.attr} is used", attribute, name)

    def _argument(self, name: str, node: ast.expr, call: ast.Call, place: int | str | None) -> None:
        function = last_name(call.func)
        if function in _HARMLESS_CALLS or self._is_scheduler_base(call):
            return
        if place is None:
            self._hazard(f"{name} is put in a container, where it is not followed", node, name)
        else:
            self.flows.append(Flow(name, node.lineno, call=function, place=place))

    def _is_scheduler_base(self, call: ast.Call) -> bool:
        """`super().__init__(optimizer)` in a learning rate scheduler of the user's."""
        cls = next((a for a in self._around(call) if isinstance(a, ast.ClassDef)), None)
        bases = cls.bases if cls is not None and last_name(call.func) == "__init__" else []
        return any(SCHEDULER.search(last_name(base)) for base in bases)

    # --- everything else ----------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> None:
        function = last_name(call.func)
        for keyword in call.keywords:
            functions, reason = _KEYWORDS.get(keyword.arg or "", (frozenset(), ""))
            if reason and (functions is None or function in functions) and not _is_false(keyword.value):
                self._hazard(reason, keyword.value, kernel=keyword.arg == "sparse")
        if not isinstance(call.func, ast.Attribute):
            return
        receiver = call.func.value
        if function == "zero_grad":
            self.zeroed.append((last_name(receiver) or ast.unparse(receiver), call.lineno))
        elif function in {"clip_grad_norm_", "clip_grad_norm"}:
            self.clips.append(call.lineno)
        elif function == "requires_grad_":
            self._hazard("requires_grad_() can give a parameter its first gradient late", call)
        elif function == "compile" and last_name(receiver) == "torch":
            self._hazard("torch.compile keeps the old addresses of parameters", call)
        elif function == "backward":
            self._backward(call)
        elif function == "step" and not call.args:
            self._step(call)
        elif function == "load_state_dict" and isinstance(receiver, ast.Call) and last_name(receiver.func) == "getattr":
            self._hazard("what getattr() finds is loaded: it may be an optimizer", call)
        elif function in _WIDE or (function in {"cpu", "half", "float", "to"} and _base(receiver) in self._models):
            self._move(call, function)

    def _step(self, call: ast.Call) -> None:
        """Steps at several places of a function: their losses may reach different parameters."""
        name = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        function = next((a for a in self._around(call) if isinstance(a, (ast.FunctionDef, ast.Module))), None)
        if (name, function) in self._stepped:
            self._hazard(f"{name}.step() is called at several places of one function", call, name)
        self._stepped.add((name, function))

    def _move(self, call: ast.Call, function: str) -> None:
        """Calls that give the parameters of a model new memory; moving it to where it is does not."""
        shown = ast.unparse(call)
        if function in _WIDE:
            self._hazard(
                f"{shown}: {_WIDE[function]} parameters are refused", call, kernel=_WIDE[function] == "float64"
            )
        elif function != "to" or re.search(r"cpu|half|float|dtype", shown):
            self._hazard(f"{shown} gives its parameters new memory", call)

    def _name(self, node: ast.Name | ast.Attribute) -> None:
        name = last_name(node)
        if not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute):
                self._store(node)
            return
        if name in _STRANGERS and not isinstance(self.parents[node], ast.ClassDef):
            self._hazard(_STRANGERS[name], node, kernel=name == "GradScaler")
        elif name in _WIDE and isinstance(node, ast.Attribute) and last_name(node.value) == "torch":
            if not any(isinstance(a, ast.Call) and "autocast" in last_name(a.func) for a in self._around(node)):
                self._hazard(f"{_WIDE[name]} parameters are refused", node, kernel=_WIDE[name] == "float64")
        elif self._is_optimizer(node):
            self._use(node)

    def _store(self, node: ast.Attribute) -> None:
        shown = ast.unparse(node)
        if node.attr == "grad":
            self._hazard(f"{shown} is given another tensor", node)
        elif node.attr == "requires_grad":
            self._hazard(f"{shown} changes which parameters get gradients", node)
        elif node.attr == "data" and last_name(node.value) != "self":
            self._hazard(f"{shown} is given another tensor", node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            own = node.level or node.module == "apex.optimizers"  # which is rewritten, and says nothing itself
            packages = [] if own else [(node.module or "").partition(".")[0]]
            for alias in node.names:
                if alias.asname and alias.name in _STRANGERS:  # used under a name that says nothing
                    self._hazard(_STRANGERS[alias.name], node, kernel=alias.name == "GradScaler")
            if packages == ["transformers"] and any(alias.name.endswith("Trainer") for alias in node.names):
                self._hazard("a Trainer drives the optimizer", node, kernel=True)
        else:
            packages = [alias.name.partition(".")[0] for alias in node.names]
        for package in packages:
            if package in _FRAMEWORKS:
                self._hazard(f"{package} may drive the optimizer", node, kernel=True)

    def _backward(self, call: ast.Call) -> None:
        """A backward() that some steps leave out: torch then skips parameters, the fused optimizer decays them."""
        child: ast.AST = call
        for parent in self._around(call):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return
            if isinstance(parent, ast.If) and not _is_static(parent.test):
                branch = parent.body if child in parent.body else parent.orelse
                if not any(_receiver(node, {"step"}) for part in branch for node in ast.walk(part)):
                    self._hazard(f"backward() runs only if {ast.unparse(parent.test)}", call)
            child = parent

    def _branch(self, node: ast.If | ast.IfExp | ast.While) -> None:
        """A branch of forward() that depends on its input, with a layer in it."""
        function = next((a for a in self._around(node) if isinstance(a, (ast.FunctionDef, ast.Lambda))), None)
        if getattr(function, "name", "") != "forward" or _is_static(node.test):
            return
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
        if any(_is_layer_call(inner) or isinstance(inner, ast.Continue) for part in parts for inner in ast.walk(part)):
            self._hazard(f"forward() uses some layers only if {ast.unparse(node.test)}", node)


def last_name(node: ast.AST) -> str:
    """The last part of a name: `optimizer` of `self.optimizer`; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The positional parameters of a function, without self."""
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    return tuple(names[1:] if names[:1] in (["self"], ["cls"]) else names)


def _receiver(node: ast.AST, methods: set[str]) -> ast.expr | None:
    """What one of these methods is called on."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return node.func.value
    return None


def _base(node: ast.expr) -> str:
    """The last name that a chain of calls starts from: `model` of `model.eval().cpu`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return last_name(node)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _is_layer_call(node: ast.AST) -> bool:
    """`self.head(x)`, `self.blocks[i](x)`."""
    if not isinstance(node, ast.Call):
        return False
    inner: ast.AST = node.func
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
    return isinstance(inner, ast.Name) and inner.id == "self" and inner is not node.func


def _is_static(test: ast.expr) -> bool:
    """Whether a test has one answer for a whole run: options, attributes of self, `is None`, types."""
    check: Callable[[ast.expr], bool] = _is_static
    if isinstance(test, ast.BoolOp):
        return all(map(check, test.values))
    if isinstance(test, ast.UnaryOp):
        return check(test.operand)
    if isinstance(test, ast.Compare):
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in test.ops):
            return True
        return check(test.left) and all(map(check, test.comparators))
    if isinstance(test, ast.Call):
        return last_name(test.func) in {"isinstance", "hasattr", "callable"}
    if isinstance(test, ast.Attribute):
        root: ast.AST = test
        while isinstance(root, ast.Attribute):
            root = root.value
        of_run = isinstance(root, ast.Name) and (root.id == "self" or root.id in _OPTIONS)
        return of_run or test.attr in {"training", "is_cuda", "is_npu", "is_xpu", "device", "dtype", "type"}
    if isinstance(test, (ast.Tuple, ast.List, ast.Set)):
        return all(map(check, test.elts))
    return isinstance(test, ast.Constant)
