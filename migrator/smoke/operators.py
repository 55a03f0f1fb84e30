"""Operators that a run used, and what the support data says of them on the target hardware."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from migrator import api
from migrator.smoke.recording import Recording
from migrator.target import Target

MAX_PLACES = 5
_FALLBACK = re.compile(r"operator '(aten::[\w.]+)' is not currently supported on the NPU")
_RARE = frozenset({"float64", "complex32", "complex64", "complex128"})
"""Dtypes that the hardware has no kernels for in many operators."""
_NAMESPACES = ("torch.", "torch.Tensor.", "torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.fft.")
_PUBLIC = {
    "addmm": "torch.addmm",
    "convolution": "torch.nn.functional.conv2d",
    "native_layer_norm": "torch.nn.functional.layer_norm",
    "native_batch_norm": "torch.nn.functional.batch_norm",
    "native_group_norm": "torch.nn.functional.group_norm",
    "native_dropout": "torch.nn.functional.dropout",
    "_softmax": "torch.nn.functional.softmax",
    "_log_softmax": "torch.nn.functional.log_softmax",
    "_to_copy": "torch.Tensor.to",
}
"""Operators whose Python function has another name."""
_WITHOUT_KERNEL = frozenset(
    (
        *("alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "lift_fresh", "new_empty"),
        *("permute", "reshape", "select", "slice", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view"),
        *("view_as_complex", "view_as_real", "_unsafe_view", "_reshape_alias", "set_", "unfold", "is_nonzero"),
    )
)


class Verdict(str, Enum):
    """What is wrong with an operator."""

    FELL_BACK = "runs on the CPU"
    UNSUPPORTED = "not supported"
    UNVERIFIED = "in no support list"


@dataclass(frozen=True)
class Operator:
    """An operator that will be slow or fail on the hardware.

    places  the user's lines that ran it, as (file relative to the tree, line)
    """

    name: str
    dtypes: tuple[str, ...]
    verdict: Verdict
    why: str
    places: tuple[tuple[str, int], ...]


def judge(recording: Recording, stderr: str, root: Path, target: Target) -> list[Operator]:
    """The operators of a run that a person should look at, the certain ones first."""
    fallen = {_base(name) for name in _FALLBACK.findall(stderr)}
    found: dict[tuple[str, tuple[str, ...], Verdict, str], dict[tuple[str, int], None]] = {}
    for name, dtypes, place in _used(recording, root):
        answer = _verdict(name, dtypes, fallen, target)
        if answer is not None:
            verdict, why, shown = answer
            found.setdefault((name, shown, verdict, why), {}).update({place: None} if place else {})
    told = {name for name, *_ in found}
    for name in sorted(fallen - told):
        found[name, (), Verdict.FELL_BACK, _SLOW] = {}
    order = list(Verdict)
    keys = sorted(found, key=lambda key: (order.index(key[2]), key[0]))
    return [Operator(*key, tuple(found[key])[:MAX_PLACES]) for key in keys]


_SLOW = "torch_npu has no kernel for it and copies to the CPU and back"


def _used(recording: Recording, root: Path) -> Iterator[tuple[str, tuple[str, ...], tuple[str, int] | None]]:
    start = str(root.resolve()) + os.sep
    for trace in recording.traces:
        for event in trace.operators:
            file, line = event["file"], event["line"]
            own = file is not None and str(Path(file).resolve()).startswith(start)
            place = (str(Path(file).resolve())[len(start) :], int(line)) if own else None
            yield _base(event["name"]), tuple(event["dtypes"]), place


def _base(name: str) -> str:
    """aten::digamma.out → digamma."""
    return name.partition("::")[2].partition(".")[0]


def _verdict(
    name: str, dtypes: Sequence[str], fallen: set[str], target: Target
) -> tuple[Verdict, str, tuple[str, ...]] | None:
    """(verdict, why, the dtypes that are the reason), or None when nothing is known against it."""
    if name in _WITHOUT_KERNEL:
        return None
    if name in fallen:
        return Verdict.FELL_BACK, _SLOW, ()
    rare = tuple(dtype for dtype in dtypes if dtype in _RARE)
    known = _support(name, target.torch_npu)
    if known is None:
        return (Verdict.UNVERIFIED, f"no list says whether it takes {' or '.join(rare)}", rare) if rare else None
    if known.on(target.soc) is api.SupportStatus.NO:
        return Verdict.UNSUPPORTED, known.limit or f"says {known.source}", ()
    accepted = next((accepted for parameter, accepted in known.dtypes if not parameter), ())
    refused = tuple(dtype for dtype in rare if accepted and dtype not in accepted)
    if refused:
        return Verdict.UNSUPPORTED, f"{known.api} takes {', '.join(accepted)}", refused
    return None


@cache
def _support(name: str, version: str) -> api.Support | None:
    """What the lists say of the Python function behind an operator."""
    names = [_PUBLIC[name]] if name in _PUBLIC else [f"{space}{name}" for space in _NAMESPACES]
    names += [f"torch.Tensor.{name}_", f"torch.linalg.{name.removeprefix('linalg_')}"]
    for candidate in names:
        found = api.support(candidate, version)
        if found is not None and found.is_known and found.status is not api.SupportStatus.UNVERIFIED:
            return found
    return None
