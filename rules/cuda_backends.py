"""Settings of torch.backends.cuda, torch.backends.cudnn and inductor's CUDA side.

Reduced float32 precision is called HF32 on an NPU: `allow_tf32` for matrix products becomes
`torch.npu.matmul.allow_hf32` (off by default, as TF32 is), for cuDNN convolutions
`torch.npu.conv.allow_hf32` (ON by default).  Switches for attention kernels have the same names.
`cudnn.deterministic = True` asks for results that repeat: on an NPU torch.use_deterministic_algorithms(True) does
that (with `--unsafe`, because it raises where an operator has no such kernel), and HCCL_DETERMINISTIC=true for
collectives.  cudnn.version() is None, so comparing it raises.  All else does nothing on an NPU: it is reported
and left, since removing a line is for a person to decide.
"""

import libcst as cst

from migrator.rule import ERROR, INFO, SAFE, UNSAFE, WARNING, Example, Fix, Name, Report, Rule, rename_or_report

rule = Rule(
    id="NPU111",
    name="cuda-backends",
    title="cuDNN and cuBLAS switches have another name on an NPU, or do nothing",
    applicability=SAFE,
    tags=("core", "performance"),
    severity=INFO,
    examples=[
        Example(
            "import torch\nimport torch_npu\ntorch.backends.cuda.matmul.allow_tf32 = True\n",
            "import torch\nimport torch_npu\ntorch.npu.matmul.allow_hf32 = True\n",
        ),
        Example.reported("from torch.backends import cudnn\ncudnn.benchmark = True\n", "benchmark does nothing"),
        Example.reported("from torch.backends import cudnn\ncudnn.deterministic = True\n", "results may differ"),
        Example(
            "import torch as th\nimport torch_npu\nth.backends.cudnn.deterministic = True\n",
            "import torch as th\nimport torch_npu\nth.use_deterministic_algorithms(True)\n",
            unsafe=True,
        ),
        Example.reported("import torch\nnew = torch.backends.cudnn.version() >= 8000\n", "comparing it raises"),
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
    row = match.row
    if row is not None and row.remedy and row.kind.value in ("advice", "drop"):
        return Report(f"{match.qualified} does nothing on an NPU", row.remedy)
    return rename_or_report(match)


@rule.on_name("torch.backends.cudnn.version", words=("cudnn",))
def compared_version(match: Name) -> Report | None:
    test = match.file.tree.enclosing(match.node, cst.Comparison, cst.BaseStatement)
    if match.call is None or not isinstance(test, cst.Comparison) or "None" in match.file.tree.text(test):
        return None
    return Report(
        f"{match.qualified}() is None without cuDNN: comparing it raises",
        "Ask torch.backends.cudnn.is_available() first, or take the branch without cuDNN.",
        ERROR,
    )


@rule.on_name("torch.backends.cudnn.deterministic", words=("cudnn",))
def deterministic(match: Name) -> Fix | Report | None:
    target = match.parent()
    assign = match.file.tree.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    if not isinstance(assign, cst.Assign) or match.row is None:
        return None
    value = match.file.tree.text(assign.value)
    if value != "True":
        return Report(f"{match.qualified} does nothing on an NPU", "It can stay.") if value == "False" else None
    message = f"{match.qualified} does nothing on an NPU: results may differ from run to run"
    remedy = match.row.remedy or ""
    root = match.reference.root
    torch = root.value if match.file.names.resolve(root) == "torch" else "torch"
    if len(assign.targets) > 1 or not match.file.names.is_bound(torch):
        return Report(message, remedy, WARNING)
    new = f"{torch}.use_deterministic_algorithms(True)"
    return Fix([match.replace(assign, new)], f"{message} without {new}", remedy, UNSAFE, WARNING, needs=())
