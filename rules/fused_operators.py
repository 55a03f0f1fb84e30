"""Well-known formulas that the NPU has in one kernel.

Rotary embeddings `x * cos + rotate_half(x) * sin`, SwiGLU on two halves of a tensor, and RMSNorm written out take a
handful of small kernels and as many copies; torch_npu.npu_rotary_mul, npu_swiglu and npu_rms_norm take one.  They
work as they are, so nothing changes by default.  With `--unsafe` the first two are rewritten where the code is the
known pattern: cos and sin must have as many axes as x, npu_swiglu needs Ascend 910B or newer, and both keep their
input for the backward pass.  RMSNorm rounds at another place: it is only pointed out.
"""

import re
from collections.abc import Iterator

import libcst as cst

from migrator.rule import INFO, UNSAFE, Edit, Example, FileMatch, Fix, Report, Rule

HALVES = """def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


"""

rule = Rule(
    id="NPU810",
    name="fused-operators",
    title="rotary embeddings, SwiGLU and RMSNorm are one kernel each",
    applicability=UNSAFE,
    severity=INFO,
    tags=("third-party", "performance"),
    docs="https://github.com/Ascend/op-plugin",
    examples=[
        Example(
            f"import torch\nimport torch_npu\n{HALVES}q = (q * cos) + (rotate_half(q) * sin)\n",
            f"import torch\nimport torch_npu\n{HALVES}q = torch_npu.npu_rotary_mul(q, cos, sin)\n",
            unsafe=True,
        ),
        Example(
            "import torch\nimport torch_npu\nimport torch.nn.functional as F\n"
            "gate, up = h.chunk(2, dim=-1)\ny = F.silu(gate) * up\n",
            "import torch\nimport torch_npu\nimport torch.nn.functional as F\ny = torch_npu.npu_swiglu(h, dim=-1)\n",
            unsafe=True,
        ),
        Example.reported(f"import torch\n{HALVES}q = q * cos + rotate_half(q) * sin\n", "npu_rotary_mul"),
        Example.reported(
            "class RMSNorm(torch.nn.Module):\n    def forward(self, x):\n"
            "        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))\n",
            "npu_rms_norm",
        ),
        Example.unchanged("from .rope import rotate_half\nq = q * cos + rotate_half(k) * sin\n"),
        Example.unchanged("import torch.nn.functional as F\nx, g = h.chunk(2, dim=-1)\ny = F.silu(g) * x\n"),
    ],
)  # fmt: skip

# The bodies of rotate_half that turn the two halves of the last axis, without blanks: x → a, b.
ROTATIONS = {
    first + "return" + last
    for first in (
        "a,b=x.chunk(2,dim=-1)", "a,b=x.chunk(2,-1)", "a,b=torch.chunk(x,2,dim=-1)",
        "a=x[...,:x.shape[-1]//2]b=x[...,x.shape[-1]//2:]", "a,b=x[...,:x.shape[-1]//2],x[...,x.shape[-1]//2:]",
    )
    for last in ("torch.cat((-b,a),dim=-1)", "torch.cat([-b,a],dim=-1)", "torch.cat((-b,a),-1)", "torch.cat([-b,a],-1)")
}  # fmt: skip
REVIEW = "Compare it with the old formula on your shapes: "
ROTARY = REVIEW + "cos and sin need as many axes as the tensor; the reverse pass keeps the tensor in memory."
SWIGLU = REVIEW + "npu_swiglu needs Ascend 910B or newer."


@rule.on_file("rotate_half", "silu(", "rsqrt(")
def fuse(match: FileMatch) -> Iterator[Fix | Report]:
    for node in match.file.tree.all(cst.BinaryOperation):
        found = _rotary(match, node) if isinstance(node.operator, cst.Add) else _swiglu(match, node)
        if found is not None:
            yield found
    for cls in match.file.tree.all(cst.ClassDef):
        text = match.file.tree.text(cls.body) if "Norm" in cls.name.value else ""
        if "rsqrt(" in text and re.search(r"\.pow\(2\)\.mean\(-1, keepdim=True\)", text):
            remedy = "Its forward can be torch_npu.npu_rms_norm(x, self.weight, epsilon=eps)[0]."
            yield Report(f"{cls.name.value} is one kernel on an NPU: npu_rms_norm", remedy, INFO, cls.name)


def _rotary(match: FileMatch, node: cst.BinaryOperation) -> Fix | None:
    """`x * cos + rotate_half(x) * sin`"""
    text, straight, turned = match.file.tree.text, node.left, node.right
    if not isinstance(straight, cst.BinaryOperation) or not isinstance(turned, cst.BinaryOperation):
        return None
    call = turned.left
    products = isinstance(straight.operator, cst.Multiply) and isinstance(turned.operator, cst.Multiply)
    if not products or not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or len(call.args) != 1:
        return None
    if text(call.args[0].value) != text(straight.left) or not _turns_halves(match, call.func):
        return None
    arguments = ", ".join(text(part) for part in (straight.left, straight.right, turned.right))
    edits = [match.replace(node, f"torch_npu.npu_rotary_mul({arguments})")]
    return Fix(edits, f"{text(node)} → {edits[0].text}", ROTARY, node=node)


def _turns_halves(match: FileMatch, name: cst.Name) -> bool:
    """Whether a function is the known rotate_half: of transformers, or with its body."""
    for binding in match.file.names.bindings_of(name):
        function = binding.node
        if binding.is_import and (binding.qualified or "").startswith("transformers."):
            continue
        if not isinstance(function, cst.FunctionDef) or len(function.params.params) != 1:
            return False
        lines = [match.file.tree.text(line) for line in function.body.body]
        body = re.sub(r"\s", "", "".join(line for line in lines if not line.startswith(('"', "'"))))
        halves = re.search(r"-(\w+),(\w+)", body)
        names = {function.params.params[0].name.value: "x", **({halves[2]: "a", halves[1]: "b"} if halves else {})}
        if "".join(names.get(word, word) for word in re.split(r"(\w+)", body)) not in ROTATIONS:
            return False
    return bool(match.file.names.bindings_of(name))


def _swiglu(match: FileMatch, node: cst.BinaryOperation) -> Fix | None:
    """`a, b = x.chunk(2, dim=-1)` on the line before `F.silu(a) * b`."""
    text, call = match.file.tree.text, node.left
    if not isinstance(node.operator, cst.Multiply) or not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    if match.file.names.resolve(call.func) != "torch.nn.functional.silu":
        return None
    line = match.file.tree.enclosing(node, cst.SimpleStatementLine)
    block = match.file.tree.parents.get(line) if line is not None else None
    body = list(block.body) if isinstance(block, (cst.IndentedBlock, cst.Module)) else []
    before = body[body.index(line) - 1] if line in body[1:] else None
    halves = re.fullmatch(r"(\w+), (\w+) = (\w+)\.chunk\(2, (?:dim=)?-1\)", text(before).strip() if before else "")
    if halves is None or (text(call.args[0].value), text(node.right)) != halves.group(1, 2):
        return None
    if sum(name.value in halves.group(1, 2) for name in match.file.tree.all(cst.Name)) != 4:
        return None
    start, end = match.file.tree.span(before)[0], match.file.tree.span(line)[0]
    edits = [Edit(start, end, ""), match.replace(node, f"torch_npu.npu_swiglu({halves[3]}, dim=-1)")]
    return Fix(edits, f"{text(node)} → {edits[1].text}", SWIGLU, node=node)
