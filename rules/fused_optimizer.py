"""Step with torch_npu's fused optimizers where the repository proves that they do the same.

torch.optim works on NPUs.  NpuFusedAdam and its kind compute the same with a few kernels on one long buffer, where
torch.optim launches many small ones.  The buffer is their weakness: it is put together from the parameters and
gradients of the first step, and whatever gets new memory later is lost, mostly without an error.
`model.zero_grad()` is enough: from then on every step repeats old gradients.

So a wrong optimizer is a silent disaster and a slow one is not.  The rewrite is made only where nothing in the
program speaks against it: all modules that lead to the file and all that they import.  What does is told with its
place, and `--unsafe` forces the rewrite.

`fused=True` of torch.optim follows torch's own rules and has NPU kernels for AdamW (torch_npu 2.5.1), Adam and SGD
(2.12).  It is the forced rewrite where it is possible, but not the default: its kernels ignore a GradScaler (AdamW) or
need momentum (SGD), and nobody can try them without the hardware.
"""

import libcst as cst

from migrator.fused import against, refused, uses_device
from migrator.rule import INFO, SAFE, UNSAFE, WARNING, Edit, Example, Fix, Name, Report, Rule
from migrator.statements import drop_imported, falls_back

IMPORTS = "import torch\nimport torch_npu\n"
LOOP = "for x in data:\n    opt.zero_grad()\n    net(x.cuda()).sum().backward()\n    opt.step()\n"
NPU_LOOP = LOOP.replace("cuda", "npu")
STALE = LOOP.replace("opt.zero_grad", "net.zero_grad")

rule = Rule(
    id="NPU201",
    name="fused-optimizer",
    title="torch_npu's fused optimizers are faster, where nothing breaks their buffer",
    applicability=SAFE,
    tags=("optimizer", "performance"),
    severity=INFO,
    docs="https://github.com/Ascend/op-plugin/tree/master/docs/zh/custom_APIs/torch_npu-optim",
    examples=[
        Example(
            f"{IMPORTS}opt = torch.optim.Adam(net.parameters(), lr=1e-3)\n{LOOP}",
            f"{IMPORTS}opt = torch_npu.optim.NpuFusedAdam(net.parameters(), lr=1e-3)\n{NPU_LOOP}",
        ),
        Example(
            f"import torch_npu\nfrom torch.optim import SGD\nopt = SGD(net.parameters(), 0.1)\n{NPU_LOOP}",
            f"import torch_npu\nopt = torch_npu.optim.NpuFusedSGD(net.parameters(), 0.1)\n{NPU_LOOP}",
        ),
        Example(
            f"from torch.optim import SGD\nimport torch_npu\nopt = SGD(net.parameters(), 0.1, 0.9)\n{STALE}",
            f"from torch.optim import SGD\nimport torch_npu\nopt = SGD(net.parameters(), 0.1, 0.9)\n"
            f"{STALE.replace('cuda', 'npu')}",
            reports=("net.zero_grad() drops the gradients' memory (example.py:5)",),
        ),
        Example(
            f"{IMPORTS}opt = torch.optim.AdamW(net.parameters())\n{STALE}",
            f"{IMPORTS}opt = torch.optim.AdamW(net.parameters(), fused=True)\n"
            f"{STALE.replace('cuda', 'npu')}",
            unsafe=True,
        ),
        Example(
            f"{IMPORTS}opt = torch.optim.Adam(net.parameters(), foreach=True)\n{LOOP}",
            f"{IMPORTS}opt = torch.optim.Adam(net.parameters(), foreach=True)\n{NPU_LOOP}",
            reports=("does not take foreach=",),
        ),
        Example(
            f"{IMPORTS}from train import step\nopt = torch.optim.Adam(net.parameters())\n"
            "step(opt, net.cuda())\n",
            f"{IMPORTS}from train import step\nopt = torch.optim.Adam(net.parameters())\n"
            "step(opt, net.npu())\n",
            reports=("optimizer.load_state_dict() is ignored after the first step (train.py:2)",),
            files=(("train.py", "def step(optimizer, net):\n    optimizer.load_state_dict(torch.load('a'))\n"
                                "    optimizer.zero_grad()\n    optimizer.step()\n"),),
        ),
        Example(
            f"{IMPORTS}opt = torch_npu.optim.NpuFusedSGD(net.parameters(), 0.1)\n{STALE}",
            f"{IMPORTS}opt = torch_npu.optim.NpuFusedSGD(net.parameters(), 0.1)\n"
            f"{STALE.replace('cuda', 'npu')}",
            reports=("net.zero_grad()",),
        ),
        Example.reported(
            f"import torch\nopt = torch_npu.optim.NpuFusedSGD(net.parameters(), 0.1)\n{NPU_LOOP}"
            "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n",
            "clip_grad_norm_ works",
        ),
        Example.unchanged("import torch\nopt = torch.optim.Adam(net.parameters())\nopt.step()\n"),
    ],
)  # fmt: skip

NOTHING = "Nothing has to be done."
CLASSES = ("SGD", "Adam", "AdamW", "RMSprop", "Adadelta")
KERNELS = {"AdamW": "2.5.1", "Adam": "2.12", "SGD": "2.12"}  # fused=True runs on the NPU from here on


@rule.on_name(*(f"{module}.{name}" for name in CLASSES for module in ("torch.optim", f"torch.optim.{name.lower()}")))
def use_fused(match: Name) -> Fix | Report | None:
    call, name = match.call, match.qualified.rpartition(".")[2]
    if call is None or call.has_star or "fused" in call.keywords or not uses_device(match):
        return None
    new = f"torch_npu.optim.NpuFused{name}"
    stays = f"{match.qualified} works on NPUs and stays. {new} is faster"
    if (why := refused(match, new)) is not None:
        return Report(f"{stays}, but cannot take its place: {why}", NOTHING)
    reasons = against(match)
    if not reasons:
        edits = [*match.rename(new), *_unused_import(match)]
        return Fix(edits, f"{match.qualified} → {new}, which does the same in fewer kernels", _hint(match))
    doubt = "would train wrongly" if reasons[0].sure else "is not sure to train the same"
    message = f"{stays}, but {doubt}: {reasons[0]}"
    if _has_kernel(match, name) and not any(reason.kernel for reason in reasons):
        remedy = f"{NOTHING} For speed, --unsafe adds fused=True: one NPU kernel that follows torch's own rules."
        return Fix([call.append("fused=True")], message, remedy, UNSAFE)
    remedy = f"{NOTHING} The fused class keeps all gradients in one buffer of its own; --unsafe writes it all the same."
    return Fix([*match.rename(new), *_unused_import(match)], message, remedy, UNSAFE)


@rule.on_name(*(f"torch_npu.optim.NpuFused{name}" for name in CLASSES))
def broken_buffer(match: Name) -> Report | None:
    """What surely breaks a fused optimizer that the code has already."""
    reasons = against(match) if match.call is not None else []
    if not reasons or not reasons[0].sure:
        return None
    return Report(
        f"{match.qualified} goes wrong: {reasons[0]}",
        "Use optimizer.zero_grad(), which leaves gradients where they are, or go back to torch.optim.",
        WARNING,
    )


@rule.on_name("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
def clip_in_the_buffer(match: Name) -> Report | None:
    modules = match.file.project.programs.around(match.file.path)
    made = [one for module in modules if module.training is not None for one in module.training.made]
    if match.call is None or not any(one.fused for one in made):
        return None
    return Report(
        "clip_grad_norm_ works beside a fused optimizer, but goes through all gradients one by one",
        "Where it clips just the parameters of one optimizer, optimizer.clip_grad_norm_fused_(max_norm) is faster.",
    )


def _unused_import(match: Name) -> list[Edit]:
    """Edits that take the class out of the import that nothing else uses."""
    file, binding = match.file, match.reference.binding
    if binding is None or not isinstance(file.tree.parents.get(binding.node), cst.ImportFrom):
        return []
    alone = len(file.names.uses(binding)) == 1 and binding.qualified == match.qualified
    kept = file.project.is_imported_elsewhere(file.path, binding.name) or falls_back(file, binding.node)
    return drop_imported(file, [binding.node]) if alone and not kept else []


def _has_kernel(match: Name, name: str) -> bool:
    """Whether fused=True runs on the NPU; SGD's kernel refuses to work without momentum."""
    if match.call is None or name not in KERNELS or not match.file.target.at_least(KERNELS[name]):
        return False
    momentum = match.call.argument(2, "momentum")
    value = momentum.value if momentum is not None else None
    return name != "SGD" or (isinstance(value, cst.Float) and value.evaluated_value > 0)


def _hint(match: Name) -> str:
    """What to know of a rewritten optimizer."""
    modules = match.file.project.programs.around(match.file.path)
    clips = [f"{m.path}:{line}" for m in modules if m.training is not None for line in m.training.clips]
    hint = "It steps parameters on the NPU only: a run on the CPU needs torch.optim."
    if clips:
        hint += f" clip_grad_norm_ ({clips[0]}) works; optimizer.clip_grad_norm_fused_(max_norm) is faster."
    return hint
