"""Attention of flash-attn and xformers.

Neither has an NPU version; torch_npu.npu_fusion_attention computes the same from other arguments.  flash-attn's
layout is "BSND", or "TND" with cumulative lengths, which come as lists without the leading 0.  The number of heads
has to be given, the scale has no default, and the result is the first of seven.  A causal mask is `sparse_mode`
with a 2048 × 2048 triangle: 3 where it ends in the lower right corner (flash-attn from 2.1 on), 2 where it starts
in the upper left one (xformers' LowerTriangularMask).

The fix waits for `--unsafe`: it needs Ascend 910B or newer, xformers also takes tensors with three axes, and
flash-attn before 2.1 aligned the mask otherwise.  Calls with dropout, windows, biases or a scale that may be None
are reported.  scaled_dot_product_attention, with the head axis moved, is the portable choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from migrator.names import Binding, Reference, dotted
from migrator.rule import ERROR, INFO, UNSAFE, Call, Edit, Example, FileMatch, Fix, Report, Rule, call_of
from migrator.statements import drop_imported, falls_back

rule = Rule(
    id="NPU803",
    name="fused-attention",
    title="flash-attn and xformers have no NPU version; npu_fusion_attention takes other arguments",
    applicability=UNSAFE,
    tags=("third-party", "attention"),
    severity=ERROR,
    docs="https://github.com/Ascend/op-plugin",
    examples=[
        Example(
            "from flash_attn import flash_attn_func\no = flash_attn_func(q, k, v, causal=True)\n",
            "import torch_npu\no = torch_npu.npu_fusion_attention(q, k, v, head_num=q.shape[2], input_layout=\"BSND\", "
            "scale=q.shape[-1] ** -0.5, sparse_mode=3, atten_mask=q.new_ones(2048, 2048).triu(1).bool())[0]\n",
            unsafe=True,
        ),
        Example(
            "from flash_attn import flash_attn_varlen_func as attn\no = attn(q, k, v, cu, cu, n, n, 0.0, 0.1)\n",
            "import torch_npu\no = torch_npu.npu_fusion_attention(q, k, v, head_num=q.shape[1], input_layout=\"TND\", "
            "actual_seq_qlen=cu[1:].tolist(), actual_seq_kvlen=cu[1:].tolist(), scale=0.1)[0]\n",
            unsafe=True,
        ),
        Example(
            "import xformers.ops as xops\no = xops.memory_efficient_attention(\n    q,\n    k,\n    v,\n"
            "    attn_bias=xops.LowerTriangularMask(),\n)\n",
            "import torch_npu\no = torch_npu.npu_fusion_attention(\n    q,\n    k,\n    v,\n    head_num=q.shape[2],\n"
            "    input_layout=\"BSND\",\n    scale=q.shape[-1] ** -0.5,\n    sparse_mode=2,\n"
            "    atten_mask=q.new_ones(2048, 2048).triu(1).bool(),\n)[0]\n",
            unsafe=True,
        ),
        Example.reported("from flash_attn import flash_attn_func\no = flash_attn_func(q, k, v)\n", "→"),
        Example.reported(
            "from flash_attn import flash_attn_func\no = flash_attn_func(q, k, v, dropout_p=0.1)\n",
            "dropout_p=0.1 has no", "flash_attn_func has no NPU version",
        ),
        Example.reported(
            "from flash_attn import flash_attn_func\n\n\ndef f(q, k, v):\n"
            "    return flash_attn_func(q.half(), k, v)\n",
            "q.half() is computed in the call", "flash_attn_func has no NPU version",
        ),
        Example.reported(
            "try:\n    from flash_attn import flash_attn_func\nexcept ImportError:\n    pass\n", "falls back"
        ),
        Example.reported(
            "from xformers.ops import memory_efficient_attention\n\n\ndef f(q, k, v, s=None):\n"
            "    return memory_efficient_attention(q, k, v, scale=s)\n",
            "the scale s may be None", "memory_efficient_attention has no NPU version",
        ),
    ],
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A function that npu_fusion_attention can stand in for.

    parameters  in order, as far as all versions agree on it
    heads       the axis of the heads in its first argument
    """

    parameters: tuple[str, ...]
    layout: str
    heads: int
    scale: str = "softmax_scale"


FLASH = Kernel(("q", "k", "v", "dropout_p", "softmax_scale", "causal"), "BSND", 2)
VARLEN = Kernel(
    ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", *FLASH.parameters[3:]), "TND", 1
)
KERNELS = {
    "flash_attn.flash_attn_func": FLASH,
    "flash_attn.flash_attn_interface.flash_attn_func": FLASH,
    "flash_attn.flash_attn_varlen_func": VARLEN,
    "flash_attn.flash_attn_interface.flash_attn_varlen_func": VARLEN,
    "xformers.ops.memory_efficient_attention": Kernel(
        ("query", "key", "value", "attn_bias", "p", "scale"), "BSND", 2, "scale"
    ),
}
MASKS = {"LowerTriangularMask": 2, "LowerTriangularFromBottomRightMask": 3}
ZERO, NONE, FALSE = {"0", "0.0", "0."}, {"None"}, {"False"}
# Further arguments, and the values at which they change nothing.
NEUTRAL = {
    "dropout_p": ZERO, "p": ZERO, "softcap": ZERO, "window_size": {"(-1, -1)"}, "alibi_slopes": NONE,
    "deterministic": FALSE, "return_attn_probs": FALSE, "block_table": NONE, "op": NONE, "output_dtype": NONE,
}  # fmt: skip
REVIEW = (
    "Review it: it needs Ascend 910B or newer and tensors with {axes} axes; a mask can be made once, outside of the "
    "loop. torch.nn.functional.scaled_dot_product_attention, with the head axis moved, is the portable choice."
)


class Refused(Exception):
    """Why a call cannot be rewritten."""


@rule.on_file("flash_attn", "memory_efficient_attention")
def use_fusion_attention(match: FileMatch) -> list[Fix | Report]:
    found: list[Fix | Report] = []
    for binding in match.file.names.import_bindings:
        name = match.file.names.imported_name(binding)
        uses = match.file.names.uses(binding)
        if name in KERNELS or any(use.qualified in KERNELS for use in uses):
            found += _binding(match, binding, name, uses)
    return found


def _binding(match: FileMatch, binding: Binding, name: str, uses: list[Reference]) -> Iterator[Fix | Report]:
    """What becomes of one imported name: all of its uses and the import together, else each call by itself."""
    calls = [use for use in uses if use.qualified in KERNELS]
    kernel = name if name in KERNELS else calls[0].qualified
    public = kernel.replace("flash_attn_interface.", "")
    row = match.file.target.mapping(f"pkg:{public}")
    remedy = (row.remedy if row else None) or ""
    statement = match.file.tree.parents[binding.node]
    if falls_back(match.file, statement):
        places = [statement] if name in KERNELS else [use.node for use in calls]
        message = f"{public} has no NPU version: the import falls back, so this must not be reached"
        yield from (Report(message, remedy, INFO, node) for node in places)
        return
    review = REVIEW.format(axes="four" if KERNELS[kernel].layout == "BSND" else "three")
    message = f"{public} → torch_npu.npu_fusion_attention"
    edits: dict[Reference, list[Edit]] = {}
    for use in calls:
        try:
            edits[use] = _rewrite(match, use)
        except Refused as reason:
            yield Report(f"{public} has no NPU version: {reason}", remedy, node=use.node)
    if calls and all(use in edits or _is_mask_of(match, use, calls) for use in uses):
        aliases = [binding.node, *_masks_beside(match, binding, calls)]
        every = [edit for call in edits.values() for edit in call]
        yield Fix([*every, *drop_imported(match.file, aliases)], message, review, node=statement)
        return
    yield from (Fix(edits[use], message, review, node=use.node) for use in edits)
    if name in KERNELS:
        yield Report(f"{public} has no NPU version", remedy, node=statement)


def _rewrite(match: FileMatch, use: Reference) -> list[Edit]:
    """The edits of one call; raises Refused."""
    tree, kernel, call = match.file.tree, KERNELS[use.qualified], call_of(match.file, use.node)
    if call is None:
        raise Refused("it is passed on without being called")
    bound = _bound(call, kernel)
    first = call.node.args[:3]
    if [bound.get(name) for name in kernel.parameters[:3]] != list(first):
        raise Refused("query, key and value are not the first three arguments")
    query = tree.text(first[0].value)
    if dotted(first[0].value) is None:
        raise Refused(f"{query} is computed in the call, and its shape is needed too")
    arguments = [f"head_num={query}.shape[{kernel.heads}]", f"input_layout={match.literal(kernel.layout)}"]
    if kernel is VARLEN:
        arguments += _lengths(match, bound)
    arguments += [_scale(match, bound.get(kernel.scale), query), *_mask(match, bound, query)]
    for name, arg in bound.items():
        if name in NEUTRAL and tree.text(arg.value) not in NEUTRAL[name]:
            raise Refused(f"{name}={tree.text(arg.value)} has no counterpart")
    names = [
        match.replace(arg.keyword, new)
        for arg, new in zip(first, ("query", "key", "value"), strict=True)
        if arg.keyword is not None
    ]
    return [match.replace(use.node, "torch_npu.npu_fusion_attention"), *names, *_replace_rest(match, call, arguments)]


def _bound(call: Call, kernel: Kernel) -> dict[str, cst.Arg]:
    """The arguments by parameter."""
    if call.has_star:
        raise Refused("arguments are hidden behind *")
    if len(call.positional) > len(kernel.parameters):
        raise Refused(f"what the positional arguments behind {kernel.parameters[-1]} mean depends on the version")
    bound = {**dict(zip(kernel.parameters, call.positional, strict=False)), **call.keywords}
    if unknown := sorted(set(bound) - set(kernel.parameters) - set(NEUTRAL)):
        raise Refused(f"{unknown[0]}= has no counterpart")
    return bound


def _lengths(match: FileMatch, bound: dict[str, cst.Arg]) -> Iterator[str]:
    for new, old in (("actual_seq_qlen", "cu_seqlens_q"), ("actual_seq_kvlen", "cu_seqlens_k")):
        if old not in bound:
            raise Refused(f"{old} is not given")
        text = match.file.tree.text(bound[old].value)
        yield f"{new}={text if dotted(bound[old].value) else f'({text})'}[1:].tolist()"


def _scale(match: FileMatch, arg: cst.Arg | None, query: str) -> str:
    text = "None" if arg is None else match.file.tree.text(arg.value)
    if arg is None or text == "None":
        return f"scale={query}.shape[-1] ** -0.5"
    if _may_be_none(match, arg.value):
        raise Refused(f"the scale {text} may be None, which stands for 1 / sqrt(head size)")
    return f"scale={text}"


def _may_be_none(match: FileMatch, value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.IfExp):
        return _may_be_none(match, value.body) or _may_be_none(match, value.orelse)
    if not isinstance(value, cst.Name):
        return False
    values = [getattr(b.node, "default", None) or b.value for b in match.file.names.bindings_of(value)]
    return value.value == "None" or any(isinstance(v, cst.Name) and v.value == "None" for v in values)


def _mask(match: FileMatch, bound: dict[str, cst.Arg], query: str) -> list[str]:
    """sparse_mode and atten_mask."""
    mask, mode, condition = f"{query}.new_ones(2048, 2048).triu(1).bool()", 3, "True"
    if "causal" in bound:
        condition = match.file.tree.text(bound["causal"].value)
    elif "attn_bias" in bound and match.file.tree.text(bound["attn_bias"].value) != "None":
        bias = bound["attn_bias"].value
        function = (match.file.names.resolve(bias.func) or "") if isinstance(bias, cst.Call) and not bias.args else ""
        if not function.startswith("xformers.") or function.rpartition(".")[2] not in MASKS:
            raise Refused(f"attn_bias={match.file.tree.text(bias)} has no counterpart")
        mode = MASKS[function.rpartition(".")[2]]
    else:
        return []
    if condition == "True":
        return [f"sparse_mode={mode}", f"atten_mask={mask}"]
    if condition == "False":
        return []
    if dotted(bound["causal"].value) is None:
        raise Refused(f"causal={condition} is computed in the call, and needed twice")
    return [f"sparse_mode={mode} if {condition} else 0", f"atten_mask={mask} if {condition} else None"]


def _replace_rest(match: FileMatch, call: Call, arguments: list[str]) -> list[Edit]:
    """Other arguments behind the first three, one a line where they had one, and `[0]` behind the call."""
    tree, text, args = match.file.tree, match.file.source.text, call.node.args
    end = tree.span(call.node)[1]
    start, gap = tree.span(args[2])[1], text[tree.span(args[0])[1] : tree.span(args[1])[0]]
    tail = text[tree.span(args[-1])[1] : end - 1]
    if "#" in text[start : end - 1]:
        raise Refused("a comment stands between the arguments")
    between = gap if "\n" in gap else ", "
    return [Edit(start, end - 1, "".join(between + argument for argument in arguments) + tail), Edit(end, end, "[0]")]


def _is_mask_of(match: FileMatch, use: Reference, calls: list[Reference]) -> bool:
    """Whether a use is the mask in the arguments of one of the calls."""
    around = {match.file.tree.parents.get(other.node) for other in calls}
    return use.qualified.rpartition(".")[2] in MASKS and bool(around & set(match.file.tree.ancestors(use.node)))


def _masks_beside(match: FileMatch, binding: Binding, calls: list[Reference]) -> list[cst.CSTNode]:
    """Masks that the same statement imports and only these calls use."""
    names, parents = match.file.names, match.file.tree.parents
    return [
        other.node
        for other in names.import_bindings
        if other is not binding and parents.get(other.node) is parents.get(binding.node) and other.name in MASKS
        and all(_is_mask_of(match, use, calls) for use in names.uses(other))
    ]  # fmt: skip
