"""Ask for the NPU's autocast state.

torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype() and their kin speak of CUDA unless they are told of
a device type; torch.npu has functions of its own for the NPU, in every version.
"""

from migrator.rule import SAFE, Example, Fix, Name, Report, Rule

rule = Rule(
    id="NPU303",
    name="autocast-state",
    title="the plain autocast queries mean CUDA",
    applicability=SAFE,
    tags=("core", "amp"),
    examples=[
        Example(
            "import torch\nimport torch_npu\nif torch.is_autocast_enabled():\n    d = torch.get_autocast_gpu_dtype()\n",
            "import torch\nimport torch_npu\nif torch.npu.is_autocast_enabled():\n    d = torch.npu.get_autocast_dtype()\n",
        ),
        Example.unchanged("import torch\nx = torch.is_autocast_enabled(x.device.type)\n"),
    ],
)

PLAIN = {
    "torch.is_autocast_enabled": ("torch.npu.is_autocast_enabled", 0),
    "torch.set_autocast_enabled": ("torch.npu.set_autocast_enabled", 1),
    "torch.get_autocast_gpu_dtype": ("torch.npu.get_autocast_dtype", 0),
    "torch.set_autocast_gpu_dtype": ("torch.npu.set_autocast_dtype", 1),
}


@rule.on_name(*PLAIN)
def ask_torch_npu(match: Name) -> Fix | Report | None:
    new, arguments = PLAIN[match.qualified]
    if match.call is not None and len(match.call.node.args) != arguments:
        return None
    if not match.file.target.has(new):
        return Report(f"{match.qualified} means CUDA, and {new} does not exist here", "Pass the device type.")
    return Fix(match.rename(new), f"{match.qualified} → {new}")
