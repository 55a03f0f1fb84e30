"""Optimizers of other packages that torch_npu has fused.

They are plain torch code and work on NPUs.  torch_npu's classes compute the same formula with a few kernels on one
long buffer (see fused-optimizer for what that buffer cannot bear); ten steps of each pair were compared.  What
differs is told; since these are copies of other people's code, no rewrite is made without `--unsafe`.
"""

from migrator.fused import against, refused, uses_device
from migrator.rule import INFO, UNSAFE, Example, Fix, Name, Report, Rule

LOOP = "for x in data:\n    opt.zero_grad()\n    net(x.npu()).sum().backward()\n    opt.step()\n"

rule = Rule(
    id="NPU202",
    name="other-optimizers",
    title="torch_npu has fused versions of LAMB, AdamP, BertAdam and TensorFlow's RMSprop",
    applicability=UNSAFE,
    tags=("optimizer", "performance", "third-party"),
    severity=INFO,
    docs="https://github.com/Ascend/op-plugin/tree/master/docs/zh/custom_APIs/torch_npu-optim",
    examples=[
        Example(
            f"import torch_npu\nfrom adamp import AdamP\nopt = AdamP(net.parameters(), lr=1e-3)\n{LOOP}",
            "import torch_npu\nfrom adamp import AdamP\n"
            f"opt = torch_npu.optim.NpuFusedAdamP(net.parameters(), lr=1e-3)\n{LOOP}",
            unsafe=True,
        ),
        Example.reported(
            f"import torch_npu\nfrom timm.optim import Lamb\nopt = Lamb(net.parameters())\n{LOOP}", "is another LAMB"
        ),
        Example.reported(
            "import torch_npu\nfrom timm.optim import RMSpropTF\n"
            f"opt = RMSpropTF(net.parameters(), decoupled_decay=True)\n{LOOP}",
            "decoupled_decay",
        ),
        Example.unchanged("import timm\nopt = timm.optim.AdamP(net.parameters())\n"),
    ],
)

# qualified name → torch_npu's class, and what to know of it ("": the steps are equal).
SAME = {
    "adamp.AdamP": ("NpuFusedAdamP", ""),
    "timm.optim.AdamP": ("NpuFusedAdamP", ""),
    "timm.optim.adamp.AdamP": ("NpuFusedAdamP", ""),
    "torch_optimizer.AdamP": ("NpuFusedAdamP", ""),
    "torch_optimizer.Lamb": ("NpuFusedLamb", ""),
    "pytorch_lamb.Lamb": ("NpuFusedLamb", "it also moves parameters that are all zero, which pytorch_lamb never does"),
    "timm.optim.RMSpropTF": ("NpuFusedRMSpropTF", ""),
    "timm.optim.rmsprop_tf.RMSpropTF": ("NpuFusedRMSpropTF", ""),
    "pytorch_pretrained_bert.BertAdam": ("NpuFusedBertAdam", "it clips the norm of all gradients, not that of each"),
    "pytorch_pretrained_bert.optimization.BertAdam": (
        "NpuFusedBertAdam", "it clips the norm of all gradients, not that of each",
    ),
}  # fmt: skip


@rule.on_name(*SAME)
def use_fused(match: Name) -> Fix | Report | None:
    if match.call is None or match.call.has_star or not uses_device(match):
        return None
    short, differs = SAME[match.qualified]
    new = f"torch_npu.optim.{short}"
    if (why := _unlike(match) or refused(match, new)) is not None:
        return Report(f"{match.qualified} stays, which works on NPUs: {why}", "Nothing has to change.")
    reasons = [*([differs] if differs else []), *map(str, against(match))]
    message = f"{match.qualified} works on NPUs; {new} is faster"
    return Fix(
        match.rename(new),
        f"{message}, but {reasons[0]}" if reasons else message,
        "Nothing has to change. --unsafe writes it; compare a short training before you trust it.",
    )


@rule.on_name("timm.optim.Lamb", "timm.optim.lamb.Lamb")
def other_lamb(match: Name) -> Report | None:
    if match.call is None or not uses_device(match):
        return None
    return Report(
        f"{match.qualified} stays, which works on NPUs: NpuFusedLamb is another LAMB",
        "Nothing has to change. torch_npu's has no bias correction, clips nothing and clamps the weight norm to 10.",
    )


def _unlike(match: Name) -> str | None:
    """torch_npu's RMSpropTF leaves the learning rate out of decoupled weight decay."""
    if "RMSpropTF" in match.qualified and match.call is not None and "decoupled_decay" in match.call.keywords:
        return "NpuFusedRMSpropTF decays the weights differently with decoupled_decay="
    return None
