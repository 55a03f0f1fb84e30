"""Environment variables of CUDA, cuDNN and NCCL.

Where the NPU has a variable of the same meaning, the name changes wherever it is one: in `os.environ[…]`,
`os.getenv(…)`, `monkeypatch.setenv(…)`, the `env=` of a subprocess, `dict(os.environ, …)`, and in shell commands
inside strings; in messages it stays.  A value is looked at first: ASCEND_RT_VISIBLE_DEVICES has to be in ascending
order (else no NPU is found, without a word), PYTORCH_NPU_ALLOC_CONF knows fewer keys.  Variables that mean nothing
on an NPU, or whose counterpart counts in other units, are reported.  So are switches that make a library compile
or use CUDA kernels (`RWKV_CUDA_ON=1`).
"""

import re

import libcst as cst

from migrator import api
from migrator.rule import INFO, SAFE, UNSAFE, Edit, Example, Fix, Keyword, Match, Name, Report, Role, Rule, Text
from migrator.sinks import last_name
from migrator.target import Target

rule = Rule(
    id="NPU901",
    name="cuda-environment",
    title="CUDA's and NCCL's environment variables have other names on an NPU, or none",
    applicability=SAFE,
    tags=("environment",),
    docs="https://github.com/Ascend/pytorch",
    examples=[
        Example(
            "os.environ['CUDA_VISIBLE_DEVICES'] = '0,2'\nn = os.getenv('CUDA_VISIBLE_DEVICES', '')\n",
            "os.environ['ASCEND_RT_VISIBLE_DEVICES'] = '0,2'\nn = os.getenv('ASCEND_RT_VISIBLE_DEVICES', '')\n",
        ),
        Example(
            "run(f'CUDA_VISIBLE_DEVICES={i} python train.py', env={'CUDA_LAUNCH_BLOCKING': '1'})\n",
            "run(f'ASCEND_RT_VISIBLE_DEVICES={i} python train.py', env={'ASCEND_LAUNCH_BLOCKING': '1'})\n",
        ),
        Example(
            "env = dict(env, CUDA_VISIBLE_DEVICES=gpus)\nenv.setdefault('NCCL_ASYNC_ERROR_HANDLING', '1')\n",
            "env = dict(env, ASCEND_RT_VISIBLE_DEVICES=gpus)\nenv.setdefault('HCCL_ASYNC_ERROR_HANDLING', '1')\n",
            target="2.7.1",
        ),
        Example(
            "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\n",
            "os.environ['PYTORCH_NPU_ALLOC_CONF'] = 'expandable_segments:True'\n",
        ),
        Example.reported("os.environ['CUDA_VISIBLE_DEVICES'] = '1,0'\n", "not in ascending order"),
        Example.reported("os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:16'\n", "more than 20"),
        Example.reported("os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'backend:cudaMallocAsync'\n", "backend"),
        Example.reported("os.environ['NCCL_IB_TC'] = '106'\n", "NCCL_IB_TC has no counterpart"),
        Example.reported("import os\nos.environ['NCCL_LAUNCH_MODE'] = 'PARALLEL'\n", "NCCL_LAUNCH_MODE means nothing"),
        Example.reported("os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'\n", "CUDA_DEVICE_ORDER"),
        Example.reported("import os\nos.environ['RWKV_CUDA_ON'] = '1'\n", "RWKV_CUDA_ON"),
        Example.reported("keys = ['CUDA_VISIBLE_DEVICES']\n", "may be the variable"),
        Example.unchanged("import os\nbuild = os.getenv('FORCE_CUDA', '0')\n"),
        Example.unchanged('"""CUDA_VISIBLE_DEVICES=0 python train.py"""\nraise OSError("CUDA_VISIBLE_DEVICES")\n'),
    ],
)  # fmt: skip

ROWS = {
    name: row
    for row in api.mappings()
    if row.cuda.startswith("env:")
    for name in row.cuda.removeprefix("env:").split(" / ")
    if " " not in name
}
EXACT = tuple(name for name in ROWS if not name.endswith("*"))
FAMILIES = tuple(name[:-1] for name in ROWS if name.endswith("*"))
COMMAND = r"(?m)(?:^|[;&|(]|\bexport\s|\benv\s)\s*(?:\w+=\S*\s+)*{name}=(?P<value>[^\s;]*)"
READERS = frozenset({"get", "pop", "setdefault", "unset"})
INDICES = re.compile(r"\d+(,\d+)*")
# What `unknown_variable` speaks of, as it begins in a string; any word with CUDA is looked for anyway.
STRINGS = tuple(quote + begin for quote in "'\"" for begin in ("NCCL_", "TORCH_NCCL_", "CUDNN_", "CUBLAS_", "NVIDIA_"))


@rule.on_string(*EXACT, *FAMILIES)
def variable(match: Text) -> Fix | Report | None:
    if match.is_bytes:
        return None
    if (row := row_of(match.value)) is not None:
        return _named(match, match.value, row)
    for name in EXACT:
        command = re.search(COMMAND.format(name=name), match.value) if name in match.value else None
        if command is not None and match.role("device").role is not Role.WORDS:
            edits = match.replace_words(rf"\b{name}(?==)", _new_name(ROWS[name], match.file.target) or name)
            return _answer(match, name, ROWS[name], command["value"] if "{}" not in command["value"] else None, edits)
    return None


@rule.on_keyword(*EXACT)
def keyword(match: Keyword) -> Fix | Report | None:
    """`dict(os.environ, CUDA_VISIBLE_DEVICES="0")`"""
    row = ROWS[match.name]
    assert match.node.keyword is not None
    edits = [match.replace(match.node.keyword, _new_name(row, match.file.target) or match.name)]
    return _answer(match, match.name, row, _literal(match.node.value), edits)


@rule.on_name("os.environ.*", "os.getenv", "os.putenv", words=STRINGS)
def unknown_variable(match: Name) -> Report | None:
    """Variables that the map does not know: of NCCL, of CUDA itself, and switches for CUDA that are set here."""
    place = match.call or match.parent()
    name, value = None, None
    if isinstance(place, cst.Subscript) and isinstance(place.slice[0].slice, cst.Index):
        name = _literal(place.slice[0].slice.value)
        value = _assigned(match, place)
    elif match.call is not None and match.call.positional:
        name = _literal(match.call.positional[0].value)
        sets = match.qualified.endswith(("setdefault", "putenv")) and len(match.call.positional) > 1
        value = match.call.positional[1].value if sets else None
    if name is None or row_of(name) is not None:
        return None
    if re.match(r"(TORCH_)?NCCL_", name):
        remedy = "Remove it, or look for a setting of HCCL that does what it is for; a name alone says nothing."
        return Report(f"{name} means nothing to HCCL", remedy)
    if re.match(r"(CUDA|CUDNN|CUBLAS|NVIDIA)_|(PY)?TORCH_\w*CUDA", name):
        return Report(f"{name} means nothing on an NPU", "Remove it, and tests for it.")
    if value is not None and _literal(value) not in {"0", ""} and re.search(r"(^|_)CUDA(_|$)", name):
        return Report(f"{name} switches CUDA on in other code", "Switch it off: CUDA kernels do not run on an NPU.")
    return None


def row_of(name: str) -> api.Mapping | None:
    """What the CUDA map says of a variable."""
    family = next((prefix for prefix in FAMILIES if name.startswith(prefix) and name.isupper()), None)
    return ROWS.get(f"{family}*" if family else name)


def _named(match: Text, name: str, row: api.Mapping) -> Fix | Report | None:
    """A string that is the variable's name."""
    new = _new_name(row, match.file.target)
    edits = match.replace_words(re.escape(name), new or name)
    if _is_variable(match) and (new or _is_environment(match)):
        return _answer(match, name, row, _literal(_value(match)), edits)
    if new is None or match.role("device").role is Role.WORDS:
        return None
    message = f"{name} may be the variable, which is {new} on an NPU"
    return Fix(edits, message, "Rename it if it is; or run again with --unsafe.", UNSAFE, needs=())


def _answer(
    match: Text | Keyword, name: str, row: api.Mapping, value: str | None, edits: list[Edit]
) -> Fix | Report | None:
    if (new := _new_name(row, match.file.target)) is None or not edits:
        kinds = {api.Kind.DROP: "means nothing on an NPU", api.Kind.ADVICE: "may mean something else on an NPU"}
        severity = INFO if row.kind in kinds else None
        return Report(
            f"{name} {kinds.get(row.kind, 'has no counterpart of the same meaning')}", row.remedy or "", severity
        )
    if value is not None and (problem := _problem(new, value)):
        return Report(f"{name}={value}: {problem}", row.remedy or "")
    return Fix(edits, f"{name} → {new}", row.remedy, needs=())


def _new_name(row: api.Mapping, target: Target) -> str | None:
    if row.kind is not api.Kind.RENAME or row.npu is None:
        return None
    if target.can(row):
        return row.npu
    older = row.npu.removeprefix("TORCH_")  # what wheels read before, and all still do
    return older if older != row.npu and api.env(older) is not None else None


def _problem(new: str, value: str) -> str | None:
    """Why the NPU's variable does not take a value; None: it does."""
    if new == "ASCEND_RT_VISIBLE_DEVICES":
        indices = [int(i) for i in value.split(",")] if INDICES.fullmatch(value) else None
        if indices is None and value not in {"", "-1"}:
            return "only indices are understood"
        return None if not indices or indices == sorted(set(indices)) else "the indices are not in ascending order"
    if new == "PYTORCH_NPU_ALLOC_CONF":
        return _allocator_problem(value)
    flag = new.endswith(("_BLOCKING", "_CACHING", "_WAIT", "_HANDLING", "_DEBUG", "_MONITORING", "_ON_TIMEOUT"))
    return "only 0 and 1 are understood" if flag and value not in {"0", "1"} else None


def _allocator_problem(value: str) -> str | None:
    settings = dict(part.strip().partition(":")[::2] for part in value.split(",") if part.strip())
    known = {"max_split_size_mb", "garbage_collection_threshold", "expandable_segments"}
    if unknown := sorted(set(settings) - known):
        return f"{', '.join(unknown)} may not be understood"
    size = settings.get("max_split_size_mb")
    if size is not None and not (size.isdigit() and int(size) > 20):
        return "max_split_size_mb has to be more than 20"
    if settings.get("expandable_segments") == "True" and len(settings) > 1:
        return "expandable_segments does not go together with the other settings"
    return None


def _is_variable(match: Text) -> bool:
    """Whether a string stands where the name of an environment variable does."""
    parent, parents = match.parent(), match.file.tree.parents
    if isinstance(parent, (cst.Index, cst.DictElement)):
        return getattr(parent, "key", match.node) is match.node
    if isinstance(parent, cst.Comparison):
        return all(
            match.file.tree.text(target.comparator).endswith(("environ", "env")) for target in parent.comparisons
        )
    call = parents.get(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call) or call.args[0] is not parent:
        return False
    function = match.file.tree.text(call.func).rpartition(".")[2]
    return function in READERS or "env" in function.lower()


def _is_environment(match: Text) -> bool:
    """Whether it is looked up in the environment, and not in a dictionary with facts about a machine."""
    subscript = match.file.tree.enclosing(match.node, cst.Subscript) if isinstance(match.parent(), cst.Index) else None
    return subscript is None or re.search(r"environ$|(^|[_.])env$", match.file.tree.text(subscript.value)) is not None


def _value(match: Text) -> cst.CSTNode | None:
    """What the variable that is named here is set to."""
    parent, parents = match.parent(), match.file.tree.parents
    if isinstance(parent, cst.DictElement):
        return parent.value
    if isinstance(parent, cst.Arg):
        call = parents[parent]
        if not isinstance(call, cst.Call) or len(call.args) < 2 or last_name(call.func) in {"get", "getenv", "pop"}:
            return None  # the default of a reader is no setting
        return call.args[1].value
    return (
        _assigned(match, match.file.tree.enclosing(match.node, cst.Subscript))
        if isinstance(parent, cst.Index)
        else None
    )


def _assigned(match: Match, subscript: cst.CSTNode | None) -> cst.CSTNode | None:
    """What is assigned to a subscript here, if anything is."""
    parents = match.file.tree.parents
    target = parents.get(subscript) if subscript is not None else None
    assign = parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return assign.value if isinstance(assign, cst.Assign) else None


def _literal(node: cst.CSTNode | None) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None
