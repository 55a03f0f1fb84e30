"""torch.compile on an NPU.

The default backend, inductor, writes Triton kernels.  torch_npu carries an inductor for the NPU from 2.6 on, and
it needs Triton for Ascend (`pip install triton-ascend`); without it, or before 2.6, the first call of the
compiled function fails.  The backend "npu" (TorchAir) compiles whole graphs for inference in every version.
"cudagraphs" becomes "npugraphs", which torch_npu registers from 2.6 on.  Compiling is left in place everywhere:
whether it pays on an NPU is to be measured.
"""

import libcst as cst

from migrator.rule import ERROR, SAFE, WARNING, Call, Example, Fix, Keyword, Name, Report, Rule

rule = Rule(
    id="NPU703",
    name="torch-compile",
    title="torch.compile needs Triton for Ascend or another backend",
    applicability=SAFE,
    tags=("performance", "compile"),
    docs="https://github.com/triton-lang/triton-ascend",
    examples=[
        Example.reported(
            "import torch\n\n\n@torch.compile(fullgraph=True)\ndef f(x):\n    return x\n\n\n"
            "f = torch.compile(f, backend='inductor')\n",
            "Triton for Ascend",
            "Triton for Ascend",
            target="2.7.1",
        ),
        Example.reported(
            "import torch\n\n\n@torch.compile\ndef f(x):\n    return x\n", "before torch_npu 2.6", target="2.5.1"
        ),
        Example(
            "import torch\nimport torch_npu\nf = torch.compile(f, backend='cudagraphs')\n",
            "import torch\nimport torch_npu\nf = torch.compile(f, backend='npugraphs')\n",
            target="2.6.0",
        ),
        Example.reported("import torch\nf = torch.compile(f, backend='cudagraphs')\n", "cudagraphs", target="2.5.1"),
        Example.reported("import torch\nf = torch.compile(f, backend='tensorrt')\n", "tensorrt"),
        Example.reported("import torch\nf = torch.compile(f, backend=args.backend)\n", "decided elsewhere"),
        Example.reported("args = TrainingArguments(out, torch_compile=True)\n", "Triton for Ascend"),
        Example.unchanged(
            "import torch\nf = torch.compile(f, backend='aot_eager')\ng = torch.compile(g, disable=True)\n"
            "ok = hasattr(torch, 'compile')\n"
        ),
    ],
)  # fmt: skip

INDUCTOR, GRAPHS = "2.6", "npugraphs"
ANYWHERE = frozenset({"eager", "aot_eager", "npu", GRAPHS})


@rule.on_name("torch.compile", "torch._dynamo.optimize", words=("torch.compile", "import compile", "_dynamo"))
def check_backend(match: Name) -> Fix | Report | None:
    call = match.call
    if call is None:
        return None if isinstance(match.parent(), cst.Comparison) else _inductor(match, None)
    if "disable" in call.keywords and match.file.tree.text(call.keywords["disable"].value) == "True":
        return None
    place = 0 if match.qualified.endswith("optimize") else -1
    backend = call.argument(place, "backend")
    name = backend.value.evaluated_value if backend and isinstance(backend.value, cst.SimpleString) else None
    if name == "inductor" or (backend is None and not call.has_star):
        return _inductor(match, call)
    if backend is None or name is None:
        return Report(
            "torch.compile: the backend is decided elsewhere",
            f"inductor needs {_needs(match)}; {', '.join(sorted(ANYWHERE))} work as they are.",
        )
    if name in ANYWHERE or str(name).startswith("npu"):
        return None
    if name == "cudagraphs":
        if match.file.target.at_least(INDUCTOR):
            return Fix([match.replace(backend.value, match.literal(GRAPHS))], f"the backend {name} → {GRAPHS}")
        return Report(f"the backend cudagraphs needs CUDA; {GRAPHS} comes with torch_npu {INDUCTOR}", "Leave it out.")
    return Report(f"the torch.compile backend {name} has no NPU version", f"Use inductor, which needs {_needs(match)}.")


@rule.on_keyword("torch_compile")
def trainer_option(match: Keyword) -> Report | None:
    return _inductor(match, None) if match.file.tree.text(match.node.value) == "True" else None


def _needs(match: Name | Keyword) -> str:
    return (
        "Triton for Ascend" if match.file.target.at_least(INDUCTOR) else f"torch_npu {INDUCTOR} and Triton for Ascend"
    )


def _inductor(match: Name | Keyword, call: Call | None) -> Report:
    mode = call.keywords.get("mode") if call is not None else None
    graphs = " Its mode asks for device graphs: try it without a mode first." if mode is not None else ""
    if not match.file.target.at_least(INDUCTOR):
        return Report(
            f"torch.compile: inductor writes no code for the NPU before torch_npu {INDUCTOR}",
            f'Run this part eagerly (disable=True), or use backend="npu" for inference.{graphs}',
            ERROR,
        )
    return Report(
        "torch.compile: inductor needs Triton for Ascend on an NPU",
        f"pip install triton-ascend, and compare the results and times with those of eager mode.{graphs}",
        WARNING,
    )
