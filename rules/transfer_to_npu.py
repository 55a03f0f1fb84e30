"""The vendor's runtime patch.

`from torch_npu.contrib import transfer_to_npu` replaces torch.cuda by torch.npu while the program runs.  Migrated
code does not need it, and it has side effects: torch.jit.script returns what it is given, so that nothing is
scripted; torch.cuda.is_available() is True, which sends other libraries down their CUDA branches; DataParallel
and parts of torch.distributed fail.  Taking the import out is left to `--unsafe`, since it may still carry what
could not be migrated.
"""

import libcst as cst

from migrator.rule import UNSAFE, Example, Fix, Import, Report, Rule
from migrator.statements import drop_imported

rule = Rule(
    id="NPU710",
    name="transfer-to-npu",
    title="migrated code does not need the runtime patch, which also switches torch.jit.script off",
    applicability=UNSAFE,
    tags=("performance", "compile"),
    examples=[
        Example(
            "import torch\nimport torch_npu\nfrom torch_npu.contrib import transfer_to_npu\nx = torch.ones(2).npu()\n",
            "import torch\nimport torch_npu\nx = torch.ones(2).npu()\n",
            unsafe=True,
        ),
        Example.reported("import torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n", "transfer_to_npu"),
        Example.reported(
            "from torch_npu.contrib.transfer_to_npu import *\nf = torch.jit.script(f)\n", "jit.script off"
        ),
    ],
)


@rule.on_import("torch_npu.contrib.transfer_to_npu")
def take_out(match: Import) -> Fix | Report:
    scripts = "jit.script" in match.file.source.text
    message = "transfer_to_npu patches torch.cuda at run time" + (
        ", and switches torch.jit.script off" if scripts else ""
    )
    remedy = (
        "Migrated code does not need it: take the import out when the other findings are dealt with (--unsafe does)."
    )
    aliases = [binding.node for binding in match.bindings]
    if any(isinstance(alias, cst.ImportStar) for alias in aliases):
        return Report(message, remedy)
    return Fix(drop_imported(match.file, aliases), message, remedy, needs=())
