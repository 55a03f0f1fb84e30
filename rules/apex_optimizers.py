"""Replace apex's fused optimizers, which need CUDA, by torch's.

FusedAdam is AdamW unless adam_w_mode=False, with a weight decay of 0 where torch's default is 0.01; its arguments stand
in another order.  FusedSGD and FusedAdagrad are SGD and Adagrad.  Where nothing speaks against it,
fused-optimizer goes on to the fused class of torch_npu.

apex computed in float32 for float16 parameters too; torch does not: keep parameters in float32, under autocast.
FusedLAMB and FusedNovoGrad have no counterpart: NpuFusedLamb is another LAMB.
"""

from dataclasses import dataclass

import libcst as cst

from migrator.moves import Move
from migrator.names import Binding
from migrator.rule import ERROR, INFO, SAFE, Call, Edit, Example, Fix, Import, Name, Report, Rule
from migrator.statements import drop_arguments, falls_back, split_import

rule = Rule(
    id="NPU203",
    name="apex-optimizers",
    title="apex's fused optimizers need CUDA",
    applicability=SAFE,
    tags=("optimizer", "third-party"),
    severity=ERROR,
    docs="https://nvidia.github.io/apex/optimizers.html",
    examples=[
        Example(
            "import torch_npu\nfrom apex.optimizers import FusedAdam\nopt = FusedAdam(net.parameters(), 1e-3, True)\n",
            "import torch_npu\nfrom torch.optim import AdamW\nopt = AdamW(net.parameters(), 1e-3, weight_decay=0.0)\n",
        ),
        Example(
            "import torch\nimport torch_npu\nimport apex\nopt = apex.optimizers.FusedSGD(p, 0.1, set_grad_none=True)\n",
            "import torch\nimport torch_npu\nimport apex\nopt = torch.optim.SGD(p, 0.1)\n",
        ),
        Example.reported(
            "from apex.optimizers import FusedAdam\nopt = FusedAdam(p, adam_w_mode=mode)\n", "adam_w_mode="
        ),
        Example.reported("from apex.optimizers import FusedLAMB\nopt = FusedLAMB(p)\n", "FusedLAMB needs CUDA"),
        Example.reported(
            "try:\n    from apex.optimizers import FusedAdam\nexcept ImportError:\n    FusedAdam = None\n", "falls back"
        ),
        Example.unchanged("from .apex.optimizers import FusedAdam\n"),
    ],
)  # fmt: skip

ADAM = ("lr", "bias_correction", "betas", "eps", "adam_w_mode", "weight_decay", "amsgrad", "set_grad_none",
        "capturable", "master_weights")  # fmt: skip
SGD = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "wd_after_momentum", "materialize_master_grads",
       "set_grad_none")  # fmt: skip
ADAGRAD = ("lr", "eps", "weight_decay", "set_grad_none", "adagrad_w_mode")
# apex's class → its parameters behind `params`, torch's class, torch's parameters where the order is the same.
CLASSES = {
    "FusedAdam": (ADAM, "AdamW", ADAM[:1]),
    "FusedSGD": (SGD, "SGD", SGD[:5]),
    "FusedAdagrad": (ADAGRAD, "Adagrad", ADAGRAD[:1]),
}
# Values under which an argument changes nothing that torch does not do.
NEUTRAL = {"bias_correction": "True", "amsgrad": "False", "capturable": "False", "master_weights": "False",
           "wd_after_momentum": "False", "adagrad_w_mode": "False"}  # fmt: skip
DROPPED = {*NEUTRAL, "adam_w_mode", "materialize_master_grads", "set_grad_none"}
REMEDY = (
    "Use an optimizer of torch.optim, or this one from the apex fork that Ascend maintains. NpuFusedLamb is another "
    "LAMB: no bias correction, no clipping, and the weight norm is clamped to 10."
)


@dataclass(frozen=True)
class Rewrite:
    """What a call becomes: a class of torch.optim, and the edits of its arguments."""

    qualified: str
    edits: list[Edit]


@rule.on_import("apex")
def change_import(match: Import) -> list[Fix | Report]:
    """`from apex.optimizers import FusedAdam` changes with all calls of it, or stays."""
    names = match.file.names
    bindings = [b for b in match.bindings if f"{names.imported_name(b)}.".startswith("apex.optimizers.")]
    if not bindings or match.file.project.defines("apex") or getattr(match.node, "relative", ()):
        return []
    if falls_back(match.file, match.node):
        return [Report("apex.optimizers needs CUDA: the code falls back", "Check that the other way is right.", INFO)]
    return [_change(match, binding) for binding in bindings]


def _change(match: Import, binding: Binding) -> Fix | Report:
    file, name, statement = match.file, match.file.names.imported_name(binding), match.node
    rewrites = [(use, rewrite(Name(file, use.node, use, use.qualified))) for use in file.names.uses(binding)]
    made = [(use, found) for use, found in rewrites if isinstance(found, Rewrite)]
    kinds = {found.qualified for _, found in made}
    if isinstance(statement, cst.Import) or len(made) < len(rewrites) or len(kinds) != 1:
        why = next((f": {found}" for _, found in rewrites if isinstance(found, str)), "")
        return Report(f"{name} needs CUDA{why}", REMEDY, node=binding.node)
    new = kinds.pop()
    last = new.rpartition(".")[2]
    keep = file.names.is_bound(last) or file.project.is_imported_elsewhere(file.path, binding.name)
    spelled = binding.name if keep else last
    edits = split_import(match, statement, {binding.node: Move(new, spelled)})
    for use, found in made:
        edits += [match.replace(use.node, spelled), *found.edits]
    return Fix(edits, f"{name} → {new}", needs=(), again=True)


@rule.on_name("apex.optimizers.*", words=("apex",))
def change_use(match: Name) -> Fix | Report | None:
    """`apex.optimizers.FusedAdam(…)`, where the import itself cannot change."""
    alias = match.reference.binding.node if match.reference.binding is not None else None
    by_name = isinstance(alias, cst.ImportAlias) and not match.reference.parts
    if match.call is None or by_name or match.file.project.defines("apex"):
        return None
    found = rewrite(match)
    if isinstance(found, str):
        return Report(f"{match.qualified} needs CUDA: {found}", REMEDY)
    if not any(binding.name == binding.qualified == "torch" for binding in match.file.names.import_bindings):
        return Report(f"{match.qualified} needs CUDA", f"Import torch, and use {found.qualified}.")
    edits = [match.replace(match.node, found.qualified), *found.edits]
    return Fix(edits, f"{match.qualified} → {found.qualified}", again=True)


def rewrite(match: Name) -> Rewrite | str:
    """What a use becomes, or why it cannot."""
    name = match.qualified.rpartition(".")[2]
    if match.call is None:
        return "it is used without being called"
    if name not in CLASSES:
        return f"torch has no {name.removeprefix('Fused')} of this kind"
    parameters, new, same = CLASSES[name]
    if match.call.has_star or not match.call.positional:
        return "its arguments are not written out"
    given = dict(zip(parameters, match.call.positional[1:], strict=False)) | match.call.keywords
    texts = {key: match.file.tree.text(arg.value) for key, arg in given.items()}
    if texts.get("adam_w_mode", "True") != "True":
        if texts["adam_w_mode"] != "False":
            return f"adam_w_mode={texts['adam_w_mode']} decides between AdamW and Adam"
        new = "Adam"
    if refused := [f"{key}={texts[key]}" for key, value in NEUTRAL.items() if texts.get(key, value) != value]:
        return f"{new} has no {', '.join(refused)}"
    decay = new == "AdamW" and "weight_decay" not in given
    return Rewrite(f"torch.optim.{new}", _arguments(match.call, given, same, decay))


def _arguments(call: Call, given: dict[str, cst.Arg], same: tuple[str, ...], decay: bool) -> list[Edit]:
    """Name what stands elsewhere in torch, take out what torch does not have, and write apex's weight decay of 0."""
    dropped = [arg for key, arg in given.items() if key in DROPPED]
    edits = [
        call.name_argument(arg, key)
        for key, arg in given.items()
        if arg.keyword is None and key not in same and arg not in dropped
    ]
    if decay and dropped:
        edits.append(Edit(*call.file.tree.span(dropped.pop()), "weight_decay=0.0"))
    elif decay:
        edits.append(call.append("weight_decay=0.0"))
    return [*edits, *drop_arguments(call.file, call.node, dropped)]
