"""Reduced precision of float32 matrix products.

torch.set_float32_matmul_precision("high") lets CUDA use TF32 and the CPU bfloat16.  torch_npu does not look at
it: its own switch is torch.npu.matmul.allow_hf32, which is off by default.  So nothing breaks, and nothing gets
faster either.
"""

import libcst as cst

from migrator.rule import INFO, MANUAL, Example, Name, Report, Rule

rule = Rule(
    id="NPU711",
    name="matmul-precision",
    title="an NPU does not follow set_float32_matmul_precision",
    applicability=MANUAL,
    tags=("advice", "performance", "precision"),
    severity=INFO,
    docs="https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    examples=[
        Example.reported("import torch\ntorch.set_float32_matmul_precision('high')\n", "allow_hf32"),
        Example.unchanged("import torch\ntorch.set_float32_matmul_precision('highest')\n"),
    ],
)


@rule.on_name("torch.set_float32_matmul_precision")
def report(match: Name) -> Report | None:
    precision = match.call.argument(0, "precision") if match.call is not None else None
    if precision is None or (isinstance(precision.value, cst.SimpleString) and "highest" in precision.value.value):
        return None
    return Report(
        "set_float32_matmul_precision has no effect on an NPU, where torch.npu.matmul.allow_hf32 is what counts",
        "Set torch.npu.matmul.allow_hf32 = True for the same trade, and compare the numbers: HF32 is not TF32.",
    )
