"""Complex tensors on an NPU.

torch.view_as_complex, torch.polar and complex multiplication have NPU kernels, but many operators that work on
complex numbers have not: they fall back to the CPU, which costs a copy both ways each time, or raise.
torch.polar takes float32 alone.  Rotary position embeddings, the usual reason for complex numbers in a model's
forward pass, are as easily written with real ones.
"""

from migrator.rule import INFO, MANUAL, Example, Name, Report, Rule

rule = Rule(
    id="NPU709",
    name="complex-tensors",
    title="few operators take complex tensors on an NPU",
    applicability=MANUAL,
    tags=("advice", "performance", "precision"),
    severity=INFO,
    examples=[
        Example.reported("import torch\nx = torch.view_as_complex(x)\ny = torch.view_as_complex(y)\n", "complex"),
        Example.unchanged("import torch\nx = torch.view_as_real(x)\nc = complex(1, 2)\n"),
    ],
)

NAMES = ("torch.view_as_complex", "torch.polar")


@rule.on_name(*NAMES)
def report(match: Name) -> Report | None:
    first = next(r for r in match.file.names.references if r.qualified in NAMES)
    if match.call is None or first is not match.reference:
        return None
    return Report(
        f"{match.qualified} makes complex tensors, which few operators take on an NPU",
        "Rotate with real numbers: split x into pairs, x * cos + rotate_half(x) * sin, which is also what "
        "torch_npu.npu_rotary_mul computes.",
    )
