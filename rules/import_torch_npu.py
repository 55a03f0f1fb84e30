"""Import torch_npu in every file that now uses the NPU.

`torch.npu`, `.npu()` and the device string "npu" exist only once `torch_npu` has been imported.  Newer
torch (2.5 and up) loads it by itself unless TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set; older versions never do.
An explicit import works with all of them.

It goes right behind the first import of torch that runs: behind the whole `try:` when torch is imported in
one, into the functions where torch is only imported inside functions, never inside `TYPE_CHECKING`.  In a repository
with ruff, flake8, autoflake or pycln it ends with `# noqa: F401` where nothing else names torch_npu.
"""

from migrator.imports import place
from migrator.rule import SAFE, Example, FileMatch, Fix, Rule

rule = Rule(
    id="NPU100",
    name="import-torch-npu",
    title="torch knows the NPU only after `import torch_npu`",
    applicability=SAFE,
    tags=("core",),
    examples=[
        Example("import torch\nx = torch.device('cuda')\n", "import torch\nimport torch_npu\nx = torch.device('npu')\n"),
        Example(
            "try:\n    import torch\nexcept ImportError:\n    torch = None\n\nx = torch.cuda.is_available()\n",
            "try:\n    import torch\nexcept ImportError:\n    torch = None\nimport torch_npu\n\n"
            "x = torch.npu.is_available()\n",
        ),
        Example(
            "def f():\n    import torch\n    return torch.cuda.device_count()\n",
            "def f():\n    import torch\n    import torch_npu\n    return torch.npu.device_count()\n",
        ),
        Example(
            '"""Doc."""\nfrom __future__ import annotations\n\n\ndef f(x):\n    return x.cuda()\n',
            '"""Doc."""\nfrom __future__ import annotations\nimport torch_npu\n\n\ndef f(x):\n    return x.npu()\n',
        ),
    ],
)


@rule.on_change()
def import_torch_npu(match: FileMatch) -> Fix | None:
    fixes = [(fix, node) for fix, node in match.fixes if fix.needs is not None]
    if not fixes:
        return None
    nodes = [node for _, node in fixes]
    required = any("torch_npu" in (fix.needs or ()) for fix, _ in fixes)
    edits = place(match.file, nodes, [edit for fix, _ in fixes for edit in fix.edits], required)
    return Fix(edits, "import torch_npu, which teaches torch the NPU") if edits else None
