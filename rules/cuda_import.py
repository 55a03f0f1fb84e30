"""Import from torch_npu what was imported from torch.cuda.

The import statement and the uses of what it binds change together.  Where some of the names have no
counterpart, they stay behind in the old statement, and the others move to a new one.  `torch_npu.npu` is
imported rather than `torch.npu`, which is no module before torch_npu has been imported.
"""

from migrator.rule import SAFE, Example, Fix, Import, Report, Rule
from migrator.statements import rewrite_import

rule = Rule(
    id="NPU103",
    name="cuda-import",
    title="what torch.cuda offers is imported from torch_npu.npu",
    applicability=SAFE,
    tags=("core",),
    examples=[
        Example("from torch.cuda.amp import autocast, GradScaler\n", "from torch_npu.npu.amp import autocast, GradScaler\n"),
        Example(
            "import torch\nfrom torch import cuda, nn\ncuda.synchronize()\n",
            "import torch\nimport torch_npu\nfrom torch import nn\nfrom torch_npu import npu\nnpu.synchronize()\n",
        ),
        Example(
            "import torch.cuda as tc\ntc.synchronize()\n",
            "import torch_npu.npu as tc\ntc.synchronize()\n",
        ),
        Example("import torch.cuda\nx = torch.cuda.current_device()\n", "import torch\nimport torch_npu\nx = torch.npu.current_device()\n"),
        Example(
            "from torch.cuda import nccl, Stream\nnccl.version()\ns = Stream()\n",
            "from torch.cuda import nccl\nfrom torch_npu.npu import Stream\nnccl.version()\ns = Stream()\n",
            reports=("nccl stays", "nccl.version has no counterpart"),
        ),
        Example("from torch.cuda import *\nsynchronize()\n", "from torch_npu.npu import *\nsynchronize()\n"),
    ],
)  # fmt: skip


@rule.on_import("torch.cuda")
def import_from_torch_npu(match: Import) -> list[Fix | Report]:
    moved, stays = rewrite_import(match)
    found: list[Fix | Report] = []
    if moved.edits:
        found.append(Fix(moved.edits, match.change(moved.edits)))
    found += [
        Report(
            f"{name} stays: not every use of it has a counterpart in torch_npu {match.file.target.torch_npu}",
            "See the findings at its uses; where there are none, remove the import.",
        )
        for name in stays
    ]
    return found
