"""Communicate over HCCL.

The backend string "nccl" becomes "hccl": in init_process_group, new_group, backend maps such as
"cpu:gloo,cuda:nccl", option defaults and choices, and comparisons with get_backend().
"""

import re

from migrator.rule import SAFE, Example, Fix, Report, Role, Rule, Text

rule = Rule(
    id="NPU501",
    name="nccl-backend",
    title="the NPU's communication backend is hccl",
    applicability=SAFE,
    tags=("core", "distributed"),
    examples=[
        Example(
            "import torch.distributed as dist\nimport torch_npu\ndist.init_process_group('nccl')\n",
            "import torch.distributed as dist\nimport torch_npu\ndist.init_process_group('hccl')\n",
        ),
        Example(
            "import torch.distributed as dist\nimport torch_npu\ndist.init_process_group(backend='cpu:gloo,cuda:nccl')\n",
            "import torch.distributed as dist\nimport torch_npu\ndist.init_process_group(backend='cpu:gloo,npu:hccl')\n",
        ),
        Example(
            "p.add_argument('--dist-backend', default='nccl', choices=['nccl', 'gloo'], help='nccl or gloo')\n",
            "p.add_argument('--dist-backend', default='hccl', choices=['hccl', 'gloo'], help='nccl or gloo')\n",
        ),
        Example.unchanged("print('nccl')\nstats['nccl'] = 1\n"),
    ],
)  # fmt: skip

BACKEND = re.compile(r"(?i:nccl)|((cpu|cuda):\w+,?)+")


@rule.on_string("nccl")
def use_hccl(match: Text) -> Fix | Report | None:
    if match.is_bytes or not BACKEND.fullmatch(match.value):
        return None
    verdict = match.role("backend")
    if verdict.role in (Role.KEY, Role.WORDS, Role.NAME):
        return None
    target = match.file.target
    words = {"nccl": target.backend, "NCCL": target.backend.upper(), "cuda": target.device}
    edits = [edit for old, new in words.items() for edit in match.replace_words(rf"\b{old}\b", new)]
    if not edits:
        return Report("the backend's name is put together from pieces", f"Write {target.backend!r} in one piece.")
    return Fix(edits, match.change(edits), needs=())
