"""Mark ranges for msprof.

torch.cuda.nvtx raises on a torch without CUDA.  mark, range_start and range_end exist in torch.npu.mstx (see
cuda-api); range_push and range_pop came with torch_npu 2.11, and so did `annotate`, which is what the context
manager torch.cuda.nvtx.range becomes.  For older targets torch.profiler.record_function takes its place: its
ranges show up in every profile that torch_npu.profiler makes.  The marks of the nvtx package itself do no harm,
but nobody sees them.
"""

from migrator.rule import ERROR, INFO, SAFE, UNSAFE, Example, Fix, Import, Name, Report, Rule

rule = Rule(
    id="NPU605",
    name="nvtx-range",
    title="NVTX ranges are invisible to the NPU's profiler",
    applicability=SAFE,
    tags=("profiling",),
    severity=ERROR,
    examples=[
        Example(
            "import torch\nimport torch_npu\nwith torch.cuda.nvtx.range('forward'):\n    f()\n",
            "import torch\nimport torch_npu\nwith torch.npu.mstx.annotate('forward'):\n    f()\n",
        ),
        Example(
            "from torch.cuda import nvtx\nimport torch_npu\n\n\n@nvtx.range(msg='forward')\ndef f():\n    pass\n",
            "from torch.cuda import nvtx\nimport torch_npu\n\n\n"
            "@torch_npu.npu.mstx.annotate('forward')\ndef f():\n    pass\n",
            reports=("nvtx stays",),
        ),
        Example(
            "import torch\nwith torch.cuda.nvtx.range('forward'):\n    f()\n",
            "import torch\nimport torch_npu\nwith torch.profiler.record_function('forward'):\n    f()\n",
            target="2.7.1",
            unsafe=True,
        ),
        Example.reported("import torch\nwith torch.cuda.nvtx.range('step {}', i):\n    f()\n", "nvtx.range"),
        Example.reported("import nvtx\n\n\n@nvtx.annotate('f', color='blue')\ndef f():\n    pass\n", "nvtx"),
    ],
)  # fmt: skip

ANNOTATE, RECORD = "torch.npu.mstx.annotate", "torch.profiler.record_function"


@rule.on_name("torch.cuda.nvtx.range")
def annotate(match: Name) -> Fix | Report:
    call = match.call
    arg = call.argument(0, "msg") if call is not None and len(call.node.args) == 1 else None
    if arg is None or arg.star:
        return Report(
            f"{match.qualified} formats its message; {ANNOTATE} does not",
            f"Write {ANNOTATE}(message.format(...)) from torch_npu 2.11 on, or {RECORD}(...), which exists everywhere.",
        )
    edits = [match.replace(arg, match.file.tree.text(arg.value))] if arg.keyword is not None else []
    if match.file.target.has(ANNOTATE):
        return Fix([*match.rename(ANNOTATE), *edits], f"{match.qualified} → {ANNOTATE}")
    return Fix(
        [*match.rename(RECORD), *edits],
        f"{match.qualified} → {RECORD}",
        "torch.npu.mstx has range_start(message) and range_end(id) for msprof; annotate comes with torch_npu 2.11.",
        UNSAFE,
    )


@rule.on_import("nvtx")
def package(match: Import) -> Report:
    return Report(
        "the marks of the nvtx package are for NVIDIA's profilers only",
        "Nothing breaks. To see the ranges on an NPU use torch.npu.mstx or torch.profiler.record_function.",
        INFO,
    )
