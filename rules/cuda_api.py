"""Use torch.npu where code uses torch.cuda.

Every public name of torch.cuda and of its submodules is known with its counterpart, the torch_npu version that
brought it, and the arguments that it takes.  A name that exists in the target version is renamed; a name that
does not (nvtx ranges before 2.11, nccl, comm, cudart, jiterator …) stays and is reported with what to do
instead: a mechanical rename would only move the failure to run time.

`is_available()` that guards CUDA-only machinery stays too, since the NPU must not go down that path.
"""

import libcst as cst

from migrator.moves import destination
from migrator.rule import SAFE, Example, Fix, Name, Report, Rule, rename_or_report
from migrator.statements import attribute_asked_for

rule = Rule(
    id="NPU102",
    name="cuda-api",
    title="torch.cuda functions live in torch.npu",
    applicability=SAFE,
    tags=("core",),
    docs="https://github.com/Ascend/pytorch/tree/master/torch_npu/npu",
    examples=[
        Example(
            "import torch\nimport torch_npu\ntorch.cuda.synchronize()\n",
            "import torch\nimport torch_npu\ntorch.npu.synchronize()\n",
        ),
        Example(
            "import torch as th\nimport torch_npu\ncuda = th.cuda\ncuda.empty_cache()\n",
            "import torch as th\nimport torch_npu\ncuda = th.npu\ncuda.empty_cache()\n",
        ),
        Example(
            "import torch\nimport torch_npu\ng = torch.cuda.CUDAGraph()\n",
            "import torch\nimport torch_npu\ng = torch.npu.NPUGraph()\n",
        ),
        Example(
            "import torch\nimport torch_npu\ng = getattr(torch.cuda, 'CUDAGraph')\nok = hasattr(torch.cuda, 'nccl')\n",
            "import torch\nimport torch_npu\ng = getattr(torch.npu, 'NPUGraph')\nok = hasattr(torch.npu, 'nccl')\n",
        ),
        Example(
            "import torch\nimport torch_npu\nname = torch.cuda.get_device_name(device=d)\n",
            "import torch\nimport torch_npu\nname = torch.npu.get_device_name(device_name=d)\n",
        ),
        Example.reported("import torch\nn = getattr(torch.cuda, 'nccl')\n", "looked up by name"),
        Example.reported("import torch\ntorch.cuda.nvtx.range_push('a')\n", "2.11", target="2.7.1"),
        Example.reported("import torch\ntorch.cuda.nccl.version()\n", "no counterpart"),
        Example.reported("import torch\ng = torch.cuda.CUDAGraph(keep_graph=True)\n", "does not take keep_graph="),
        Example.reported("import torch\ntorch._C._cuda_clearCublasWorkspaces()\n", "private"),
        Example.unchanged("class torch:\n    pass\n\n\ntorch.cuda.synchronize()\n"),
    ],
)


@rule.on_name("torch.cuda.*")
def use_torch_npu(match: Name) -> Fix | Report | None:
    if match.qualified.endswith(("cuda.is_available", "cuda.is_initialized")) and match.guarded:
        return Report(
            f"{match.qualified} stays: {match.guarded}",
            "The NPU must not take this path. Write a branch for it, or let it fall through to the plain one.",
        )
    asked = attribute_asked_for(match)
    if asked is not None and match.destination is not None:
        return _look_up(match, *asked)
    return rename_or_report(match)


def _look_up(match: Name, text: cst.SimpleString, may_lack: bool) -> Fix | Report | None:
    """`hasattr(torch.cuda, "x")`: what torch.npu calls x, or does not have."""
    old, home = str(text.evaluated_value), match.destination
    new = destination(f"{match.qualified}.{old}", match.file.target)
    package, _, name = (new or "").rpartition(".")
    if package == home or (new is None and may_lack):
        edits = match.rename(home or "")
        if new is not None and name != old:
            edits.append(match.replace(text, match.file.tree.text(text).replace(old, name)))
        return Fix(edits, f"{match.qualified} → {home}") if edits else None
    return Report(
        f"{match.qualified}.{old} is looked up by name: {new or 'nothing of torch_npu'} takes its place",
        f"Look up {new} instead." if new else "Keep this out of the way of the NPU.",
    )


@rule.on_name("torch._C.*", words=("_C._cuda", "_C._Cuda", "_C import _cuda"))
def private(match: Name) -> Report | None:
    """torch's private bindings for CUDA."""
    if "cuda" not in match.qualified.lower():
        return None
    return Report(
        f"{match.qualified} is a private part of torch's CUDA side, which an NPU build of torch does not have",
        "Use the public function that stands behind it; `npu-migrate api NAME` tells its NPU counterpart.",
    )
