"""Scale gradients on the NPU.

torch_npu's own GradScaler has a parameter `dynamic` before `enabled`, so that a fifth positional argument would
change its meaning: it becomes a keyword.  torch.amp.GradScaler() without a device scales for CUDA, and switches
itself off with a warning where there is none: it gets its device.
"""

from migrator.rule import INFO, SAFE, Edit, Example, Fix, Match, Method, Name, Report, Rule, rename_or_report
from migrator.statements import binding_value

rule = Rule(
    id="NPU301",
    name="grad-scaler",
    title="GradScaler's arguments differ on the NPU",
    applicability=SAFE,
    tags=("core", "amp"),
    docs="https://github.com/Ascend/pytorch/blob/master/torch_npu/npu/amp/grad_scaler.py",
    examples=[
        Example(
            "import torch\nimport torch_npu\ns = torch.cuda.amp.GradScaler(65536.0, 2.0, 0.5, 2000, use_amp)\n",
            "import torch\nimport torch_npu\ns = torch.npu.amp.GradScaler(65536.0, 2.0, 0.5, 2000, enabled=use_amp)\n",
        ),
        Example(
            "import torch_npu\nfrom torch.amp import GradScaler\ns = GradScaler(enabled=fp16)\n",
            'import torch_npu\nfrom torch.amp import GradScaler\ns = GradScaler("npu", enabled=fp16)\n',
        ),
        Example.reported("import torch\ns = torch.cuda.amp.GradScaler(*a)\n", "behind *"),
        Example.unchanged("import torch\ns = torch.amp.GradScaler(device.type)\n"),
    ],
)

ENABLED = 4  # its place in torch.cuda.amp.GradScaler; torch_npu has `dynamic` there


@rule.on_name("torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler")
def torch_npu_scaler(match: Name) -> Fix | Report | None:
    call = match.call
    if call is not None and any(arg.star == "*" for arg in call.node.args):
        return Report(
            "GradScaler(*…): torch_npu's has `dynamic` before `enabled`, and the arguments are hidden behind *",
            "Write the arguments out by name, and use torch.npu.amp.GradScaler.",
        )
    enabled = call.argument(ENABLED) if call is not None else None
    if call is None or enabled is None or enabled.keyword is not None:
        return rename_or_report(match)
    edits: list[Edit] = [*match.rename(match.destination or ""), call.name_argument(enabled, "enabled")]
    return Fix(
        edits, f"{match.qualified} → torch.npu.amp.GradScaler(…, enabled=…), which has `dynamic` before `enabled`"
    )


@rule.on_name("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler", "torch.GradScaler")
def name_the_device(match: Name) -> Fix | Report | None:
    call, npu = match.call, match.file.target.device
    if call is None or call.argument(0, "device") is not None:
        return None
    if call.has_star:
        return Report("GradScaler(…): the device may be missing, and CUDA is the default", f'Pass device="{npu}".')
    edits = [call.insert_first(match.literal(npu))]
    return Fix(edits, f"{Match(match.file, call.node).change(edits)}: the default is CUDA")


@rule.on_method("load_state_dict", words=("GradScaler",))
def old_state(match: Method) -> Report | None:
    source = binding_value(match, match.receiver)
    function = match.file.names.resolve(getattr(source, "func", None)) or ""
    if not function.endswith("cuda.amp.GradScaler"):
        return None
    return Report(
        "a scaler state that was saved on CUDA lacks `dynamic`: loading it raises KeyError",
        'Load it with `{"dynamic": True, **state}`; states saved on the NPU have it.',
        INFO,
    )
