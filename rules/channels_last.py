"""Tensors on an NPU are contiguous.

`x.to(memory_format=torch.channels_last)`, `contiguous(memory_format=…)` and `torch.empty(…, memory_format=…)`
raise on NPU tensors in every torch_npu: only contiguous and preserve are known.  Nothing is lost by leaving the
format out, since the NPU picks the private format of a convolution's operands by itself, and values do not
depend on it.  Taking it out is left to `--unsafe`, because the code may well run on a GPU or CPU too.
"""

import libcst as cst

from migrator.rule import ERROR, UNSAFE, Example, Fix, Name, Rule

rule = Rule(
    id="NPU704",
    name="channels-last",
    title="channels_last raises on NPU tensors",
    applicability=UNSAFE,
    tags=("performance", "memory-format"),
    severity=ERROR,
    docs="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    examples=[
        Example(
            "import torch\nimport torch_npu\nm = m.to(memory_format=torch.channels_last)\n",
            "import torch\nimport torch_npu\nm = m.to(memory_format=torch.contiguous_format)\n",
            unsafe=True,
        ),
        Example.reported("import torch\nx = x.contiguous(memory_format=torch.channels_last)\n", "channels_last"),
        Example.unchanged(
            "import torch\nok = x.is_contiguous(memory_format=torch.channels_last)\nsame = f == torch.channels_last\n"
            "f = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format\n"
        ),
    ],
)  # fmt: skip


@rule.on_name("torch.channels_last", "torch.channels_last_3d", words=("channels_last",))
def use_contiguous(match: Name) -> Fix | None:
    if isinstance(match.parent(), (cst.Comparison, cst.ComparisonTarget)):
        return None
    choice = match.file.tree.enclosing(match.node, cst.IfExp, cst.BaseStatement)
    if isinstance(choice, cst.IfExp) and "stride(" in match.file.tree.text(choice.test):
        return None  # the format of another tensor, which is contiguous on an NPU
    call = match.file.tree.enclosing(match.node, cst.Call, cst.SimpleStatementLine)
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value == "is_contiguous":
        return None
    return Fix(
        match.rename("torch.contiguous_format"),
        f"{match.qualified} raises on NPU tensors, which are contiguous: torch.contiguous_format takes its place",
        "Leave the memory format out on an NPU, or apply the fix (--unsafe): values do not depend on it.",
        needs=(),
    )
