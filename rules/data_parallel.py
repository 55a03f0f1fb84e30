"""DataParallel does not work on NPUs.

torch.nn.DataParallel copies a module to several devices from one process; torch_npu does not support it.
DistributedDataParallel, with one process for each NPU, does the same faster, on CUDA too.
"""

from migrator.rule import MANUAL, Example, Name, Report, Rule

rule = Rule(
    id="NPU503",
    name="data-parallel",
    title="DataParallel is not supported on NPUs",
    applicability=MANUAL,
    tags=("core", "distributed"),
    docs="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
    examples=[
        Example.reported("import torch.nn as nn\nnet = nn.DataParallel(net)\n", "DataParallel"),
        Example.unchanged("import torch.nn as nn\nok = isinstance(net, nn.DataParallel)\n"),
    ],
)


@rule.on_name(
    "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.parallel.data_parallel", words=("DataParallel", "data_parallel"),
)  # fmt: skip
def report(match: Name) -> Report | None:
    if match.call is None:
        return None
    return Report(
        "DataParallel is not supported on NPUs",
        "Start one process for each NPU with torchrun, and wrap the model in DistributedDataParallel(model, "
        "device_ids=[local_rank]). With one visible NPU, drop the wrapper.",
    )
