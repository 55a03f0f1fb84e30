"""Calls of nvidia-smi.

The command is not there on a host with NPUs, and `npu-smi info` prints another table: a command in code is
reported, a mention in a message is not.
"""

import re

from migrator.rule import MANUAL, Example, Report, Role, Rule, Text

rule = Rule(
    id="NPU809",
    name="nvidia-smi",
    title="nvidia-smi does not exist on a host with NPUs",
    applicability=MANUAL,
    tags=("third-party",),
    examples=[
        Example.reported(
            "import os\nout = os.popen('nvidia-smi --query-gpu=memory.used --format=csv')\n", "nvidia-smi"
        ),
        Example.reported("subprocess.check_output(['nvidia-smi', '-L'])\n", "nvidia-smi"),
        Example.unchanged('"""See nvidia-smi."""\nprint("nvidia-smi says so")\nraise OSError("no nvidia-smi")\n'),
    ],
)

COMMAND = re.compile(r"(^|[|;&(/]\s*)nvidia-smi\b")


@rule.on_string("nvidia-smi")
def command(match: Text) -> Report | None:
    if not COMMAND.search(match.value) or match.role("device").role is Role.WORDS:
        return None
    row = match.file.target.mapping("pkg:nvidia-smi (subprocess)")
    return Report("nvidia-smi does not exist on a host with NPUs", (row.remedy if row else None) or "")
