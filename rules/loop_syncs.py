"""Values that a training loop fetches from the device at each step.

`.item()`, `.tolist()`, `.cpu()`, `.numpy()` and printing a loss wait until the device has caught up.  Operators are
launched from a queue (TASK_QUEUE_ENABLE) by a host core that is often slower than on a GPU server; each wait
drains that queue, and the NPU idles until it is full again.  One finding for each loop that trains and fetches
several values at every step; what stands under an `if` is taken to be rare.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from migrator.context import FileContext
from migrator.rule import INFO, MANUAL, Example, FileMatch, Report, Rule

rule = Rule(
    id="NPU707",
    name="loop-syncs",
    title="fetching values at each training step keeps the NPU waiting",
    applicability=MANUAL,
    tags=("advice", "performance"),
    severity=INFO,
    docs="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
    examples=[
        Example.reported(
            "for x in xs:\n    loss = f(x)\n    loss.backward()\n    opt.step()\n"
            "    total += loss.item()\n    seen.append(y.detach().cpu().numpy())\n",
            "2 values are fetched from the device at every training step (lines 5, 6)",
        ),
        Example.unchanged(
            "for i, x in enumerate(xs):\n    loss = f(x)\n    loss.backward()\n    opt.step()\n"
            "    total += loss.item()\n"
            "    if i % 100 == 0:\n        print(loss.item(), acc.item())\n"
            "for x in xs:\n    f(x).backward()\n    a += x.grad.sum().item()\n    b += g(x).item()\n"
        ),
    ],
)

FETCHES = frozenset({"item", "tolist", "cpu", "numpy"})
FEW = 2  # one value, the loss, is what every loop fetches


@rule.on_file(".backward(")
def report(match: FileMatch) -> list[Report]:
    file = match.file
    if ".backward(" not in file.source.text:
        return []
    found = []
    for loop in (*file.tree.all(cst.For), *file.tree.all(cst.While)):
        methods = {_method(call) for call in _calls(loop.body, into_branches=True)}
        fetches = _fetches(file, loop.body) if methods >= {"backward", "step"} else []
        if len(fetches) >= FEW:
            lines = sorted({file.source.position(file.tree.span(call)[0])[0] for call in fetches})
            found.append(
                Report(
                    f"{len(fetches)} values are fetched from the device at every training step "
                    f"(lines {', '.join(map(str, lines))})",
                    "Add them up on the device (total += loss.detach()), and fetch the sums every hundred steps "
                    "or at the end of the epoch.",
                    node=min(fetches, key=lambda call: file.tree.span(call)),
                )
            )
    return found


def _fetches(file: FileContext, body: cst.CSTNode) -> list[cst.Call]:
    """The calls that fetch a value at each step; of a chain such as x.cpu().numpy() the last one."""
    return [
        call
        for call in _calls(body, into_branches=False)
        if _method(call) in FETCHES and _method(_next_in_chain(file, call)) not in FETCHES
    ]


def _next_in_chain(file: FileContext, call: cst.Call) -> cst.CSTNode | None:
    attribute = file.tree.parents.get(call)
    return file.tree.parents.get(attribute) if isinstance(attribute, cst.Attribute) else None


def _method(node: cst.CSTNode | None) -> str | None:
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr.value
    return None


def _calls(node: cst.CSTNode, into_branches: bool) -> Iterator[cst.Call]:
    """The calls of a loop's body that are not in a loop or function of their own, nor (if asked) under an `if`."""
    for child in node.children:
        if isinstance(child, (cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            continue
        if isinstance(child, cst.If) and not into_branches:
            continue
        if isinstance(child, cst.Call):
            yield child
        yield from _calls(child, into_branches)
