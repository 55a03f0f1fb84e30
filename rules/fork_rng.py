"""Fork the NPU's random state.

torch.random.fork_rng() takes care of CUDA's random state unless it is told of another device type, so that the
NPU's state would neither be saved nor restored: no error, other numbers.
"""

from migrator.rule import SAFE, Example, Fix, Name, Report, Rule

rule = Rule(
    id="NPU402",
    name="fork-rng",
    title="fork_rng must be told of the NPU",
    applicability=SAFE,
    tags=("core", "random"),
    docs="https://docs.pytorch.org/docs/stable/random.html",
    examples=[
        Example(
            "import torch\nimport torch_npu\nwith torch.random.fork_rng(devices=[0]):\n    pass\n",
            'import torch\nimport torch_npu\nwith torch.random.fork_rng(devices=[0], device_type="npu"):\n    pass\n',
        ),
        Example.reported("import torch\nwith torch.random.fork_rng(**kw):\n    pass\n", "device_type"),
        Example.unchanged("import torch\nwith torch.random.fork_rng(enabled=False):\n    pass\n"),
    ],
)


@rule.on_name("torch.random.fork_rng")
def fork_the_npu(match: Name) -> Fix | Report | None:
    call = match.call
    if call is None or "device_type" in call.keywords or len(call.positional) > 4:
        return None
    enabled = call.argument(1, "enabled")
    if enabled is not None and match.file.tree.text(enabled.value) == "False":
        return None
    if call.has_star:
        return Report("fork_rng(…): device_type may be missing", f'Pass device_type="{match.file.target.device}".')
    text = f"device_type={match.literal(match.file.target.device)}"
    return Fix([call.append(text)], f"fork_rng(…) → fork_rng(…, {text}): it keeps the NPU's random state")
