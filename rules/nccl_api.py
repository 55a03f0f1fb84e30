"""torch.distributed's names for NCCL.

After `import torch_npu`, torch.distributed has Backend.HCCL and is_hccl_available.  ProcessGroupNCCL and its
options have no public counterpart.
"""

from migrator.rule import SAFE, Example, FileMatch, Fix, Import, Name, Report, Rule
from migrator.statements import rename_imported

rule = Rule(
    id="NPU502",
    name="nccl-api",
    title="torch.distributed has HCCL names beside the NCCL ones",
    applicability=SAFE,
    tags=("core", "distributed"),
    examples=[
        Example(
            "import torch.distributed as dist\nimport torch_npu\nif dist.is_nccl_available():\n    b = dist.Backend.NCCL\n",
            "import torch.distributed as dist\nimport torch_npu\nif dist.is_hccl_available():\n    b = dist.Backend.HCCL\n",
        ),
        Example(
            "from torch.distributed import is_nccl_available\nimport torch_npu\nok = is_nccl_available()\n",
            "from torch.distributed import is_hccl_available\nimport torch_npu\nok = is_hccl_available()\n",
        ),
        Example.reported("import torch.distributed as dist\no = dist.ProcessGroupNCCL.Options()\n", "ProcessGroupNCCL"),
        Example.reported("from x.pynccl import PyNcclCommunicator\n", "PyNcclCommunicator"),
    ],
)  # fmt: skip

RENAMED = {
    "torch.distributed.Backend.NCCL": "torch.distributed.Backend.HCCL",
    "torch.distributed.distributed_c10d.Backend.NCCL": "torch.distributed.distributed_c10d.Backend.HCCL",
    "torch.distributed.is_nccl_available": "torch.distributed.is_hccl_available",
}
PROCESS_GROUPS = ("torch.distributed.ProcessGroupNCCL", "torch.distributed.distributed_c10d.ProcessGroupNCCL")


@rule.on_name(*RENAMED)
def rename(match: Name) -> Fix | None:
    new = RENAMED[match.qualified]
    edits = match.rename(new)
    return Fix(edits, f"{match.qualified} → {new}") if edits else None


@rule.on_name(*(f"{name}.*" for name in PROCESS_GROUPS))
def process_group(match: Name) -> Report:
    return Report(
        "ProcessGroupNCCL has no public counterpart for HCCL",
        'Use torch.distributed.new_group(backend="hccl"); NCCL options do not carry over.',
    )


@rule.on_import(*RENAMED)
def rename_import(match: Import) -> Fix | None:
    edits, shown = rename_imported(match, RENAMED)
    return Fix(edits, ", ".join(shown)) if edits else None


@rule.on_file("nccl")
def wrappers(match: FileMatch) -> list[Report]:
    """Classes of other libraries that wrap NCCL itself."""
    return [
        Report(
            f"{binding.name} wraps NCCL directly: there is no such class for HCCL",
            'Use torch.distributed with backend="hccl", or the library\'s own NPU plugin.',
            node=binding.node,
        )
        for binding in match.file.names.import_bindings
        if "nccl" in binding.name.lower() and not (binding.qualified or "").startswith("torch.")
        and not match.file.project.defines(binding.qualified or "")
    ]  # fmt: skip
