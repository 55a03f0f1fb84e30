"""Read device times, not CUDA times, out of profiles.

`key_averages().table(sort_by="cuda_time_total")` and `event.self_cuda_time_total` name columns of torch's own
profiler.  From torch 2.4 on they are called `device_time_total` and so on, whatever the device, and the old
names are deprecated.  Before, the columns of an NPU are called `privateuse1_time_total`, and those of CUDA are
zero: a table that is sorted by them is in no order.  torch_npu's own profile calls them npu in export_stacks().

No column is called npu_time_total: a name that is put together, f"self_{device}_time_total", is reported.  Events of
the NPU have the device type PrivateUse1.
"""

import re

import libcst as cst

from migrator.rule import ERROR, SAFE, Example, Fix, Match, Method, Name, Report, Role, Rule, Text
from migrator.statements import is_stored

rule = Rule(
    id="NPU602",
    name="profiler-columns",
    title="profiles of an NPU have no CUDA times",
    applicability=SAFE,
    tags=("profiling",),
    docs="https://docs.pytorch.org/docs/stable/profiler.html",
    examples=[
        Example(
            "print(prof.key_averages().table(sort_by='self_cuda_time_total'))\nt = e.cuda_time_total\n",
            "print(prof.key_averages().table(sort_by='self_device_time_total'))\nt = e.device_time_total\n",
        ),
        Example(
            "print(prof.key_averages().table('cuda_time'))\nm = e.self_cuda_memory_usage\n",
            "print(prof.key_averages().table('privateuse1_time'))\nm = e.self_privateuse1_memory_usage\n",
            target="2.1.0",
        ),
        Example(
            "p.export_stacks('s.txt', 'self_cuda_time_total')\n", "p.export_stacks('s.txt', 'self_npu_time_total')\n"
        ),
        Example.reported(
            "sort_by = 'self_' + device + '_time_total'\nkey = f'{device}_time_total'\n", *2 * ["put together"]
        ),
        Example(
            "import torch\nimport torch_npu\nt = e.device_type == torch.autograd.DeviceType.CUDA\n",
            "import torch\nimport torch_npu\nt = e.device_type == torch.autograd.DeviceType.PrivateUse1\n",
        ),
        Example("KEYS = {'cuda_time', 'cuda_time_total'}\n", "KEYS = {'device_time', 'device_time_total'}\n"),
        Example.unchanged("log['cuda_time'] = t\nprint('cuda_time_total')\nself.cuda_time_total = 0\n"),
    ],
)

COLUMN = re.compile(r"(self_)?cuda_(time_total|memory_usage)")
PUT_TOGETHER = re.compile(r"(.*\{\})?_(time_total|memory_usage)")
EVENTS = [f"torch.{module}.DeviceType.CUDA" for module in ("autograd", "_C._autograd", "autograd.profiler_util")]
ATTRIBUTES = [f"{own}cuda_{what}" for own in ("", "self_") for what in ("time_total", "memory_usage", "time_total_str")]


@rule.on_string("cuda_time", "cuda_memory_usage")
def in_text(match: Text) -> Fix | None:
    call = _called(match)
    known = COLUMN.fullmatch(match.value) or (match.value == "cuda_time" and _is_column(match, call))
    if match.is_bytes or not known or match.role("device").role in (Role.WORDS, Role.KEY):
        return None
    new = "npu" if call == "export_stacks" and "key_averages" not in match.file.source.text else _device(match)
    edits = match.replace_words("cuda", new)
    return Fix(edits, match.change(edits), needs=())


@rule.on_string("_time_total", "_memory_usage")
def put_together(match: Text) -> Report | None:
    if match.is_bytes or not PUT_TOGETHER.fullmatch(match.value):
        return None
    return Report(
        "the name of a column is put together here: with the NPU's name in it there is no such column",
        f"Write {_device(match)} in the place of the device's name, whatever the device is.",
        ERROR,
    )


@rule.on_name(*EVENTS, words=("DeviceType.CUDA",))
def event_of_the_npu(match: Name) -> Fix | None:
    if not isinstance(match.node, cst.Attribute):
        return None
    edits = [match.replace(match.node.attr, "PrivateUse1")]
    return Fix(edits, match.change(edits), needs=())


@rule.on_method(*ATTRIBUTES)
def in_attribute(match: Method) -> Fix | None:
    if is_stored(match) or match.file.tree.text(match.receiver) == "self":
        return None
    new = match.attribute.replace("cuda", _device(match))
    return Fix(match.rename(new), f".{match.attribute} → .{new}", needs=())


def _is_column(match: Text, call: str) -> bool:
    """Whether `cuda_time`, which may be anything, is given to a table or stands beside other columns."""
    element = match.parent()
    beside = match.file.tree.parents.get(element) if isinstance(element, cst.Element) else None
    return call in ("table", "sort_by") or (beside is not None and "cuda_time_total" in match.file.tree.text(beside))


def _device(match: Match) -> str:
    return "device" if match.file.target.at_least("2.4") else "privateuse1"


def _called(match: Text) -> str:
    """The keyword that a string is given for, or the last name of the function that it is a plain argument of."""
    arg = match.parent()
    call = match.file.tree.parents.get(arg) if arg is not None else None
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call):
        return ""
    if arg.keyword is not None:
        return arg.keyword.value
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
