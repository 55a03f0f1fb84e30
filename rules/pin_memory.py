"""Pin memory for the NPU.

`pin_memory=True` asks for page-locked host memory, which copies to the device faster.  torch's DataLoader pins
for the current accelerator from torch 2.7 on; before, it pins only where CUDA is available, and silently does
not on an NPU unless pin_memory_device="npu" is given.  torchdata's StatefulDataLoader asks
torch.cuda.current_device() in every version known, and so fails where it starts its pinning thread.  Copies
overlap with work on the NPU only with `.npu(non_blocking=True)`, as on CUDA.
"""

from migrator.rule import ERROR, SAFE, Example, Fix, Keyword, Rule

rule = Rule(
    id="NPU706",
    name="pin-memory",
    title="data loaders pin memory for CUDA unless told of the NPU",
    applicability=SAFE,
    tags=("performance", "data"),
    docs="https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
    examples=[
        Example(
            "from torch.utils.data import DataLoader\nimport torch_npu\na = DataLoader(ds, pin_memory=True)\n",
            "from torch.utils.data import DataLoader\nimport torch_npu\n"
            'a = DataLoader(ds, pin_memory=True, pin_memory_device="npu")\n',
            target="2.6.0",
        ),
        Example(
            "from torchdata.stateful_dataloader import StatefulDataLoader\nimport torch_npu\n"
            "a = StatefulDataLoader(\n    ds,\n    pin_memory=True,\n)\n",
            "from torchdata.stateful_dataloader import StatefulDataLoader\nimport torch_npu\n"
            'a = StatefulDataLoader(\n    ds,\n    pin_memory=True, pin_memory_device="npu",\n)\n',
            target="2.7.1",
        ),
        Example.unchanged(
            "from torch.utils.data import DataLoader\na = DataLoader(ds, pin_memory=True)\n"
            "b = DataLoader(ds, pin_memory=False)\nc = Loader(pin_memory=True)\n"
        ),
    ],
)

LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})


@rule.on_keyword("pin_memory")
def name_the_device(match: Keyword) -> Fix | None:
    stateful = match.function_name == "StatefulDataLoader"
    plain = match.function in LOADERS and not match.file.target.at_least("2.7")
    on = match.file.tree.text(match.node.value) == "True"
    if not on or not (stateful or plain) or match.call.has_star or "pin_memory_device" in match.call.keywords:
        return None
    device = match.literal(match.file.target.device)
    why = "asks CUDA for its device" if stateful else "pins nothing without CUDA before torch 2.7"
    return Fix(
        [match.call.append(f"pin_memory_device={device}")],
        f"{match.function_name} {why}: pin_memory_device={device}",
        severity=ERROR if stateful else None,
    )
