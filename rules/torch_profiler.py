"""Profile with torch_npu.profiler.

torch.profiler records the host side only: before torch_npu 2.12 nothing tells it about the NPU, and
ProfilerActivity.CUDA is switched off with a warning.  torch_npu.profiler has the same profile, schedule, actions
and trace handler, and its own ProfilerActivity.  The two do not mix: torch refuses torch_npu's activities, and
torch_npu ignores torch's.  So all names of a file move together, and `record_function`, which both understand,
stays.

torch_npu's profile writes files.  Where code reads the results in memory, with key_averages() or events(), the
profile stays with torch: from torch_npu 2.12 on ProfilerActivity.NPU makes torch's own profiler measure the NPU,
and before that it is reported.  Where activities or schedules come from another file, both files have to move:
these fixes are for a person to confirm.
"""

from __future__ import annotations

import libcst as cst

from migrator.context import FileContext
from migrator.moves import Move, plan, respell
from migrator.names import Binding, Reference
from migrator.rule import INFO, SAFE, UNSAFE, Call, Edit, Example, FileMatch, Fix, Import, Name, Report, Rule, call_of
from migrator.statements import drop_arguments, rewrite_import

rule = Rule(
    id="NPU601",
    name="torch-profiler",
    title="torch.profiler does not see the NPU, torch_npu.profiler does",
    applicability=SAFE,
    tags=("profiling",),
    docs="https://github.com/Ascend/op-plugin/tree/master/docs/context",
    examples=[
        Example(
            "import torch\nimport torch_npu\n\n"
            "with torch.profiler.profile(\n"
            "    activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],\n"
            "    schedule=torch.profiler.schedule(wait=1, warmup=1, active=3),\n"
            "    on_trace_ready=torch.profiler.tensorboard_trace_handler('log', use_gzip=True),\n"
            ") as prof:\n    with torch.profiler.record_function('step'):\n        step()\n    prof.step()\n",
            "import torch\nimport torch_npu\n\n"
            "with torch_npu.profiler.profile(\n"
            "    activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],\n"
            "    schedule=torch_npu.profiler.schedule(wait=1, warmup=1, active=3),\n"
            "    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler('log'),\n"
            ") as prof:\n    with torch.profiler.record_function('step'):\n        step()\n    prof.step()\n",
            target="2.1.0",
        ),
        Example(
            "from torch.profiler import profile, record_function, ProfilerActivity as A\n"
            "with profile(activities=[A.CPU, A.CUDA]) as p:\n    f()\np.export_chrome_trace('t.json')\n",
            "from torch.profiler import record_function\n"
            "from torch_npu.profiler import profile, ProfilerActivity as A\n"
            "with profile(activities=[A.CPU, A.NPU]) as p:\n    f()\np.export_chrome_trace('t.json')\n",
        ),
        Example.reported(
            "from torch.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:\n    f()\n"
            "print(p.key_averages().table(sort_by='cpu_time_total'))\n",
            "key_averages at line 4",
            target="2.7.1",
        ),
        Example(
            "import torch_npu\nfrom torch.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:\n    f()\n"
            "print(p.key_averages().table(sort_by='cpu_time_total'))\n",
            "import torch_npu\nfrom torch.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as p:\n    f()\n"
            "print(p.key_averages().table(sort_by='cpu_time_total'))\n",
            target="2.12.0",
        ),
        Example.reported(
            "import torch\nimport torch_npu\n"
            "s = torch.profiler.schedule(wait=1, warmup=0, active=1, skip_first_wait=1)\n"
            "p = torch.profiler.profile(schedule=s)\n",
            "skip_first_wait=",
            target="2.7.1",
        ),
        Example.reported(
            "import torch\nimport torch_npu\n\n\n"
            "def start(activities):\n    return torch.profiler.profile(activities=activities)\n",
            "torch_npu.profiler.profile",
        ),
        Example.unchanged(
            "from torch.profiler import profile, ProfilerActivity\n"
            "with profile(activities=[ProfilerActivity.CPU]) as p:\n    f()\n"
        ),
    ],
)  # fmt: skip

OLD, NEW = "torch.profiler", "torch_npu.profiler"
PROFILES = ("profile", "_KinetoProfile")
SESSION = frozenset(
    {*PROFILES, "schedule", "tensorboard_trace_handler", "ProfilerActivity", "ProfilerAction", "supported_activities"}
)
CUDA = "ProfilerActivity.CUDA"
READS = frozenset({"key_averages", "total_average", "toggle_collection_dynamic", "preset_metadata_json"})
NATIVE = "2.12"  # the first wheel that plugs the NPU into torch's own profiler


@rule.on_file("profiler")
def profile_the_npu(match: FileMatch) -> list[Fix | Report]:
    file = match.file
    if "profiler" not in file.source.text or NEW in file.source.text:
        return []  # a file that names torch_npu.profiler was ported before
    uses = _uses(file)
    whole = any(name in PROFILES and call_of(file, use.node) is not None for use, name in uses)
    blind = [(use, name) for use, name in uses if _asks_for_the_device(file, uses, use, name)]
    blind = blind or ([] if whole else uses[:1])
    if not blind:
        return []
    hindrance = _hindrance(file, uses)
    if hindrance is None:
        return _move(file, uses)
    if file.target.at_least(NATIVE):
        return [answer for use, name in blind if (answer := _stay(match, use.node, name, whole))]
    return [
        Report(
            f"torch.profiler does not see the NPU before torch_npu {NATIVE}, and this cannot move: {hindrance}",
            'For a table of operators use torch.autograd.profiler.profile(use_device="npu"), which has key_averages(). '
            f"For a trace use {NEW}.profile with on_trace_ready={NEW}.tensorboard_trace_handler(dir), and read "
            "trace_view.json, operator_details.csv and kernel_details.csv there.",
            node=use.node,
        )
        for use, _ in blind
    ]


@rule.on_name("torch.profiler._ExperimentalConfig")
def experimental(match: Name) -> Report:
    remedy = match.row.remedy if match.row is not None else None
    return Report("torch.profiler._ExperimentalConfig means nothing to the NPU's profiler", remedy or "Leave it out.")


def _stay(match: FileMatch, node: cst.CSTNode, name: str, whole: bool) -> Fix | Report | None:
    """What is left to do where torch's own profiler measures the NPU."""
    if name == CUDA and isinstance(node, cst.Attribute):
        message = f"{OLD}.{CUDA} → {OLD}.ProfilerActivity.NPU: torch's profiler measures the NPU itself"
        return Fix([match.replace(node.attr, "NPU")], message, needs=(), node=node)
    if whole:
        return None  # the default activities are those of the device
    return Report(
        f"torch's own profiler measures the NPU from torch_npu {NATIVE} on",
        "Ask for ProfilerActivity.NPU where the profile is made.",
        INFO,
        node,
    )


def _uses(file: FileContext) -> list[tuple[Reference, str]]:
    """The uses of names that have to move together, and what they name below torch.profiler."""
    found = [(r, r.qualified[len(OLD) + 1 :]) for r in file.names.references if r.qualified.startswith(OLD + ".")]
    return [(reference, name) for reference, name in found if name.partition(".")[0] in SESSION]


def _asks_for_the_device(file: FileContext, uses: list[tuple[Reference, str]], use: Reference, name: str) -> bool:
    """Whether a use means more than the host side: CUDA's activity, the default activities, or unknown ones."""
    if name in (CUDA, "supported_activities"):
        return True
    call = call_of(file, use.node)
    if name not in PROFILES or call is None:
        return False
    return "activities" not in call.keywords or not _names(uses, "ProfilerActivity", "supported_activities")


def _names(uses: list[tuple[Reference, str]], *names: str) -> bool:
    return any(name.partition(".")[0] in names for _, name in uses)


def _hindrance(file: FileContext, uses: list[tuple[Reference, str]]) -> str | None:
    """Why torch_npu's profile cannot take the place of torch's."""
    for attribute in file.tree.all(cst.Attribute):
        if attribute.attr.value in READS or _reads_events(file, attribute):
            line, _ = file.source.position(file.tree.span(attribute.attr)[0])
            return f"its results are read with {attribute.attr.value} at line {line}"
    for reference, name in uses:
        if name.startswith("ProfilerActivity.") and name not in (CUDA, "ProfilerActivity.CPU"):
            return f"it can also be asked for {name.partition('.')[2]}"
        signature, call = file.target.signature(f"{NEW}.{name}"), call_of(file, reference.node)
        if signature is not None and call is not None:
            refused = [k for k in call.keywords if not signature.accepts(k) and k != "use_gzip"]
            if refused or "experimental_config" in call.keywords:
                return f"{NEW}.{name} does not take this {refused[0] if refused else 'experimental_config'}="
    return None


def _reads_events(file: FileContext, attribute: cst.Attribute) -> bool:
    call = call_of(file, attribute)
    if attribute.attr.value != "events" or call is None or call.node.args:
        return False
    return "prof" in file.tree.text(attribute.value).lower()


def _move(file: FileContext, uses: list[tuple[Reference, str]]) -> list[Fix | Report]:
    applicability = SAFE if _complete(file, uses) else UNSAFE
    imports = _move_imports(file, uses)
    found: list[Fix | Report] = []
    for reference, name in uses:
        new = f"{NEW}.{name}".replace(CUDA, "ProfilerActivity.NPU")
        edits = respell(file, reference, reference.node, new)
        call, remedy = call_of(file, reference.node), None
        if call is not None and name == "tensorboard_trace_handler":
            edits = [*edits, *_without_gzip(file, call)]
        if call is not None and name in PROFILES and "on_trace_ready" not in call.keywords:
            remedy = f"Its results are files: pass on_trace_ready={NEW}.tensorboard_trace_handler(dir), or export them."
        if applicability is UNSAFE:
            remedy = "Its other half is in another file: move both, since torch's and torch_npu's names do not mix."
        if edits:
            found.append(Fix(edits, f"{OLD}.{name} → {new}", remedy, applicability, node=reference.node))
    found += [Fix(edits, f"{OLD} → {NEW}", None, applicability, node=node) for node, edits in imports]
    return found


def _complete(file: FileContext, uses: list[tuple[Reference, str]]) -> bool:
    """Whether all that a profile is made of is in this file."""
    calls = [call for reference, name in uses if name in PROFILES and (call := call_of(file, reference.node))]
    needed = {"activities": ("ProfilerActivity", "supported_activities"), "schedule": ("schedule", "ProfilerAction")}
    return bool(calls) and not any(
        call.has_star or any(part in call.keywords and not _names(uses, *names) for part, names in needed.items())
        for call in calls
    )


def _move_imports(file: FileContext, uses: list[tuple[Reference, str]]) -> list[tuple[cst.CSTNode, list[Edit]]]:
    """Rebind what is only used for names that move: import statements and their edits."""
    moving = {reference.root for reference, _ in uses}
    planned: set[Binding] = set()
    for binding in file.names.import_bindings:
        name = file.names.canonical(binding.qualified or "")
        module, _, last = name.rpartition(".")
        mine = name == OLD or (module == OLD and last in SESSION)
        users = file.names.uses(binding)
        if mine and users and all(reference.root in moving for reference in users):
            plan(file, binding, Move(NEW + name[len(OLD) :], binding.name))
            planned.add(binding)
    found: list[tuple[cst.CSTNode, list[Edit]]] = []
    statements: list[cst.Import | cst.ImportFrom] = [*file.tree.all(cst.Import), *file.tree.all(cst.ImportFrom)]
    for statement in statements:
        bindings = [b for b in file.names.bindings_in(statement, OLD) if b in planned]
        if bindings:
            moved, _ = rewrite_import(Import(file, statement, OLD, bindings))
            found.append((statement, moved.edits))
    return found


def _without_gzip(file: FileContext, call: Call) -> list[Edit]:
    """Drop `use_gzip`: what stands in its place is torch_npu's analyse_flag."""
    gzip = call.argument(2, "use_gzip")
    return drop_arguments(file, call.node, [gzip]) if gzip is not None else []
