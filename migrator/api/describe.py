"""One answer about one name: what it becomes on an NPU, since when, with which limits, and what to do."""

from __future__ import annotations

import difflib
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from migrator import api

if TYPE_CHECKING:
    from migrator.target import Target


class Subject(str, Enum):
    """What sort of name was asked about."""

    CUDA = "cuda"
    """A name of CUDA code, or of torch, that has a row."""
    NPU = "npu"
    TORCH = "torch"
    """Another torch API: only the support lists know it."""
    ENVIRONMENT = "environment"
    PACKAGE = "package"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Description:
    """Everything the data knows about a name for one target; what does not apply is None or empty."""

    name: str
    torch_npu: str
    subject: Subject
    row: str | None = None
    """The name whose row answers; a parent when the name has no row of its own."""
    kind: str | None = None
    """Of a row: rename, drop, manual or advice; of a variable: real, option, deprecated, cann or fake."""
    replacement: str | None = None
    available: bool | None = None
    """Whether the replacement (or the NPU name itself) can be used with the target."""
    since: str | None = None
    until: str | None = None
    torch_since: str | None = None
    signature: str | None = None
    """Of the replacement, or of the NPU name itself, in the target."""
    beside: tuple[str, ...] = ()
    """When the name is missing in the target: what the same class or module has there."""
    support: str | None = None
    """Verdict of the support lists on a torch API."""
    limit: str | None = None
    default: str | None = None
    remedy: str | None = None
    caveat: str | None = None
    suggestions: tuple[str, ...] = ()
    """Known names that look alike, for an unknown one."""

    def to_json(self) -> dict[str, Any]:
        """The fields by name, as strings, lists, booleans and None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["subject"] = self.subject.value
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def to_text(self, width: int | None = None) -> str:
        """One line for each thing that is known, broken at `width` columns; no line break at the end."""
        entries = [
            ("becomes" if self.kind in (api.Kind.RENAME.value, api.Kind.DROP.value) else "nearest", self._becomes()),
            ("exists", self._exists()),
            ("status", self.kind if self.row is None else None),
            ("default", self.default),
            ("signature", self.signature),
            (f"{self.torch_npu} has", ", ".join(self.beside)),
            ("support", f"{self.support} ({self.limit})" if self.support and self.limit else self.support),
            ("what to do", self.remedy),
            ("note", self.caveat),
            ("did you mean", ", ".join(self.suggestions)),
        ]
        lines = [self._headline()]
        lines += [f"  {label + ':':<14} {text}" for label, text in entries if text]
        if width is not None:
            lines = [_filled(line, width) for line in lines]
        return "\n".join(lines)

    def _headline(self) -> str:
        head = f"{self.name} (torch_npu {self.torch_npu})"
        if self.subject is Subject.UNKNOWN:
            return f"{head}: nothing is known about this name"
        if self.row is not None and not self.row.endswith(self.name):
            return f"{head}: answered by {self.row}"
        return head

    def _becomes(self) -> str | None:
        if self.row is None and self.subject is Subject.CUDA:
            return self.replacement
        if self.row is None or self.replacement == self.name:
            return None
        if self.replacement is None:
            return "nothing; it can be deleted" if self.kind == api.Kind.DROP.value else None
        when = self._when()
        return f"{self.replacement}, {when}" if when else self.replacement

    def _exists(self) -> str | None:
        if self.row is not None or self.available is None:
            return None
        answer = "yes" if self.available else "no"
        when = self._when() or ("in every known wheel" if self.since else "")
        return f"{answer}, {when}" if when else answer

    def _when(self) -> str:
        """Half a sentence such as "which comes with torch_npu 2.11.0: not in 2.6.0"; empty: it was always there."""
        when = [f"with torch {self.torch_since} or later"] if self.torch_since else []
        if self.until:
            when.append(f"only in torch_npu {self.since} to {self.until}")
        elif self.since and self.since != api.versions()[0]:
            when.append(f"from torch_npu {self.since} on")
        return " and ".join(when) + ("" if self.available or not when else f"; not in {self.torch_npu}")


def _filled(line: str, width: int) -> str:
    """The line with its further lines below its text; names stay whole."""
    indent = " " * 17
    return textwrap.fill(line, max(width, 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def describe(name: str, target: Target) -> Description:
    """What there is to know about a CUDA name, an NPU name, another torch API, a variable or a package."""
    name = name.strip()
    row = api.mapping(name) or api.mapping(f"env:{name}") or api.mapping(f"pkg:{name}")
    if row is not None:
        return _of_row(name, row, target)
    variable = api.env(name.removeprefix("env:"))
    if variable is not None:
        return _of_variable(name, variable, target)
    if api.since(name) or name.startswith(("torch_npu.", "torch.npu.")):
        return _of_npu(name, target)
    supported = api.support(name, target.torch_npu)
    if supported is not None and supported.is_known:
        return _of_torch(supported, target)
    row = api.mapping_for(name) or api.mapping_for(f"env:{name}") or api.mapping_for(f"pkg:{name}")
    if row is not None:
        return _of_child(name, row, target)
    inside = [row for row in api.mappings() if row.cuda.startswith(f"{name}.")]
    if inside:
        return _of_namespace(name, inside, target)
    return Description(name, target.torch_npu, Subject.UNKNOWN, suggestions=_alike(name))


def _of_row(name: str, row: api.Mapping, target: Target) -> Description:
    prefix = row.cuda.partition(":")[0]
    subject = {"env": Subject.ENVIRONMENT, "pkg": Subject.PACKAGE}.get(prefix, Subject.CUDA)
    available = target.can(row)
    supported = api.support(name, target.torch_npu)
    listed = supported is not None and supported.is_known
    return Description(
        name,
        target.torch_npu,
        subject,
        row=row.cuda,
        kind=row.kind.value,
        replacement=row.npu,
        available=available if row.npu else None,
        since=row.since,
        until=row.until,
        torch_since=row.torch_since,
        signature=_signature(row.npu, target) if row.npu else None,
        beside=_beside(row.npu, target) if row.npu and not available else (),
        support=supported.status.value if listed and supported else None,
        limit=supported.limit if listed and supported else None,
        remedy=row.remedy,
        caveat=row.caveat,
    )


def _of_child(name: str, row: api.Mapping, target: Target) -> Description:
    """A name below a renamed one follows it (``torch.cuda.Stream.query``); else the parent's row answers."""
    rest = name[len(row.cuda) :]
    found = f"{row.npu}{rest}" if row.kind is api.Kind.RENAME else ""
    if not api.since(found):
        return _of_row(name, row, target)
    described = _of_npu(found, target)
    return replace(described, name=name, subject=Subject.CUDA, row=row.cuda, kind=row.kind.value, replacement=found)


def _of_namespace(name: str, rows: Sequence[api.Mapping], target: Target) -> Description:
    """A module or class that has no row itself, such as ``torch.cuda``: where most of its names go."""
    renamed = [row for row in rows if row.npu and target.can(row)]
    homes = Counter(row.npu.rpartition(".")[0] for row in renamed if row.npu)
    return Description(
        name,
        target.torch_npu,
        Subject.CUDA,
        replacement=homes.most_common(1)[0][0] if 2 * len(renamed) > len(rows) else None,
        remedy=f"{len(renamed)} of the {len(rows)} known names in it have a counterpart in torch_npu "
        f"{target.torch_npu}. Ask for one of them: `npu-migrate api {[*renamed, *rows][0].cuda}`.",
    )


def _of_npu(name: str, target: Target) -> Description:
    available = target.has(name)
    known = api.since(name) is not None
    return Description(
        name,
        target.torch_npu,
        Subject.NPU,
        available=available,
        since=api.since(name),
        until=api.until(name),
        signature=_signature(name, target),
        beside=() if available else _beside(name, target),
        remedy=None if known else "No torch_npu wheel has this name: do not write it.",
        suggestions=() if known else _alike(name),
    )


def _of_torch(supported: api.Support, target: Target) -> Description:
    remedy = None
    if supported.status is api.SupportStatus.CPU_FALLBACK:
        remedy = (
            "Nothing, if it is not on a hot path: it runs on the CPU with a warning, correct but slow. "
            "TORCH_NPU_FALLBACK_CPU_DISABLE=1 (torch_npu 2.12 and later) turns the fallback into an error."
        )
    return Description(
        supported.api,
        target.torch_npu,
        Subject.TORCH,
        support=supported.status.value,
        limit=supported.limit,
        remedy=remedy,
        caveat=f"Source: {supported.source}.",
    )


def _of_variable(name: str, variable: api.EnvVar, target: Target) -> Description:
    known_by_wheels = variable.status in (api.EnvStatus.REAL, api.EnvStatus.DEPRECATED)
    return Description(
        name,
        target.torch_npu,
        Subject.ENVIRONMENT,
        kind=variable.status.value,
        available=target.at_least(variable.since) if known_by_wheels and variable.since else None,
        since=variable.since,
        default=variable.default,
        caveat=variable.meaning,
    )


def _signature(name: str, target: Target) -> str | None:
    found = target.signature(name)
    return str(found) if found is not None else None


def _beside(name: str, target: Target) -> tuple[str, ...]:
    """Public names that the parent of ``name`` has in the target; only for classes, modules have too many."""
    parent = name.rpartition(".")[0]
    below = [found for found in api.names(parent) if found.count(".") == parent.count(".") + 1]
    members = [found.rpartition(".")[2] for found in below if target.has(found)]
    public = [f"{parent}.{member}" for member in members if not member.startswith("_")]
    return tuple(public) if len(public) <= 12 else ()


def _alike(name: str) -> tuple[str, ...]:
    """Up to three known names that look like this one."""
    known = {row.cuda.partition(":")[2] or row.cuda: row.cuda for row in api.mappings() if " " not in row.cuda}
    if name.startswith("torch.npu"):
        known = {"torch" + found[len("torch_npu") :]: found for found in api.names("torch_npu.npu")}
    elif name.startswith("torch_npu"):
        known = {found: found for found in api.names("torch_npu")}
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
    package = name.partition(".")[0] + "."
    ending = [found for found in known if found.endswith("." + name.lstrip("."))]
    siblings = sorted(found for found in known if found.startswith(package) and package != "torch.")
    return tuple((ending or alike or siblings)[:3])
