"""Names of torch.cuda inside strings.

`x.type("torch.cuda.FloatTensor")`, `x.type() == "torch.cuda.HalfTensor"`, `mock.patch("torch.cuda.is_available")`,
`getattr(torch, "cuda")`, `hasattr(torch.cuda, "amp")`, `getattr(x, "is_cuda", False)`: the string is code, and
changes like the name that it spells.
"""

import re

from migrator.moves import destination, importable
from migrator.rule import SAFE, Example, Fix, Report, Role, Rule, Text
from migrator.statements import attribute_lookup

rule = Rule(
    id="NPU107",
    name="cuda-text",
    title="strings that spell torch.cuda names are code too",
    applicability=SAFE,
    tags=("core",),
    examples=[
        Example(
            "import torch\nimport torch_npu\nx = x.type('torch.cuda.FloatTensor')\n",
            "import torch\nimport torch_npu\nx = x.type('torch.npu.FloatTensor')\n",
        ),
        Example(
            "import torch\nimport torch_npu\nm = getattr(torch, 'cuda')\nok = getattr(x, 'is_cuda', False)\n",
            "import torch\nimport torch_npu\nm = getattr(torch, 'npu')\nok = getattr(x, 'is_npu', False)\n",
        ),
        Example.reported("x = 'torch.cuda.nccl.version'\n", "torch.cuda.nccl.version"),
        Example.unchanged("print('torch.cuda.FloatTensor')\nstates['torch.cuda'] = 1\n"),
    ],
)

DOTTED = re.compile(r"torch\.cuda(\.\w+)*")


@rule.on_string("cuda")
def rename_in_text(match: Text) -> Fix | Report | None:
    if match.is_bytes:
        return None
    if DOTTED.fullmatch(match.value):
        return _dotted(match)
    receiver = attribute_lookup(match)
    if receiver is None:
        return None
    npu, target = match.file.target.device, match.file.target
    if receiver == "torch" and match.value == "cuda":
        return Fix(match.replace_words("cuda", npu), f"torch.cuda → {target.module}")
    if receiver == "" and match.value in ("cuda", "is_cuda"):
        return Fix(match.replace_words("cuda", npu), f"{match.value} → {match.value.replace('cuda', npu)}")
    return None


def _dotted(match: Text) -> Fix | Report | None:
    role = match.role("device").role
    if role is Role.WORDS or (role is Role.KEY and not match.value.endswith("Tensor")):
        return None
    new = destination(match.value, match.file.target)
    if new is None:
        row = match.file.target.mapping_for(match.value)
        remedy = row.remedy if row and row.remedy else "Name something else here."
        return Report(f"{match.value} has no counterpart in torch_npu {match.file.target.torch_npu}", remedy)
    new = new if "Tensor" in new else importable(new) if match.value.count(".") > 1 else new
    return Fix(match.replace_words(re.escape(match.value), new), f"{match.value} → {new}", needs=())
