"""Ask tensors `.is_npu`.

`tensor.is_cuda` is False for a tensor on the NPU: the fast path is refused, or the wrong branch taken, without
an error.  A test that guards CUDA-only machinery keeps its `is_cuda`, and a property of that name in a class
of your own stays with its uses; in a Module or Tensor class it is renamed with them.
"""

import libcst as cst

from migrator.owners import OwnerKind
from migrator.rule import INFO, SAFE, Example, FileMatch, Fix, Method, Report, Rule, rename_or_report
from migrator.statements import is_stored, overriding_methods

rule = Rule(
    id="NPU105",
    name="is-cuda",
    title="tensor.is_cuda is False on the NPU",
    applicability=SAFE,
    tags=("core", "device"),
    examples=[
        Example(
            "import torch\nimport torch_npu\nif x.is_cuda:\n    y = x\n",
            "import torch\nimport torch_npu\nif x.is_npu:\n    y = x\n",
        ),
        Example(
            "import torch\nimport torch_npu\n\n\nclass Net(torch.nn.Module):\n    @property\n"
            "    def is_cuda(self):\n        return self.w.is_cuda\n\n\nok = Net().is_cuda\n",
            "import torch\nimport torch_npu\n\n\nclass Net(torch.nn.Module):\n    @property\n"
            "    def is_npu(self):\n        return self.w.is_npu\n\n\nok = Net().is_npu\n",
        ),
        Example.reported("import my_ext\nif x.is_cuda:\n    my_ext.forward(x)\n", "compiled extension"),
        Example.unchanged("class A:\n    def __init__(self):\n        self.is_cuda = True\n\n    def f(self):\n        return self.is_cuda\n"),
    ],
)  # fmt: skip

rule.on_name("torch.Tensor.is_cuda", "torch.UntypedStorage.is_cuda", "torch.TypedStorage.is_cuda")(
    lambda match: rename_or_report(match)
)


@rule.on_method("is_cuda")
def ask_for_the_npu(match: Method) -> Fix | Report | None:
    if is_stored(match) or match.owner.kind in (OwnerKind.OPTION, OwnerKind.LIBRARY):
        return None
    if match.owner.kind is OwnerKind.USER:
        return Report(
            f"{match.owner.name}.is_cuda is your own: it stays, with its definition",
            "Check that its callers mean the NPU as well.",
            INFO,
        )
    if match.guarded:
        return Report(
            f"{match.text} stays: {match.guarded}",
            "The NPU must not take this path. Write a branch for it, or let it fall through to the plain one.",
        )
    npu = f"is_{match.file.target.device}"
    edits = match.rename(npu)
    return Fix(edits, match.change(edits))


@rule.on_file("is_cuda")
def rename_overrides(match: FileMatch) -> list[Fix]:
    npu, found = f"is_{match.file.target.device}", []
    for cls, method in overriding_methods(match.file, "is_cuda"):
        setters = [d.decorator.value for d in method.decorators if isinstance(d.decorator, cst.Attribute)]
        names = [method.name, *(s for s in setters if isinstance(s, cst.Name) and s.value == "is_cuda")]
        edits = [match.replace(name, npu) for name in names]
        found.append(Fix(edits, f"{cls}.is_cuda → {cls}.{npu}, as tensors have it", node=method.name))
    return found
