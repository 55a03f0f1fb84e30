"""Mark ranges for msprof.

torch.cuda.nvtx raises on a torch without CUDA.  torch.npu.mstx marks for CANN's profiler: mark, range_start and
range_end exist in every version, range_push and range_pop came with torch_npu 2.11, and so did `annotate`, which
is what the context manager torch.cuda.nvtx.range becomes.  For older targets torch.profiler.record_function may
take its place: its ranges show up in every profile that torch_npu.profiler makes.  The marks of the nvtx package
itself do no harm, but nobody sees them.
"""

from migrator.rule import ERROR, INFO, SAFE, UNSAFE, Example, Fix, Import, Name, Report, Rule

rule = Rule(
    id="NPU605",
    name="nvtx",
    title="NVTX marks raise without CUDA; the NPU's profiler has mstx",
    applicability=SAFE,
    tags=("core", "profiling"),
    severity=ERROR,
    examples=[
        Example(
            "import torch\nimport torch_npu\ntorch.cuda.nvtx.range_push(msg='a')\ntorch.cuda.nvtx.range_pop()\n",
            "import torch\nimport torch_npu\ntorch.npu.mstx.range_push(message='a')\ntorch.npu.mstx.range_pop()\n",
        ),
        Example.reported("import torch\ntorch.cuda.nvtx.range_push('a')\n", "2.11", target="2.7.1"),
        Example(
            "import torch\nimport torch_npu\nwith torch.cuda.nvtx.range('forward'):\n    f()\n",
            "import torch\nimport torch_npu\nwith torch.npu.mstx.annotate('forward'):\n    f()\n",
        ),
        Example(
            "from torch.cuda.nvtx import mark, range\nimport torch_npu\nmark('a')\n\n\n"
            "@range(msg='forward')\ndef f():\n    pass\n",
            "from torch.cuda.nvtx import mark, range\nimport torch_npu\ntorch_npu.npu.mstx.mark('a')\n\n\n"
            "@torch_npu.npu.mstx.annotate('forward')\ndef f():\n    pass\n",
            reports=("mark stays", "range stays"),
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
)

ANNOTATE, RECORD = "torch.npu.mstx.annotate", "torch.profiler.record_function"
PLAIN = [f"torch.cuda.nvtx.{name}" for name in ("mark", "range_push", "range_pop", "range_start", "range_end")]


@rule.on_name(*PLAIN, words=("nvtx",))
def mark(match: Name) -> Fix | Report | None:
    new, row = match.destination, match.row
    if new is None and row is not None:
        return Report(
            f"{match.qualified} raises without CUDA, and {row.npu} comes with torch_npu {row.since}",
            row.remedy or f"Use {RECORD}.",
        )
    message = match.call.keywords.get("msg") if match.call is not None else None
    if new is None or message is None or message.keyword is None:
        return None
    edits = [*match.rename(new), match.replace(message.keyword, "message")]
    return Fix(edits, f"{match.qualified}(msg=…) → {new}(message=…)")


@rule.on_name("torch.cuda.nvtx.range", words=("nvtx",))
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
