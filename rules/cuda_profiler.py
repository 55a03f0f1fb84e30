"""Calls that switch NVIDIA's profiler on and off.

torch.cuda.profiler.start(), torch.cuda.profiler.profile() and torch.cuda.cudart().cudaProfilerStart() bracket
the part of a run that nvprof or Nsight Systems should record.  A torch without CUDA raises at the call.  CANN's
msprof has no such switch; torch_npu.profiler records a part of a run.  With `--unsafe` the calls that stand
alone become `pass`.
"""

import libcst as cst

from migrator.rule import ERROR, UNSAFE, Example, Fix, Match, Method, Name, Report, Rule

rule = Rule(
    id="NPU604",
    name="cuda-profiler",
    title="switching NVIDIA's profiler on and off raises without CUDA",
    applicability=UNSAFE,
    tags=("core", "profiling"),
    severity=ERROR,
    examples=[
        Example.reported(
            "import torch\ntorch.cuda.profiler.start()\nstep()\ntorch.cuda.profiler.stop()\n",
            "torch.cuda.profiler.start",
            "torch.cuda.profiler.stop",
        ),
        Example(
            "import torch\nimport torch_npu\nif args.profile:\n    torch.cuda.cudart().cudaProfilerStart()\n",
            "import torch\nimport torch_npu\nif args.profile:\n    pass\n",
            unsafe=True,
        ),
        Example.reported("import torch\ntorch.cuda.cudart().cudaProfilerStop()\n", "cudaProfilerStop"),
        Example.reported(
            "from torch.cuda import profiler\nwith profiler.profile():\n    step()\n", "profile", "profiler stays"
        ),
        Example.reported(
            "import torch\nrt = torch.cuda.cudart()\nrt.cudaProfilerStart()\n", "cudart", "cudaProfilerStart"
        ),
    ],
)  # fmt: skip

REMEDY = (
    "Profile the same part with torch_npu.profiler.profile (its schedule picks the steps), "
    "or delete the call where only Nsight needed it."
)
SWITCHES = ("cudaProfilerStart", "cudaProfilerStop")


@rule.on_name("torch.cuda.profiler.start", "torch.cuda.profiler.stop", "torch.cuda.profiler.init", words=("cuda",))
def switch(match: Name) -> Fix | Report:
    return _answer(match, f"{match.qualified}()")


@rule.on_name("torch.cuda.profiler.profile", words=("cuda",))
def whole(match: Name) -> Report:
    return Report(f"{match.qualified} raises without CUDA", REMEDY)


@rule.on_method(*SWITCHES)
def runtime_switch(match: Method) -> Fix | Report | None:
    if isinstance(match.receiver, cst.Call):
        return None  # torch.cuda.cudart().cudaProfilerStart() is answered as a whole below
    return _answer(match, f"cudart().{match.attribute}()")


@rule.on_name("torch.cuda.cudart")
def runtime(match: Name) -> Fix | Report | None:
    outer = match.file.tree.parents.get(match.call.node) if match.call is not None else None
    if isinstance(outer, cst.Attribute) and outer.attr.value in SWITCHES:
        return _answer(Match(match.file, outer), f"cudart().{outer.attr.value}()")
    return None


def _answer(match: Match, name: str) -> Fix | Report:
    call = match.parent()
    statement = match.file.tree.parents.get(call) if isinstance(call, cst.Call) else None
    message = f"{name} raises without CUDA"
    if isinstance(statement, cst.Expr):
        return Fix([match.replace(statement, "pass")], f"{message}: `pass` takes its place", REMEDY, needs=())
    return Report(message, REMEDY)
