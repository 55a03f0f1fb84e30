"""Settings of torch.backends.cuda, torch.backends.cudnn and inductor's CUDA side.

Reduced float32 precision is called HF32 on an NPU: `allow_tf32` for matrix products becomes
`torch.npu.matmul.allow_hf32` (off by default, as TF32 is), for cuDNN convolutions
`torch.npu.conv.allow_hf32` (ON by default).  Switches for attention kernels have the same names.  All else does
nothing on an NPU: it is reported and left, since removing a line is for a person to decide.
"""

import libcst as cst

from migrator.rule import INFO, SAFE, Example, Fix, Name, Report, Rule, rename_or_report

rule = Rule(
    id="NPU111",
    name="cuda-backends",
    title="cuDNN and cuBLAS switches do nothing on an NPU",
    applicability=SAFE,
    tags=("core", "performance"),
    severity=INFO,
    examples=[
        Example(
            "import torch\nimport torch_npu\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
            "import torch\nimport torch_npu\ntorch.npu.matmul.allow_hf32 = True\n",
        ),
        Example.reported("from torch.backends import cudnn\ncudnn.benchmark = True\n", "benchmark"),
        Example.reported("import torch\nf([torch.backends.cudnn.allow_tf32])\n", "beside other cuDNN settings"),
    ],
)


@rule.on_name("torch.backends.cudnn.*", "torch.backends.cuda.*", "torch.backends.cusparselt.*")
@rule.on_name("torch._inductor.config.cuda.*", "torch._inductor.config.triton.cudagraphs", words=("_inductor",))
def setting(match: Name) -> Fix | Report | None:
    if isinstance(match.parent(), cst.Element):
        return Report(
            f"{match.qualified} is read beside other cuDNN settings, which mean nothing on an NPU",
            "Keep this code away from the NPU, or pass it the settings that it needs.",
        )
    return rename_or_report(match)
