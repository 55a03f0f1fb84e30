"""Catch the NPU's out-of-memory error.

`torch.npu.OutOfMemoryError` exists in no version.  torch_npu raises torch.OutOfMemoryError from 2.10 on; before,
a RuntimeError whose text holds "NPU out of memory", so that a handler for torch.cuda.OutOfMemoryError would
never run.  For such a target the handler catches RuntimeError and passes on everything else.  Tests for the
words "CUDA out of memory" change with it.
"""

import libcst as cst

from migrator.rule import SAFE, UNSAFE, Example, Fix, Name, Report, Role, Rule, Text, rename_or_report
from migrator.statements import first_line_edit, handler_of

rule = Rule(
    id="NPU109",
    name="out-of-memory",
    title="running out of NPU memory raises another error",
    applicability=SAFE,
    tags=("core", "memory"),
    docs="https://docs.pytorch.org/docs/stable/generated/torch.OutOfMemoryError.html",
    examples=[
        Example(
            "import torch\nimport torch_npu\ntry:\n    f()\nexcept torch.cuda.OutOfMemoryError:\n    g()\n",
            "import torch\nimport torch_npu\ntry:\n    f()\nexcept torch.OutOfMemoryError:\n    g()\n",
            target="2.10.0",
        ),
        Example(
            "import torch\nimport torch_npu\ntry:\n    f()\nexcept torch.cuda.OutOfMemoryError:\n    g()\n",
            "import torch\nimport torch_npu\ntry:\n    f()\nexcept RuntimeError as error:\n"
            '    if "out of memory" not in str(error):\n        raise\n    g()\n',
            target="2.7.1",
        ),
        Example.reported(
            "import torch\nx = isinstance(e, torch.cuda.OutOfMemoryError)\n", "out of memory", target="2.7.1"
        ),
        Example("if 'CUDA out of memory' in str(e):\n    pass\n", "if 'NPU out of memory' in str(e):\n    pass\n"),
        Example.unchanged("log.error('CUDA out of memory')\n"),
    ],
)


@rule.on_name("torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError")
def catch(match: Name) -> Fix | Report | None:
    if match.file.target.at_least("2.10"):
        return rename_or_report(match) if "cuda" in match.qualified else None
    handler = handler_of(match)
    if handler is not None:
        name = handler.name.name.value if handler.name and isinstance(handler.name.name, cst.Name) else None
        error = name or match.file.names.unused("error")
        guard = f"if {match.literal('out of memory')} not in str({error}):"
        edits = [
            match.replace(match.node, "RuntimeError" if name else f"RuntimeError as {error}"),
            first_line_edit(match, handler, [guard, "    raise"]),
        ]
        return Fix(edits, f"{match.qualified} → RuntimeError with 'out of memory' in its text", needs=())
    version = match.file.target.torch_npu
    return Report(
        f"torch_npu {version} never raises {match.qualified} when it runs out of memory",
        'Catch RuntimeError, and test `"out of memory" in str(error)`; torch.OutOfMemoryError comes with 2.10.',
    )


@rule.on_string("out of memory")
def test_the_message(match: Text) -> Fix | None:
    if "CUDA out of memory" not in match.value or match.is_bytes:
        return None
    edits = match.replace_words("CUDA(?= out of memory)", "NPU")
    if match.role("device").role is not Role.COMPARED:
        return None
    sure = match.value.strip(".! ") == "CUDA out of memory"
    return Fix(edits, match.change(edits), applicability=SAFE if sure else UNSAFE, needs=())
