"""Double precision on an NPU.

An NPU has no double arithmetic.  torch_npu turns a cast of an NPU tensor, `x.double()` or `x.to(torch.float64)`,
into a cast to float32 and warns once per process: the code runs on with half the digits.  A tensor that is made
on the NPU with dtype=torch.float64 stays float64, but few operators and no collectives take it.  Only where
the work happens on the CPU is float64 what it says.
"""

from __future__ import annotations

import re

import libcst as cst

from migrator.rule import MANUAL, Call, Example, Method, Name, Report, Rule

rule = Rule(
    id="NPU705",
    name="float64",
    title="NPUs compute in float32 where code asks for float64",
    applicability=MANUAL,
    tags=("performance", "precision"),
    examples=[
        Example.reported(
            "import torch\n\n\ndef freqs(n, device):\n    return torch.arange(n, dtype=torch.float64, device=device)\n",
            "torch.arange",
        ),
        Example.reported(
            "import torch\nx = x.to(torch.float64)\ny = f(x.double(), w.double())\n", "float32", "float32"
        ),
        Example.reported("import torch\nx = x.to(device, dtype=torch.double)\n", "float64 tensor"),
        Example.reported("import torch\nx = torch.zeros(2, dtype=torch.float64).to(device)\n", "float64 tensor"),
        Example.reported("import torch\ntorch.set_default_dtype(torch.float64)\n", "default"),
        Example.unchanged(
            "import torch\nimport numpy as np\nx = y.cpu().double()\nz = torch.zeros(3, dtype=torch.float64)\n"
            "w = torch.from_numpy(a).double()\nok = x.dtype == torch.float64\nv = a.astype(np.float64)\n"
            "u = torch.ones(2, dtype=torch.double, device='cpu')\n"
        ),
    ],
)

ON_CPU = re.compile(r"\.cpu\(|numpy|\bnp\.|['\"]cpu['\"]")
MOVES = frozenset({"to", "cuda", "npu"})
REMEDY = "Compute in float32, or do this part on the CPU: x.cpu().double()."


@rule.on_name("torch.float64", "torch.double", words=("torch.float64", "torch.double"))
def named(match: Name) -> Report | None:
    arg = match.parent()
    node = match.file.tree.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(node, cst.Call) or ON_CPU.search(match.file.tree.text(node)):
        return None
    call, function = Call(match.file, node), match.file.names.resolve(node.func) or ""
    if function == "torch.set_default_dtype":
        return Report("float64 as the default dtype: few operators take such tensors on an NPU", REMEDY)
    method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    made = "device" in call.keywords or (method == "to" and len(call.positional) + len(call.keywords) > 1)
    if function.startswith("torch."):
        outer = match.file.tree.parents.get(node)
        if not made and not (isinstance(outer, cst.Attribute) and outer.attr.value in MOVES):
            return None
        return Report(f"{function} makes a float64 tensor on the NPU, where few operators take it", REMEDY)
    if method not in ("to", "type"):
        return None
    if made:
        return Report("this makes a float64 tensor on the NPU, where few operators take it", REMEDY)
    return Report(f"{method}({match.text}) of an NPU tensor gives float32", REMEDY)


@rule.on_method("double", words=(".double()",))
def cast(match: Method) -> Report | None:
    if match.call is None or match.call.node.args or ON_CPU.search(match.text) or not _is_first(match):
        return None
    return Report("double() of an NPU tensor gives float32", REMEDY)


def _is_first(match: Method) -> bool:
    """Whether no cast stands before this one in the same statement: f(x.double(), y.double()) is one finding."""
    tree = match.file.tree
    statement = tree.enclosing(match.node, cst.BaseSmallStatement, cst.BaseCompoundStatement)
    others = [a for a in tree.all(cst.Attribute) if a.attr.value == "double"]
    same = [a for a in others if tree.enclosing(a, cst.BaseSmallStatement, cst.BaseCompoundStatement) is statement]
    return min(same, key=lambda attribute: tree.span(attribute.attr)) is match.node
