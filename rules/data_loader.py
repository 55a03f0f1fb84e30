"""Training data for an NPU.

Two defaults of DataLoader cost more on an NPU than on a GPU.  num_workers=0 decodes in the process that also
launches the operators, on hosts with many but slower cores: the NPU waits for both.  And the last, smaller batch
of an epoch brings shapes that no other step has, for which operators and graphs are compiled once more (on
Ascend 910A and 310P, in JIT mode, and under torch.compile).  One finding for each loader that shuffles, which is
how training data is told from the rest.
"""

from migrator.rule import INFO, MANUAL, Example, Name, Report, Rule

rule = Rule(
    id="NPU708",
    name="data-loader",
    title="loading in one process and a smaller last batch keep an NPU waiting",
    applicability=MANUAL,
    tags=("advice", "performance", "data"),
    severity=INFO,
    docs="https://docs.pytorch.org/docs/stable/data.html",
    examples=[
        Example.reported(
            "from torch.utils.data import DataLoader\na = DataLoader(ds, batch_size=8, shuffle=True)\n",
            "loads in the main process, and ends each epoch on a smaller batch",
        ),
        Example.reported(
            "from torch.utils.data import DataLoader\na = DataLoader(ds, 8, True, num_workers=0, drop_last=True)\n",
            "loads in the main process",
        ),
        Example.unchanged(
            "from torch.utils.data import DataLoader\n"
            "a = DataLoader(ds, 8, shuffle=True, num_workers=args.workers, drop_last=True)\n"
            "b = DataLoader(ds, batch_size=8)\nc = DataLoader(ds, shuffle=True, **options)\n"
        ),
    ],
)

SHUFFLE, WORKERS, DROP_LAST = 2, 5, 8  # their places among DataLoader's parameters


@rule.on_name("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
def report(match: Name) -> Report | None:
    call = match.call
    if call is None or call.has_star or "batch_sampler" in call.keywords:
        return None
    shuffle, workers = call.argument(SHUFFLE, "shuffle"), call.argument(WORKERS, "num_workers")
    if shuffle is None or match.file.tree.text(shuffle.value) != "True":
        return None
    problems, remedies = [], []
    if workers is None or match.file.tree.text(workers.value) == "0":
        problems.append("loads in the main process")
        remedies.append("num_workers of a few for each NPU, with persistent_workers=True")
    if call.argument(DROP_LAST, "drop_last") is None:
        problems.append("ends each epoch on a smaller batch")
        remedies.append("drop_last=True")
    if not problems:
        return None
    return Report(f"this training DataLoader {', and '.join(problems)}", f"Consider {' and '.join(remedies)}.")
