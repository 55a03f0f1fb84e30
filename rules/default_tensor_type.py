"""Replace torch.set_default_tensor_type(torch.cuda.…Tensor).

The call sets a default dtype and a default device in one; torch_npu's tensor types are not accepted there, so
that a renamed call crashes.  torch.set_default_dtype and torch.set_default_device (torch 2.0) do the same, one
each.  A type that is chosen at run time is reported.
"""

import libcst as cst

from migrator.rule import SAFE, Example, Fix, Name, Report, Rule

rule = Rule(
    id="NPU108",
    name="default-tensor-type",
    title="set_default_tensor_type takes no NPU type",
    applicability=SAFE,
    tags=("core", "device"),
    docs="https://docs.pytorch.org/docs/stable/generated/torch.set_default_device.html",
    examples=[
        Example(
            "import torch\nimport torch_npu\nif ok:\n    torch.set_default_tensor_type(torch.cuda.HalfTensor)\n",
            "import torch\nimport torch_npu\nif ok:\n    torch.set_default_dtype(torch.float16)\n"
            '    torch.set_default_device("npu")\n',
        ),
        Example(
            "import torch\nimport torch_npu\ntorch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
            "import torch\nimport torch_npu\ntorch.set_default_dtype(torch.float32)\ntorch.set_default_device('npu')\n",
        ),
        Example(
            "import torch\nimport torch_npu\ntorch.set_default_tensor_type(torch.cuda.LongTensor)\n",
            "import torch\nimport torch_npu\ntorch.set_default_tensor_type(torch.npu.LongTensor)\n",
            reports=("LongTensor",),
        ),
        Example.unchanged("import torch\ntorch.set_default_tensor_type(torch.DoubleTensor)\n"),
    ],
)

DTYPES = {"Half": "float16", "Float": "float32", "Double": "float64", "BFloat16": "bfloat16"}


@rule.on_name("torch.set_default_tensor_type")
def set_dtype_and_device(match: Name) -> Fix | Report | None:
    arg = match.call.argument(0, "t") if match.call else None
    if match.call is None or arg is None or "cuda" not in match.file.tree.text(arg.value):
        return None
    value = arg.value
    text = value.evaluated_value if isinstance(value, cst.SimpleString) else match.file.names.resolve(value)
    dtype = DTYPES.get(str(text).removeprefix("torch.cuda.").removesuffix("Tensor"))
    statement = match.file.tree.parents.get(match.call.node)
    if dtype is None or not isinstance(statement, cst.Expr):
        return Report(
            f"set_default_tensor_type({match.file.tree.text(value)}) fails on an NPU",
            f'Call torch.set_default_dtype(…) and torch.set_default_device("{match.file.target.device}") instead.',
            node=match.call.node,
        )
    torch = match.file.tree.text(match.node).rpartition(".")[0]
    prefix = f"{torch}." if torch else "torch."
    first = f"{prefix}set_default_dtype({prefix}{dtype})"
    second = f"{prefix}set_default_device({match.literal(match.file.target.device)})"
    edit = match.replace(match.call.node, match.lines_like(statement, [first, second]))
    return Fix([edit], "set_default_tensor_type → set_default_dtype and set_default_device", node=match.call.node)
