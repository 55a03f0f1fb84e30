"""Time operators on the NPU with the autograd profiler.

torch.autograd.profiler.profile(use_cuda=True) warns that CUDA is not available and measures the host alone.
With `use_device="npu"` the same profiler times operators on the NPU, key_averages() included: every torch_npu
registers what it needs.  emit_nvtx() raises on a torch without CUDA, and load_nvprof() reads files that only
NVIDIA's profiler writes.
"""

import libcst as cst

from migrator.rule import ERROR, SAFE, Example, Fix, Keyword, Name, Report, Rule

rule = Rule(
    id="NPU603",
    name="autograd-profiler",
    title="the autograd profiler times the NPU when told its name",
    applicability=SAFE,
    tags=("profiling",),
    docs="https://docs.pytorch.org/docs/stable/autograd.html#profiler",
    examples=[
        Example(
            "import torch\nimport torch_npu\nwith torch.autograd.profiler.profile(use_cuda=True) as p:\n    f()\n",
            'import torch\nimport torch_npu\nwith torch.autograd.profiler.profile(use_device="npu") as p:\n    f()\n',
        ),
        Example(
            "from torch.autograd import profiler\nimport torch_npu\n"
            "p = profiler.profile(args.profile, use_cuda=args.gpu, record_shapes=True)\n",
            "from torch.autograd import profiler\nimport torch_npu\n"
            'p = profiler.profile(args.profile, use_device="npu" if args.gpu else None, record_shapes=True)\n',
        ),
        Example.reported("import torch\nwith torch.autograd.profiler.emit_nvtx():\n    f()\n", "emit_nvtx"),
        Example.reported(
            "import torch\nwith torch.autograd.profiler.profile(use_cuda=True, use_kineto=True) as p:\n    f()\n",
            "use_kineto",
            target="2.7.1",
        ),
        Example.unchanged(
            "import torch\nwith torch.autograd.profiler.profile() as p:\n    f()\nrun(use_cuda=True)\n"
            "with torch.autograd.profiler.emit_nvtx(enabled=False):\n    f()\n"
        ),
    ],
)  # fmt: skip

PROFILE = "torch.autograd.profiler.profile"
NATIVE = "2.12"  # the first wheel that plugs the NPU into Kineto


@rule.on_keyword("use_cuda", words=("profiler",))
def use_the_npu(match: Keyword) -> Fix | Report | None:
    if match.function != PROFILE or "use_device" in match.call.keywords:
        return None
    if "use_kineto" in match.call.keywords and not match.file.target.at_least(NATIVE):
        return Report(
            f"use_kineto=: Kineto knows nothing of the NPU before torch_npu {NATIVE}",
            'Write use_device="npu" in the place of use_cuda=, and leave use_kineto out.',
        )
    value, npu = match.node.value, match.literal(match.file.target.device)
    text = match.file.tree.text(value)
    if text in ("True", "False"):
        new = npu if text == "True" else "None"
    else:
        plain = isinstance(value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript))
        new = f"{npu} if {text if plain else f'({text})'} else None"
    return Fix([match.replace(match.node, f"use_device={new}")], f"use_cuda={text} → use_device={new}")


@rule.on_name("torch.autograd.profiler.emit_nvtx", "torch.autograd.profiler.load_nvprof")
def only_nvidia(match: Name) -> Report | None:
    if match.call is None and not isinstance(match.parent(), cst.Arg):
        return None  # an annotation, a test
    name = match.qualified.rpartition(".")[2]
    enabled = match.call.argument(0, "enabled") if match.call is not None else None
    if name == "emit_nvtx" and enabled is not None and match.file.tree.text(enabled.value) == "False":
        return None
    return Report(
        f"{name}() needs NVIDIA's profiler",
        "Profile with torch_npu.profiler.profile, or mark ranges with torch.npu.mstx for msprof.",
        ERROR if name == "emit_nvtx" else None,
    )
