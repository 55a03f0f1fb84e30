"""Modules of apex that torch has too.

apex cannot be installed without CUDA.  FusedLayerNorm, SyncBatchNorm and convert_syncbn_model are torch.nn's under
other names, as long as no argument is given that only apex has.  FusedRMSNorm is torch.nn.RMSNorm with another
default for eps, DistributedDataParallel is torch's without delays of its own: those two wait for `--unsafe`.  An
import with a fallback is left working.
"""

from dataclasses import dataclass

import libcst as cst

from migrator.moves import Move
from migrator.names import Reference
from migrator.rule import (
    ERROR,
    INFO,
    SAFE,
    UNSAFE,
    Call,
    Edit,
    Example,
    Fix,
    Import,
    Match,
    Name,
    Report,
    Rule,
    call_of,
)
from migrator.statements import falls_back, split_import

rule = Rule(
    id="NPU804",
    name="apex-modules",
    title="apex's layers and wrappers are in torch",
    applicability=SAFE,
    tags=("third-party", "apex"),
    severity=ERROR,
    docs="https://docs.pytorch.org/docs/stable/nn.html",
    examples=[
        Example(
            "from apex.normalization import FusedLayerNorm as LN\nn = LN(8, eps=1e-6)\n",
            "from torch.nn import LayerNorm as LN\nn = LN(8, eps=1e-6)\n",
        ),
        Example(
            "import torch\nimport torch_npu\nimport apex\nnet = apex.parallel.convert_syncbn_model(net)\n",
            "import torch\nimport torch_npu\nimport apex\nnet = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)\n",
        ),
        Example(
            "from apex.parallel import convert_syncbn_model, LARC\nnet = convert_syncbn_model(net)\n",
            "from apex.parallel import LARC\nfrom torch.nn import SyncBatchNorm\n"
            "net = SyncBatchNorm.convert_sync_batchnorm(net)\n",
            reports=("apex.parallel.LARC",),
        ),
        Example(
            "from apex.parallel import DistributedDataParallel as DDP\nnet = DDP(net, delay_allreduce=True)\n",
            "from torch.nn.parallel import DistributedDataParallel as DDP\nnet = DDP(net)\n",
            unsafe=True,
        ),
        Example(
            "from apex.normalization import FusedRMSNorm\nn = FusedRMSNorm(8)\n",
            "from torch.nn import RMSNorm as FusedRMSNorm\nn = FusedRMSNorm(8, eps=1e-5)\n",
            unsafe=True,
        ),
        Example.reported("from apex.parallel import DistributedDataParallel as DDP\nnet = DDP(net)\n", "→"),
        Example.reported(
            "from apex.normalization import FusedLayerNorm\nn = FusedLayerNorm(8, memory_efficient=True)\n",
            "memory_efficient",
        ),
        Example.reported(
            "try:\n    from apex.normalization import FusedLayerNorm\nexcept ImportError:\n    FusedLayerNorm = None\n",
            "falls back",
        ),
    ],
)  # fmt: skip


@dataclass(frozen=True)
class Twin:
    """What torch has in the place of something of apex.

    parameters  of torch's, in order: arguments of other names are refused
    dropped     arguments of apex that only tune it
    added       an argument that makes torch's default apex's
    """

    name: str
    parameters: tuple[str, ...]
    dropped: frozenset[str] = frozenset()
    added: str | None = None
    torch: str = "2.1"

    @property
    def is_exact(self) -> bool:
        """Whether it can also take the place where it is not called."""
        return not self.dropped and not self.added


NORM = ("normalized_shape", "eps", "elementwise_affine")
LAYER_NORM = Twin("torch.nn.LayerNorm", NORM)
RMS_NORM = Twin("torch.nn.RMSNorm", NORM, added="eps=1e-5", torch="2.4")
DDP = Twin("torch.nn.parallel.DistributedDataParallel", ("module",), frozenset({"message_size", "delay_allreduce"}))
BATCH_NORM = ("num_features", "eps", "momentum", "affine", "track_running_stats", "process_group")
TWINS = {
    "apex.normalization.FusedLayerNorm": LAYER_NORM,
    "apex.normalization.fused_layer_norm.FusedLayerNorm": LAYER_NORM,
    "apex.normalization.FusedRMSNorm": RMS_NORM,
    "apex.normalization.fused_layer_norm.FusedRMSNorm": RMS_NORM,
    "apex.parallel.SyncBatchNorm": Twin("torch.nn.SyncBatchNorm", BATCH_NORM),
    "apex.parallel.convert_syncbn_model": Twin(
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm", ("module", "process_group")
    ),
    "apex.parallel.DistributedDataParallel": DDP,
    "apex.parallel.distributed.DistributedDataParallel": DDP,
}
ONLY_APEX = ("memory_efficient", "channel_last", "fuse_relu")
REVIEW = "Compare a few steps: torch's DistributedDataParallel overlaps and buckets differently, RMSNorm rounds once."


class Refused(Exception):
    """Why a use cannot be rewritten."""


@rule.on_import("apex.normalization", "apex.parallel", words=("apex",))
def move_import(match: Import) -> list[Fix | Report]:
    """Names that a from-import binds change together with their uses."""
    found: list[Fix | Report] = []
    for binding in match.bindings:
        name = match.file.names.imported_name(binding)
        if name not in TWINS or not isinstance(match.node, cst.ImportFrom):
            if isinstance(match.node, cst.ImportFrom):
                found.append(_report(match, name, binding.node))
            continue
        twin = TWINS[name]
        try:
            _check(match, twin, binding.node)
            module, _, last = twin.name.rpartition(".")
            inside = module if module.endswith("SyncBatchNorm") else None
            if inside and match.file.names.is_bound("SyncBatchNorm"):
                raise Refused("SyncBatchNorm is the name of something else here")
            move = Move(inside, "SyncBatchNorm") if inside else Move(twin.name, binding.name)
            edits = split_import(match, match.node, {binding.node: move})
            for use in match.file.names.uses(binding):
                edits += _arguments(match, twin, use)
                edits += [match.replace(use.root, f"SyncBatchNorm.{last}")] if inside else []
        except Refused as reason:
            found.append(_report(match, name, binding.node, str(reason)))
        else:
            found.append(_fix(name, twin, edits, binding.node))
    return found


@rule.on_name("apex.normalization.*", "apex.parallel.*", words=("apex",))
def use_through_module(match: Name) -> Fix | Report | None:
    """`apex.parallel.convert_syncbn_model(net)`, where apex itself is imported."""
    binding = match.reference.binding
    if binding is None or match.file.names.imported_name(binding).count(".") > 1 or not match.reference.parts:
        return None
    twin = TWINS.get(match.qualified)
    try:
        if twin is None:
            raise Refused("")
        _check(match, twin, binding.node)
        if not any(b.qualified == "torch" for b in match.file.names.module_scope.bindings.get("torch", [])):
            raise Refused("torch is not imported here")
        edits = [*match.rename(twin.name), *_arguments(match, twin, match.reference)]
    except Refused as reason:
        return _report(match, match.qualified, match.node, str(reason), binding.node)
    return _fix(match.qualified, twin, edits, match.node)


def _check(match: Match, twin: Twin, imported: cst.CSTNode) -> None:
    if falls_back(match.file, imported):
        raise Refused("the code falls back")
    if not match.file.target.at_least(twin.torch):
        raise Refused(f"{twin.name} comes with torch {twin.torch}")


def _arguments(match: Match, twin: Twin, use: Reference) -> list[Edit]:
    """The edits inside one call; raises Refused."""
    call = call_of(match.file, use.node)
    if call is None:
        if not twin.is_exact or any(word in match.file.source.text for word in ONLY_APEX):
            raise Refused("it is passed on without being called")
        return []
    refused = [name for name in call.keywords if name not in twin.parameters and name not in twin.dropped]
    if call.has_star or refused or len(call.positional) > len(twin.parameters):
        what = f"{refused[0]}=" if refused else "arguments behind *" if call.has_star else "so many arguments"
        raise Refused(f"{twin.name} does not take {what}")
    edits = [_without(match, call, call.keywords[name]) for name in twin.dropped & set(call.keywords)]
    if twin.added and call.argument(1, twin.added.partition("=")[0]) is None:
        edits.append(call.append(twin.added))
    return edits


def _without(match: Match, call: Call, arg: cst.Arg) -> Edit:
    """Take a keyword argument that is not the first out of a call, with the comma before it."""
    before = call.node.args[call.node.args.index(arg) - 1]
    return Edit(match.file.tree.span(before)[1], match.file.tree.span(arg)[1], "")


def _fix(name: str, twin: Twin, edits: list[Edit], node: cst.CSTNode) -> Fix:
    remedy, applicability = (None, SAFE) if twin.is_exact else (REVIEW, UNSAFE)
    return Fix(edits, f"{name} → {twin.name}", remedy, applicability, needs=(), node=node)


def _report(match: Match, name: str, node: cst.CSTNode, why: str = "", imported: cst.CSTNode | None = None) -> Report:
    target = match.file.target
    row = target.mapping(f"pkg:{name.replace('fused_layer_norm.', '')}") or target.mapping(
        "pkg:apex.multi_tensor_apply"
    )
    twin = f"Use {TWINS[name].name}, where its arguments do." if name in TWINS else ""
    guarded = falls_back(match.file, imported or node)
    message = f"{name} does not run on an NPU" + (f": {why}" if why else ": the code falls back" if guarded else "")
    return Report(message, (row.remedy if row else None) or twin, INFO if guarded else None, node)
