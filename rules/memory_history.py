"""Record the history of the NPU's memory.

torch.npu.memory has _record_memory_history, _snapshot and _dump_snapshot in every version, and the pickle opens
in the same viewer.  But it takes the newer arguments alone: `enabled` is "all", "state" or None.  The older
form, `_record_memory_history(True, trace_alloc_max_entries=…)`, which torch still accepts for CUDA, raises.
"""

from __future__ import annotations

import libcst as cst

from migrator.rule import ERROR, SAFE, Edit, Example, Fix, Name, Report, Rule
from migrator.statements import drop_arguments

rule = Rule(
    id="NPU606",
    name="memory-history",
    title="the NPU's memory history takes the newer arguments only",
    applicability=SAFE,
    tags=("core", "profiling", "memory"),
    severity=ERROR,
    docs="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",
    examples=[
        Example(
            "import torch\nimport torch_npu\n"
            "torch.cuda.memory._record_memory_history(\n"
            "    True, trace_alloc_max_entries=9, trace_alloc_record_context=True)\n",
            'import torch\nimport torch_npu\ntorch.npu.memory._record_memory_history(\n    "all", max_entries=9)\n',
        ),
        Example(
            "import torch\nimport torch_npu\ntorch.cuda.memory._record_memory_history(enabled=False)\n",
            "import torch\nimport torch_npu\ntorch.npu.memory._record_memory_history(enabled=None)\n",
        ),
        Example(
            "import torch\nimport torch_npu\ntorch.cuda.memory._record_memory_history(max_entries=1000)\n"
            "torch.cuda.memory._dump_snapshot('m.pickle')\n",
            "import torch\nimport torch_npu\ntorch.npu.memory._record_memory_history(max_entries=1000)\n"
            "torch.npu.memory._dump_snapshot('m.pickle')\n",
        ),
        Example.reported(
            "import torch\ntorch.cuda.memory._record_memory_history('all', clear_history=True)\n", "clear_history="
        ),
    ],
)  # fmt: skip

TAKEN = ("enabled", "context", "stacks", "max_entries", "device")
RENAMED = {"trace_alloc_max_entries": "max_entries"}
# How much of the call stack to keep: all of it, by default.
DROPPED = frozenset({"record_context", "trace_alloc_record_context", "record_context_cpp"})


@rule.on_name("torch.cuda.memory._record_memory_history")
def newer_arguments(match: Name) -> Fix | Report | None:
    call = match.call
    if call is None:
        return None
    enabled = call.argument(0, "enabled")
    switch = enabled is not None and isinstance(enabled.value, cst.Name) and enabled.value.value in ("True", "False")
    refused = [f"{name}=" for name in call.keywords if name not in {*TAKEN, *RENAMED, *DROPPED}]
    if switch and len(call.positional) > 1:
        refused.append("the older positional arguments")
    if refused or call.has_star:
        return Report(
            f"torch.npu.memory._record_memory_history does not take {', '.join(refused) or '**'}",
            f"It takes {', '.join(TAKEN)}. Leave out the rest.",
        )
    edits: list[Edit] = []
    if switch and enabled is not None:
        on = match.file.tree.text(enabled.value) == "True"
        edits.append(match.replace(enabled.value, match.literal("all") if on else "None"))
    for name, arg in call.keywords.items():
        if name in RENAMED and arg.keyword is not None:
            edits.append(match.replace(arg.keyword, RENAMED[name]))
    edits += drop_arguments(match.file, call.node, [arg for name, arg in call.keywords.items() if name in DROPPED])
    if not edits:
        return None
    new = match.destination or ""
    return Fix([*match.rename(new), *edits], f"{match.qualified} → {new}, with the arguments that it takes")
