"""Bare integers as devices.

`x.to(0)`, `torch.ones(2, device=rank)`: with torch 2.5.1 and torch_npu 2.5.1 or newer an integer means the
current accelerator, so the code works on the NPU as it is.  On older pairs it means CUDA and raises "Torch not
compiled with CUDA enabled".  For such a target an integer that is plain to see becomes an NPU device, and a
name that sounds like one is reported.  `.cuda(0)` is another matter: see cuda-method.
"""

import libcst as cst

from migrator.names import dotted
from migrator.rule import INFO, SAFE, Edit, Example, Fix, Keyword, Match, Method, Report, Rule
from migrator.statements import is_integer

rule = Rule(
    id="NPU106",
    name="integer-device",
    title="an integer device means CUDA on old versions",
    applicability=SAFE,
    tags=("core", "device"),
    examples=[
        Example.reported("import torch\nrank = int(r)\nx = x.to(rank)\n", "current accelerator", target="2.7.1"),
        Example(
            "import torch\nimport torch_npu\nrank = int(r)\nx = x.to(rank, non_blocking=True)\ny = torch.ones(2, device=0)\n",
            'import torch\nimport torch_npu\nrank = int(r)\nx = x.to(f"npu:{rank}", non_blocking=True)\ny = torch.ones(2, device="npu:0")\n',
            target="2.4.0",
        ),
        Example.reported("import torch\nx = x.to(gpu_id)\n", "may be an integer", target="2.1.0"),
        Example.unchanged("import torch\nx = x.to(gpu_id)\ny = y.to(dtype)\n"),
    ],
)  # fmt: skip

SOUNDS = frozenset("rank local_rank gpu gpu_id device_id device_index gpu_idx args.gpu args.local_rank".split())
WORDS = (*(name for name in SOUNDS if "." not in name), "LOCAL_RANK", "RANK", "device=0", "device=1", ".to(0", ".to(1")


@rule.on_method("to", words=WORDS)
def in_to(match: Method) -> Fix | Report | None:
    call = match.call
    device = call.argument(0) if call else None
    return _answer(match, device.value) if device is not None and device.keyword is None else None


@rule.on_keyword("device_id", words=WORDS)
def of_process_group(match: Keyword) -> Fix | Report | None:
    return _answer(match, match.node.value) if match.function_name == "init_process_group" else None


@rule.on_keyword("device", words=WORDS)
def in_argument(match: Keyword) -> Fix | Report | None:
    function = match.function or ""
    return _answer(match, match.node.value) if function.startswith("torch.") or match.function_name == "to" else None


def _answer(match: Match, value: cst.BaseExpression) -> Fix | Report | None:
    npu, target = match.file.target.device, match.file.target
    if is_integer(match.file, value):
        if target.at_least("2.5.1"):
            if isinstance(value, cst.Call):
                return None
            text = match.file.tree.text(value)
            message = f"device {text} is an integer: the current accelerator, which is the NPU from torch_npu 2.5.1 on"
            return Report(
                message, f'Nothing to do; f"{npu}:{{…}}" says it more plainly and also works before.', INFO, value
            )
        text = match.file.tree.text(value)
        edit = _device_text(match, value, text, npu)
        return Fix([edit], f"device {text} → {edit.text}", node=value)
    text = dotted(value) or ""
    if not target.at_least("2.5.1") and text in SOUNDS:
        return Report(
            f"device {text} may be an integer, which means CUDA before torch_npu 2.5.1",
            f'Write f"{npu}:{{{text}}}" if it is one.',
            node=value,
        )
    return None


def _device_text(match: Match, value: cst.BaseExpression, text: str, npu: str) -> Edit:
    plain = isinstance(value, cst.Integer)
    quoted = match.literal(f"{npu}:{text}" if plain else f"{npu}:{{{text}}}")
    return match.replace(value, quoted if plain else f"f{quoted}")
