"""CUDA compute capabilities mean nothing on an NPU.

torch.npu.get_device_capability() returns None (from 2.10 on a number can be set with
TORCH_NPU_DEVICE_CAPABILITY), so code that unpacks, indexes or compares it crashes after a clean rename.  Device
properties have neither `major` and `minor` nor `multi_processor_count`.  torch.version.cuda is None, and code
that parses it fails.
"""

import libcst as cst

from migrator.guards import uses_cuda_only
from migrator.rule import SAFE, Example, Fix, Method, Name, Report, Rule, rename_or_report
from migrator.statements import binding_value

rule = Rule(
    id="NPU110",
    name="device-capability",
    title="there is no compute capability to ask for",
    applicability=SAFE,
    tags=("core", "device"),
    examples=[
        Example.reported("import torch\nif torch.cuda.get_device_capability()[0] >= 8:\n    pass\n", "returns None"),
        Example(
            "import torch\nimport torch_npu\nmajor, minor = torch.cuda.get_device_capability(0)\n",
            "import torch\nimport torch_npu\nmajor, minor = torch.npu.get_device_capability(0)\n",
            reports=("returns None",),
        ),
        Example(
            "import torch\nimport torch_npu\np = torch.cuda.get_device_properties(0)\nn = p.multi_processor_count\nt = p.total_memory\n",
            "import torch\nimport torch_npu\np = torch.npu.get_device_properties(0)\nn = p.multi_processor_count\nt = p.total_memory\n",
            reports=("multi_processor_count",),
        ),
        Example.reported("import torch\nv = torch.version.cuda.split('.')\n", "torch.version.cuda"),
    ],
)  # fmt: skip

REMEDY = (
    "Decide by what the code needs: torch.npu.is_bf16_supported() for bfloat16, torch.npu.get_device_name() for the "
    "chip. NPUs from Ascend910B on do bfloat16."
)
CUDA_ONLY_PROPERTIES = ("major", "minor", "multi_processor_count", "warp_size", "max_threads_per_multi_processor",
                        "regs_per_multiprocessor", "gcnArchName", "is_integrated", "is_multi_gpu_board")  # fmt: skip


@rule.on_name("torch.cuda.get_device_capability")
def capability(match: Name) -> list[Fix | Report] | Report:
    where = match.call.node if match.call else match.node
    report = Report("get_device_capability() returns None on an NPU: what is done with it crashes", REMEDY, node=where)
    statement = match.file.tree.parents.get(where)
    assigned = isinstance(statement, cst.Assign)
    if not assigned or uses_cuda_only(match.file):
        return report
    renamed = rename_or_report(match)
    return [report] if renamed is None else [renamed, report]


@rule.on_method(*CUDA_ONLY_PROPERTIES, words=("get_device_properties",))
def properties(match: Method) -> Report | None:
    source = binding_value(match, match.receiver)
    if not isinstance(source, cst.Call):
        return None
    if (match.file.names.resolve(source.func) or "").rpartition(".")[2] != "get_device_properties":
        return None
    return Report(f"NPU device properties have no {match.attribute}", REMEDY)


@rule.on_name("torch.version.cuda", words=("version.cuda", "torch.version"))
def version(match: Name) -> Report:
    return Report(
        "torch.version.cuda is None on an NPU: parsing or comparing it fails",
        "Guard this code with `torch.version.cuda is not None`, or ask torch_npu.__version__.",
    )
