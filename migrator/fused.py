"""What speaks against a fused optimizer of torch_npu in a program; nothing does where the list is empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from migrator.project import Project
from migrator.training import SCHEDULER, Flow, Training, is_optimizer_name

if TYPE_CHECKING:
    from migrator.match import Name


@dataclass(frozen=True)
class Objection:
    """A reason against a fused optimizer, and where in the repository it lies."""

    reason: str
    path: str
    line: int
    sure: bool = False
    kernel: bool = False

    def __str__(self) -> str:
        return f"{self.reason} ({self.path}:{self.line})"


def uses_device(match: Name) -> bool:
    """Whether the file is part of a program in which anything names an accelerator; a test is part of none."""
    modules = match.file.project.programs.around(match.file.path)
    return any(module.device for module in modules) and not modules[0].is_test


def refused(match: Name, new: str) -> str | None:
    """Why the arguments of a call cannot go to the fused class `new`; None: they can."""
    call, target = match.call, match.file.target
    signature, short = target.signature(new), new.rpartition(".")[2]
    if call is None or call.has_star or not call.node.args:
        return "its arguments are not written out"
    if signature is None:
        return f"{short} is not in torch_npu {target.torch_npu}"
    if unknown := [f"{keyword}=" for keyword in call.keywords if not signature.accepts(keyword)]:
        return f"{short} does not take {', '.join(unknown)}"
    lr = call.argument(1, "lr")
    if lr is None:
        return f"{short} needs lr" if short == "NpuFusedSGD" else None
    return f"{short} takes no tensor for lr" if "ensor(" in match.file.tree.text(lr) else None


def against(match: Name) -> list[Objection]:
    """What speaks against a fused optimizer in the place of this construction; the surest reasons first."""
    file = match.file
    assign = file.tree.parents.get(match.call.node) if match.call is not None else None
    target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    if isinstance(target, cst.Attribute):
        target = target.attr
    if isinstance(target, cst.Name):
        return objections(file.project, file.path, target.value)
    line, _ = file.source.position(file.tree.span(match.node)[0])
    return [Objection("it is not bound to one name", file.path, line)]


def objections(project: Project, path: str, name: str) -> list[Objection]:
    """What speaks against a fused optimizer that the file at `path` binds to `name`; the surest reasons first."""
    around = project.programs.around(path)
    modules = [(m.path, m.training) for m in around if m.training is not None]
    made = {one.name for _, training in modules for one in training.made}
    names, found = _aliases(modules, name)
    for where, training in modules:
        for hazard in training.hazards:
            if not hazard.of or hazard.of in names:
                found.append(Objection(hazard.reason, where, hazard.line, hazard.sure, hazard.kernel))
        for receiver, line in training.zeroed:
            if receiver not in made | names and not is_optimizer_name(receiver):
                found.append(Objection(f"{receiver}.zero_grad() drops the gradients' memory", where, line, sure=True))
        if where == path:
            found += _elsewhere(training, where, name)
    if not any(m.sets_device for m in around):
        reason = "parameters may lie on another device than the current one, as no set_device() is seen"
        found += [Objection(reason, m.path, m.numbered) for m in around if m.numbered]
    if not any(names & training.steps for _, training in modules):
        found.append(Objection("no call of its step() is seen", path, 1))
    # A cause says more than where the optimizer gets out of sight, and may be the reason: scaler.step(optimizer).
    return sorted(dict.fromkeys(found), key=lambda objection: (not objection.sure, not objection.kernel))


def _elsewhere(training: Training, where: str, name: str) -> Iterator[Objection]:
    """Optimizers of the same file: the same parameters in two of them, and gradients that only some of them have."""
    for one in training.made:
        if one.name != name:
            other = one.name or "another optimizer"
            yield Objection(f"the losses of {other} may reach only some of its parameters", where, one.line)
        elif not one.whole:
            yield Objection("its parameters are not seen to be those of a module", where, one.line)


def _aliases(modules: Sequence[tuple[str, Training]], name: str) -> tuple[set[str], list[Objection]]:
    """Every name that the optimizer goes by, and where it gets out of sight."""
    names, escapes = {name}, []
    waiting = [(where, training, flow) for where, training in modules for flow in training.flows]
    while ready := [item for item in waiting if item[2].of in names]:
        waiting = [item for item in waiting if item[2].of not in names]
        for where, training, flow in ready:
            for target in [flow.to] if flow.to is not None else _parameters_of(flow, training, modules):
                if target is None or not is_optimizer_name(target):
                    how = f"goes to {flow.call}()" if flow.call else f"is also called {target}"
                    reason = f"{flow.of} {how}, where it is not followed"
                    if flow.call == "step":
                        reason = f"{flow.of} is stepped by another object, as a GradScaler does"
                    escapes.append(Objection(reason, where, flow.line))
                else:
                    names.add(target)
    return names, escapes


def _parameters_of(flow: Flow, own: Training, modules: Sequence[tuple[str, Training]]) -> list[str | None]:
    """The names of the parameter that takes the argument, one per function of that name: here, else anywhere."""
    candidates = own.functions.get(flow.call) or [
        names for _, training in modules for names in training.functions.get(flow.call, ())
    ]
    if not candidates:
        return [] if SCHEDULER.search(flow.call) else [None]
    if isinstance(flow.place, str):
        return [flow.place if flow.place in names else None for names in candidates]
    return [names[flow.place] if flow.place < len(names) else None for names in candidates]
