"""`fused=True` of torch.optim on an NPU.

AdamW has a fused kernel from torch_npu 2.5.1 on, Adam and SGD from 2.12 on.  Where there is none, each step goes to
the CPU and back.  With a GradScaler it goes wrong: torch hands the scale and the infinities that it found to the
optimizer; AdamW's kernel for NPUs ignores both, so that scaled gradients are applied and overflows are not skipped,
and torch_npu's own GradScaler calls step() with an argument that it does not take.  SGD's kernel refuses to work
without momentum.
"""

import libcst as cst

from migrator.rule import MANUAL, Example, Keyword, Report, Rule

rule = Rule(
    id="NPU204",
    name="fused-kernel",
    title="fused=True needs a kernel, and on NPUs it does not go with a GradScaler",
    applicability=MANUAL,
    tags=("optimizer",),
    docs="https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html",
    examples=[
        Example.reported(
            "import torch\nopt = torch.optim.Adam(p, fused=True)\n", "no kernel in torch_npu 2.7.1", target="2.7.1"
        ),
        Example.reported(
            "import torch\nimport torch_npu\nscaler = torch.npu.amp.GradScaler()\n"
            "opt = torch.optim.AdamW(p, **dict(fused=True))\nscaler.step(opt)\n",
            "ignores the GradScaler (example.py:3)",
        ),
        Example.reported("import torch\nopt = torch.optim.SGD(p, 0.1, fused=True)\n", "momentum"),
        Example.unchanged("import torch\nopt = torch.optim.AdamW(p, fused=True)\n"),
        Example.unchanged("import torch\nopt = torch.optim.Adam(p, fused=False)\nx = plot(fused=True)\n"),
    ],
)

KERNELS = {"AdamW": "2.5.1", "Adam": "2.12", "SGD": "2.12"}
"""Class of torch.optim → the first torch_npu whose NPU kernel fused=True runs."""


@rule.on_keyword("fused", words=("fused=",))
def check(match: Keyword) -> Report | None:
    if isinstance(match.node.value, cst.Name) and match.node.value.value in ("False", "None"):
        return None
    direct = (match.function or "").startswith("torch.optim.")
    if not direct and not (match.function_name == "dict" and "torch.optim" in match.file.source.text):
        return None
    name = match.function_name
    if direct and not match.file.target.at_least(KERNELS.get(name, "999")):
        return Report(
            f"{name}(fused=True) has no kernel in torch_npu {match.file.target.torch_npu}: each step goes to the CPU",
            "Leave fused away." + (f" The kernel comes with torch_npu {KERNELS[name]}." if name in KERNELS else ""),
        )
    if (scaler := _scaler(match)) is not None:
        return Report(
            f"fused=True on an NPU ignores the GradScaler ({scaler}): gradients stay scaled, overflows are applied",
            "Leave fused away where a GradScaler is used, or train in bfloat16 without one.",
        )
    if name == "SGD" and match.call.argument(2, "momentum") is None:
        return Report("SGD(fused=True) without momentum raises on an NPU", "Leave fused away.")
    return None


def _scaler(match: Keyword) -> str | None:
    """Where the program around the file names a GradScaler."""
    for module in match.file.project.programs.around(match.file.path):
        for hazard in module.training.hazards if module.training is not None else ():
            if "GradScaler" in hazard.reason:
                return f"{module.path}:{hazard.line}"
    return None
