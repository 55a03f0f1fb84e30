"""Move tensors and modules with `.npu()`.

torch_npu gives Tensor, Module, Storage and PackedSequence an `.npu()` with the arguments of `.cuda()`: called,
bound (`fn = x.cuda`), inside a lambda or as `torch.Tensor.cuda`.  A `cuda()` that a class of your own defines
stays, definition and uses together; a field of an options object (`args.cuda`) stays; an override of
`Module.cuda` is renamed with its callers.
"""

from migrator.owners import OwnerKind
from migrator.rule import INFO, SAFE, Example, FileMatch, Fix, Method, Report, Rule, rename_or_report
from migrator.statements import is_stored, overriding_methods

rule = Rule(
    id="NPU104",
    name="cuda-method",
    title="tensors and modules move to the NPU with .npu()",
    applicability=SAFE,
    tags=("core", "device"),
    examples=[
        Example(
            "import torch\nimport torch_npu\nx = x.cuda(non_blocking=True)\nf = map(lambda t: t.cuda(0), xs)\nfn = x.cuda\n",
            "import torch\nimport torch_npu\nx = x.npu(non_blocking=True)\nf = map(lambda t: t.npu(0), xs)\nfn = x.npu\n",
        ),
        Example.unchanged("if args.cuda and not opt.cuda:\n    pass\n"),
        Example(
            "class Batch:\n    def cuda(self):\n        return self.x.cuda()\n\n\nb = Batch()\nb.cuda()\n",
            "import torch_npu\n\nclass Batch:\n    def cuda(self):\n        return self.x.npu()\n\n\nb = Batch()\nb.cuda()\n",
            reports=("Batch.cuda",),
        ),
        Example(
            "import torch\nimport torch_npu\n\n\nclass Net(torch.nn.Module):\n    def cuda(self, device=None):\n        return super().cuda(device)\n",
            "import torch\nimport torch_npu\n\n\nclass Net(torch.nn.Module):\n    def npu(self, device=None):\n        return super().npu(device)\n",
        ),
        Example.reported("import numba\nnumba.cuda.synchronize()\n", "numba.cuda"),
    ],
)  # fmt: skip

rule.on_name(
    "torch.Tensor.cuda", "torch.nn.Module.cuda", "torch.UntypedStorage.cuda", "torch.TypedStorage.cuda",
    "torch.nn.utils.rnn.PackedSequence.cuda",
)(lambda match: rename_or_report(match))  # fmt: skip


@rule.on_method("cuda")
def move_to_the_npu(match: Method) -> Fix | Report | None:
    if is_stored(match) or match.owner.kind is OwnerKind.OPTION:
        return None
    if match.owner.kind is OwnerKind.USER:
        return Report(
            f"{match.owner.name}.cuda is your own: it stays, with its definition",
            "Check that what it does inside was migrated.",
            INFO,
        )
    if match.owner.kind is OwnerKind.LIBRARY:
        return Report(
            f"{match.owner.name}.cuda belongs to another library, which has no NPU version",
            "Rewrite this part with torch operators, or keep it on the CPU.",
        )
    edits = match.rename(match.file.target.device)
    return Fix(edits, match.change(edits))


@rule.on_file("cuda")
def rename_overrides(match: FileMatch) -> list[Fix]:
    npu = match.file.target.device
    return [
        Fix([match.replace(method.name, npu)], f"{cls}.cuda → {cls}.{npu}: it overrides Module.cuda", node=method.name)
        for cls, method in overriding_methods(match.file, "cuda")
    ]
