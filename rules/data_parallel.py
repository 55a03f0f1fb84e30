"""DataParallel does not work on NPUs.

torch.nn.DataParallel copies a module to several devices from one process; torch_npu does not support it.
DistributedDataParallel, with one process for each NPU, does the same faster, on CUDA too:

    # torchrun --nproc_per_node=8 train.py
    torch.distributed.init_process_group("hccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.npu.set_device(local_rank)
    model = torch.nn.parallel.DistributedDataParallel(model.npu(), device_ids=[local_rank])
    sampler = torch.utils.data.DistributedSampler(dataset)   # and sampler.set_epoch(epoch) in each epoch
    loader = DataLoader(dataset, batch_size // torch.distributed.get_world_size(), sampler=sampler)

`model.module` and the keys of checkpoints stay as they are.
"""

import libcst as cst

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
        Example.reported("import torch.nn as nn\n\n\nclass Wrapper(nn.DataParallel):\n    pass\n", "DataParallel"),
        Example.unchanged("import torch.nn as nn\nok = isinstance(net, nn.DataParallel)\n"),
    ],
)


@rule.on_name(
    "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.parallel.data_parallel", words=("DataParallel", "data_parallel"),
)  # fmt: skip
def report(match: Name) -> Report | None:
    if match.call is None and not _is_passed_on(match):
        return None
    return Report(
        "DataParallel is not supported on NPUs",
        'Start one process for each NPU with torchrun; in it init_process_group("hccl"), '
        'local_rank = int(os.environ["LOCAL_RANK"]), torch.npu.set_device(local_rank), '
        "DistributedDataParallel(model.npu(), device_ids=[local_rank]), and a DistributedSampler for the data. "
        "model.module stays as it is. With one NPU, drop the wrapper.",
    )


def _is_passed_on(match: Name) -> bool:
    """Whether the class is a base class or an argument, and not just what something is tested for."""
    arg = match.parent()
    call = match.file.tree.parents.get(arg) if isinstance(arg, cst.Arg) else None
    tested = isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value.startswith("is")
    return call is not None and not tested
