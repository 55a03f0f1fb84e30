"""PyTorch Lightning's Trainer and Fabric.

Lightning has no accelerator for NPUs: `accelerator="gpu"` and `gpus=` raise, and `accelerator="auto"`, the default
of Lightning 2, trains on the CPU without a word.  An Accelerator (and for one device a SingleDeviceStrategy) of
your own makes it see them.
"""

import libcst as cst

from migrator.rule import ERROR, MANUAL, Example, Name, Report, Rule

rule = Rule(
    id="NPU807",
    name="lightning-trainer",
    title="Lightning does not know NPUs",
    applicability=MANUAL,
    tags=("third-party", "lightning"),
    docs="https://lightning.ai/docs/pytorch/stable/extensions/accelerator.html",
    examples=[
        Example.reported("import pytorch_lightning as pl\nt = pl.Trainer(accelerator='gpu', devices=2)\n", "raises"),
        Example.reported("from pytorch_lightning import Trainer\nt = Trainer(gpus=1)\n", "gpus"),
        Example.reported("import lightning as L\nt = L.Trainer(max_epochs=3)\n", "on the CPU"),
        Example.unchanged("import lightning as L\nt = L.Trainer(accelerator='cpu')\nu = L.Trainer(accelerator=mine)\n"),
    ],
)

CLASSES = ("Trainer", "Fabric")
MODULES = ("pytorch_lightning", "lightning", "lightning.pytorch", "lightning.fabric", "lightning_fabric")
REMEDY = (
    'Register an Accelerator whose get_parallel_devices() gives torch.device("npu", i), pass it as accelerator=, '
    'and use strategy="ddp" with process_group_backend="hccl" for several.'
)


@rule.on_name(*(f"{module}.{name}" for module in MODULES for name in CLASSES), words=MODULES)
def trainer(match: Name) -> Report | None:
    call = match.call
    if call is None:
        return None
    gpus, accelerator = call.keywords.get("gpus"), call.keywords.get("accelerator")
    if gpus is not None and match.file.tree.text(gpus.value) not in {"0", "None"}:
        return Report("gpus= asks for CUDA", REMEDY, ERROR, call.node)
    value = accelerator.value if accelerator is not None else None
    if accelerator is None and not call.has_star:
        return Report("this trains on the CPU: Lightning does not find NPUs", REMEDY, node=call.node)
    if not isinstance(value, cst.SimpleString) or value.evaluated_value == "cpu":
        return None
    if value.evaluated_value == "auto":
        return Report("this trains on the CPU: Lightning does not find NPUs", REMEDY, node=call.node)
    return Report(f"accelerator={value.value} raises: Lightning does not know NPUs", REMEDY, ERROR, call.node)
