"""What to tell the user about watched loops: a CSV file, and a summary with remedies."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from .places import Place
from .record import Call, Journal, Loop, Range, Site, say

COLUMNS = (
    "function_name",
    "call_stack",
    "file_location",
    "line_number",
    "input_shape_range",
    "output_shape_range",
    "calls",
    "distinct",
)

SETTLED_BATCHES = 4  # batches of one shape that outweigh a different first batch
SHOWN_CALLS = 3
SHOWN_LINES = 6
SHOWN_RANGE = 60  # characters

LAST_BATCH, DATA, IMAGE, LENGTH, COUNT, RANK = "last batch", "data", "image", "length", "count", "rank"

REMEDIES = {  # in the order in which they are told; a line is listed under the first that applies
    DATA: "The size of a result depends on the data (boolean mask, nonzero, unique ...). Keep the full shape and mask"
    "\n  the arithmetic: (x * mask).sum() or torch.where(mask, x, 0) instead of x[mask].",
    IMAGE: "Image sizes vary. Resize or letterbox to one size in the dataset or in collate_fn, or to a few sizes.",
    LENGTH: "Lengths vary. In collate_fn pad to one length, or up to the next of a few bucket lengths (multiples of 64,"
    "\n  say), and mask the padding.",
    COUNT: "The first dimension varies: the batch size, or a number of elements chosen before. Use batches of one size,"
    "\n  and pad to a fixed number of elements with a mask.",
    RANK: "The number of tensors or of dimensions varies. Pad to a fixed number.",
    LAST_BATCH: "Only the last batch of an epoch is smaller. Give the DataLoader drop_last=True; where every sample"
    "\n  counts, as in evaluation, pad that batch and mask the padding.",
}

COMPILE_MODE = (
    "Where shapes have to vary: call torch_npu.npu.set_compile_mode(jit_compile=False) once at the start. Operators"
    "\nthen use prebuilt binary kernels instead of compiling one for each shape (the default on Ascend910B1 and newer)."
)


@dataclass(frozen=True)
class Finding:
    """An operator at one place whose shapes vary, with its varying calls."""

    loop: Loop
    site: Site
    calls: list[Call]

    @property
    def count(self) -> int:
        return sum(call.count for call in self.calls)

    @property
    def distinct(self) -> str:
        """The number of different shapes, "32+" when they were too many to count."""
        number = len({key for call in self.calls for key in call.shapes})
        return f"{number}+" if any(call.untold for call in self.calls) else str(number)

    @property
    def inputs(self) -> str:
        return _ranges_text([call.inputs for call in self.calls])

    @property
    def outputs(self) -> str:
        return _ranges_text([call.outputs for call in self.calls])

    def csv_row(self) -> list[object]:
        """Return the values of COLUMNS."""
        place = self.site.place
        stack = " <- ".join(f"{file}:{line} {function}" for file, line, function in place.stack())
        filename, line = place.user_lines()[0]
        return [
            self.site.name,
            f"backward of {stack}" if place.is_backward else stack,
            filename,
            line,
            self.inputs,
            self.outputs,
            self.count,
            self.distinct,
        ]

    def varying_dimensions(self) -> set[tuple[int, int]]:
        """Return (dimension, rank) of each dimension that varies in an input or output."""
        ranges = [known for call in self.calls for known in (call.inputs, call.outputs)]
        return {dimension for known in ranges for dimension in known.varying_dimensions()}


def _ranges_text(ranges: list[Range]) -> str:
    texts = list(dict.fromkeys(map(str, ranges)))
    more = len(texts) - SHOWN_CALLS
    return "; ".join(texts[:SHOWN_CALLS] + ([f"and {more} more"] if more > 0 else []))


def findings(journal: Journal) -> list[Finding]:
    """Return what varies, in the order of execution.

    If anything ran on an accelerator, operators on the CPU do not count.
    """
    sites = [(loop, site) for loop in list(journal.loops.values()) for site in list(loop.sites.values())]
    on_accelerator = any(site.device not in ("cpu", "meta") for _, site in sites)
    return [
        Finding(loop, site, calls)
        for loop, site in sites
        if not (on_accelerator and site.device == "cpu") and (calls := _varying_calls(site))
    ]


def _varying_calls(site: Site) -> list[Call]:
    """Return the calls of a site whose shapes vary, none if it only ever saw the shapes of its first iteration."""
    seen_first: set[int] = set()
    seen_later: set[int] = set()
    for call in site.calls:
        for key, seen in call.shapes.items():
            (seen_first if seen.first_iteration == site.first_iteration else seen_later).add(key)
    return [call for call in site.calls if _varies(call)] if seen_later - seen_first else []


def _varies(call: Call) -> bool:
    """Say whether a call has several shapes, unless only the very first batch, a warm-up, differs."""
    settled = [seen for seen in call.shapes.values() if seen.last_batch > 1]
    if len(settled) == 1 and settled[0].batches >= SETTLED_BATCHES:
        return False
    return len(call.shapes) > 1


def _only_last_batch_differs(call: Call) -> bool:
    usual = max(call.shapes.values(), key=lambda seen: seen.batches)
    return usual.batches > 1 and all(
        seen.batches == seen.epoch_ends and seen.size < usual.size for seen in call.shapes.values() if seen is not usual
    )


def _cause(finding: Finding, has_images: bool) -> str:
    if all(map(_only_last_batch_differs, finding.calls)):
        return LAST_BATCH
    if finding.site.sized_by_data:
        return DATA
    dimensions = finding.varying_dimensions()
    if any(dimension > 0 for dimension, _ in dimensions):
        return IMAGE if has_images else LENGTH
    return COUNT if dimensions else RANK


def _is_about_images(finding: Finding) -> bool:
    spatial = any(rank >= 4 and dimension >= 2 for dimension, rank in finding.varying_dimensions())
    return spatial and any(word in finding.site.name for word in ("conv", "pool", "upsample", "grid_sampl"))


def location(place: Place, caller: int = 0) -> str:
    """Return ``file:line`` of a place, or of its n-th caller; the file relative to the working directory if below."""
    filename, line = place.user_lines()[caller]
    try:
        return f"{Path(filename).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return f"{filename}:{line}"


def summary(journal: Journal) -> str:
    """Return the varying lines of each loop by cause, each cause with its remedy."""
    found = findings(journal)
    lines = []
    for loop in list(journal.loops.values()):
        if loop.batch:
            lines += _loop_summary(loop, [finding for finding in found if finding.loop is loop])
    if found:
        lines += [COMPILE_MODE, f"All {len(found)} operators: {output_path(journal)}"]
    if journal.lost:
        lines.append(f"{journal.lost} operator calls were left out, beyond the limits of what is kept.")
    if journal.failure:
        lines.append(f"Some operator calls could not be recorded, the first: {journal.failure}")
    return "\n".join(lines) or "no watched loop has run."


def _loop_summary(loop: Loop, found: list[Finding]) -> list[str]:
    caller = f" (called at {location(loop.place, 1)})" if len(loop.place.user_lines()) > 1 else ""
    title = f"loop at {location(loop.place)}{caller}, {min(loop.batch, loop.steps)} batches recorded: "
    if not loop.sites:
        return [title + "no operator ran in its body, in the thread that iterates."]
    if not found:
        return [title + "no shapes vary."]
    by_line: dict[str, list[Finding]] = {}
    for finding in found:
        by_line.setdefault(location(finding.site.place), []).append(finding)
    has_images = any(map(_is_about_images, found))
    by_cause: dict[str, list[str]] = {cause: [] for cause in REMEDIES}
    for where, group in by_line.items():
        causes = [_cause(finding, has_images) for finding in group]
        main = min(causes, key=list(REMEDIES).index)
        by_cause[main].append(f"    {where}  {_line_text(group[causes.index(main)], len(group) - 1)}")
    text = [title + f"the shapes of {len(found)} operators vary."]
    for cause, lines in by_cause.items():
        if lines:
            text += [f"  {REMEDIES[cause]}", *lines[:SHOWN_LINES]]
        if len(lines) > SHOWN_LINES:
            text.append(f"    and {len(lines) - SHOWN_LINES} more lines")
    return text


def _line_text(finding: Finding, others: int) -> str:
    shapes = f"{_shorten(finding.inputs)} -> {_shorten(finding.outputs)}".strip()
    more = f", other operators: {others}" if others else ""
    return f"{finding.site.name} {shapes} (shapes: {finding.distinct}, calls: {finding.count}{more})"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_RANGE else text[: SHOWN_RANGE - 3] + "..."


def output_path(journal: Journal) -> Path:
    """Return the CSV file of this rank. NPU_MIGRATE_SHAPES_OUT names a folder, or a file if it ends in .csv."""
    out = journal.start_folder / os.environ.get("NPU_MIGRATE_SHAPES_OUT", "npu_shapes")
    if out.suffix != ".csv":
        return out / f"rank{journal.rank}.csv"
    return out.with_name(f"{out.stem}.rank{journal.rank}.csv") if journal.rank else out


def save(journal: Journal, force: bool = False) -> None:
    """Write the CSV file if there is something new, all of it or nothing."""
    loops = list(journal.loops.values())
    if not force and all(loop.is_saved for loop in loops):
        return
    path = output_path(journal)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(finding.csv_row() for finding in findings(journal))
        part.replace(path)
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}. Set NPU_MIGRATE_SHAPES_OUT to a writable folder.")
    for loop in loops:
        loop.is_saved = True


def finish(journal: Journal) -> None:
    """Write the report for the last time, if any loop was watched; the first rank prints the summary."""
    if not journal.loops:
        return
    save(journal, force=True)
    if journal.rank == 0:
        say(summary(journal))
