"""Whether a torch API works on NPUs: the vendor's support lists, and the kernels that the wheels register."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from migrator.api._names import within
from migrator.api._store import load
from migrator.api._versions import parse


class SupportStatus(str, Enum):
    """Verdict about one API."""

    YES = "yes"
    PARTIAL = "partial"
    """Works within limits: see ``dtypes`` and ``limits``."""
    NO = "no"
    CPU_FALLBACK = "cpu-fallback"
    """No NPU kernel: runs on the CPU with a warning, slowly, and fails where that fallback is switched off."""
    UNVERIFIED = "unverified"
    """No list names it. That does not mean that it fails."""


DTYPES = {
    "B": "bfloat16",
    "H": "float16",
    "F": "float32",
    "D": "float64",
    "u": "uint8",
    "c": "int8",
    "s": "int16",
    "w": "uint16",
    "i": "int32",
    "l": "int64",
    "b": "bool",
    "C": "complex64",
    "Z": "complex128",
}
"""Letters that stand for dtypes in support.json."""

HARDWARE = {"A2": "Atlas A2 training", "A3": "Atlas A3 training", "950": "Ascend 950DT"}
"""Columns of the support lists."""

FAMILIES = (("Ascend910_93", "A3"), ("Ascend910B", "A2"), ("Ascend950", "950"))
"""Start of a chip name → column of the support lists."""

NAMESPACES = (
    ("torch.nn.functional.", ""),
    ("torch.Tensor.", ""),
    ("torch.linalg.", "linalg_"),
    ("torch.special.", "special_"),
    ("torch.fft.", "fft_"),
    ("torch.", ""),
)
"""Where a Python function lives → prefix of the operator behind it."""


@dataclass(frozen=True)
class Support:
    """What is known about one API for one torch version."""

    api: str
    status: SupportStatus
    source: str
    """Where the verdict comes from, for people."""
    dtypes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Accepted dtypes per parameter; "" is the main input. Empty: the list names none."""
    limits: tuple[str, ...] = ()
    is_known: bool = True
    """False when neither a list nor the wheels know the name: it may not even exist."""
    may_fall_back: bool = False
    """Some inputs run on the CPU."""
    hardware: tuple[tuple[str, bool], ...] = ()
    """(column, supported) per product line; empty when the list of that version does not tell them apart."""

    @property
    def limit(self) -> str | None:
        """The limits as one sentence, or None."""
        parts = [f"{name or 'input'}: {', '.join(dtypes)}" for name, dtypes in self.dtypes]
        parts += self.limits
        if self.may_fall_back:
            parts.append("may run on the CPU for some inputs")
        missing = [HARDWARE[column] for column, supported in self.hardware if not supported]
        if missing and len(missing) < len(self.hardware):
            parts.append("not on " + ", ".join(missing))
        return "; ".join(parts) or None

    def on(self, soc: str | None) -> SupportStatus:
        """Verdict for one chip, e.g. "Ascend910B1"; the general one when the list does not know it."""
        column = next((column for prefix, column in FAMILIES if soc and soc.startswith(prefix)), None)
        return SupportStatus.NO if (column, False) in self.hardware else self.status


@lru_cache(maxsize=4096)
def support(api_name: str, torch_version: str) -> Support | None:
    """Support of a torch API, e.g. ``support("torch.nn.functional.gelu", "2.7.1")``; None: no torch name.

    Lists exist for torch 2.6 to 2.13; other versions are answered by the nearest one, which ``source`` names.
    """
    if not api_name.startswith("torch."):
        return None
    listed = _listed(api_name, torch_version)
    operator = _operator(api_name)
    has_kernel = operator is not None and within(load("kernels.json")["kernels"].get(operator, ""), torch_version)
    registered = None if has_kernel or operator is None else load("fallbacks.json")["operators"].get(operator)
    falls_back = registered == "cpu"
    if listed is not None and not (falls_back and listed.status is SupportStatus.NO):
        return listed
    if registered is not None:
        status = SupportStatus.CPU_FALLBACK if falls_back else SupportStatus.NO
        return Support(api_name, status, "the operators that torch_npu 2.13.0 registers")
    source = "it has an NPU kernel, but no support list names it" if has_kernel else "no support list names it"
    return Support(api_name, SupportStatus.UNVERIFIED, source, is_known=has_kernel)


def _operator(api_name: str) -> str | None:
    for namespace, prefix in NAMESPACES:
        if api_name.startswith(namespace):
            name = api_name[len(namespace) :]
            return prefix + name if "." not in name else None
    return None


def _listed(api_name: str, torch_version: str) -> Support | None:
    data = load("support.json")
    index = data["apis"].get(api_name)
    if index is None:
        return None
    wanted = parse(torch_version).release[:2]
    lists: list[str] = data["lists"]
    version = next((v for v in reversed(lists) if parse(v).release[:2] <= wanted), lists[0])
    entry = None
    for first, changed in data["histories"][index].items():
        if parse(first) <= parse(version):
            entry = changed
    return None if entry is None else _decode(api_name, entry, version, data["limits"])


def _decode(api_name: str, entry: str, version: str, limits: list[str]) -> Support:
    """Read an entry such as "p BHF weight=HF #12 ~ @A2,A3"."""
    code, *tokens = entry.split()
    dtypes: list[tuple[str, tuple[str, ...]]] = []
    chosen: list[str] = []
    hardware: tuple[tuple[str, bool], ...] = ()
    for token in tokens:
        if token.startswith("#"):
            chosen.append(limits[int(token[1:])])
        elif token.startswith("@"):
            supported = token[1:].split(",")
            hardware = tuple((column, column in supported) for column in HARDWARE)
        elif token != "~":
            parameter, _, letters = token.rpartition("=")
            dtypes.append((parameter, tuple(DTYPES[letter] for letter in letters)))
    status = {"y": SupportStatus.YES, "p": SupportStatus.PARTIAL, "n": SupportStatus.NO}[code]
    source = f"the support list of torch_npu's documentation for torch {version}"
    return Support(
        api_name,
        status,
        source,
        dtypes=tuple(dtypes),
        limits=tuple(chosen),
        may_fall_back="~" in tokens,
        hardware=hardware,
    )
