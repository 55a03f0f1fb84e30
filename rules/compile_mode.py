"""Use prebuilt kernels instead of compiling one for each new shape.

On Ascend 910A and 310P, CANN compiles a kernel for every shape that it has not seen, unless
`torch_npu.npu.set_compile_mode(jit_compile=False)` was called in the process; with shapes that vary this takes most
of the time.  From Ascend910B1 on that is the default, and the call changes nothing.  It starts no device, so that
it may stand in front of everything: before the choice of devices, and before other processes are started.

One line per program, as its first statement: in the `if __name__ == "__main__":` block, else in `main()`, else
behind the imports of a script; in a function that other processes are started with, since each process has its
own mode.  Only in programs that use the device, themselves or through what they import; never in tests, setup files
or modules with a little demonstration at their end.
"""

import re
from collections.abc import Sequence

import libcst as cst

from migrator.chips import has_prebuilt_kernels
from migrator.names import dotted
from migrator.owners import OTHER_FRAMEWORKS
from migrator.programs import ModuleFacts
from migrator.rule import INFO, SAFE, Edit, Example, FileMatch, Fix, Name, Report, Rule
from migrator.statements import falls_back

CALL = "torch_npu.npu.set_compile_mode(jit_compile=False)"

rule = Rule(
    id="NPU701",
    name="compile-mode",
    title="older chips compile a kernel for each new shape unless told otherwise",
    applicability=SAFE,
    tags=("performance",),
    severity=INFO,
    docs="https://github.com/Ascend/op-plugin/tree/master/docs/zh/custom_APIs/torch_npu-npu",
    examples=[
        Example(
            'import torch_npu\nimport torch\n\nif __name__ == "__main__":\n    train("npu")\n',
            f'import torch_npu\nimport torch\n\nif __name__ == "__main__":\n    {CALL}\n    train("npu")\n',
        ),
        Example(
            "import torch\nimport torch_npu\nfrom torch import multiprocessing as mp\n\n\n"
            'def worker(rank):\n    """One process."""\n    train(torch.device("npu", rank))\n\n\n'
            "if __name__ == '__main__':\n    mp.spawn(worker, nprocs=8)\n",
            "import torch\nimport torch_npu\nfrom torch import multiprocessing as mp\n\n\n"
            f'def worker(rank):\n    """One process."""\n    {CALL}\n    train(torch.device("npu", rank))\n\n\n'
            "if __name__ == '__main__':\n    mp.spawn(worker, nprocs=8)\n",
        ),
        Example(
            "from run import Run\n\n\ndef main():\n    Run().fit()\n\n\nmain()\n",
            f"from run import Run\nimport torch_npu\n\n\ndef main():\n    {CALL}\n    Run().fit()\n\n\nmain()\n",
            files=(("run.py", "import torch\nclass Run:\n    device = torch.device('cuda')\n"),),
        ),
        Example(
            "import torch\nnet = Net().cuda()\nfor x in loader:\n    net(x)\n",
            f"import torch\nimport torch_npu\n{CALL}\nnet = Net().npu()\nfor x in loader:\n    net(x)\n",
        ),
        Example(
            "import torch_npu\ntorch_npu.npu.set_compile_mode(jit_compile=True)\n",
            reports=("compiles a kernel for each new shape",),
        ),
        Example.unchanged('import torch\n\nif __name__ == "__main__":\n    print(torch.ones(2))\n'),
        Example(
            'import torch\nimport torch_npu\nclass Net(torch.nn.Module):\n    pass\n\n'
            'if __name__ == "__main__":\n    print(Net().npu())\n',
            files=(("train.py", "from example import Net\n"),),
        ),
    ],
)  # fmt: skip

NO_PROGRAM = re.compile(r"(^|/)(setup|conftest|hubconf|conf)\.py$|(^|/)docs?/")
STARTERS = frozenset({"spawn", "start_processes", "launch", "launch_job", "elastic_launch", "notebook_launcher"})
# Calls in a `__main__` block that start a program, and calls that train or infer.
ENTRY = re.compile(r"(.*_)?(main|cli|app|parse_args|launch|run|Fire|train\w*)(_.*)?")
WORK = re.compile(r"(?!literal_eval)(.*_)?(train\w*|fit|test|eval\w*|valid\w*|infer\w*|predict\w*|generate|finetune|val)(_.*)?")
OTHER = OTHER_FRAMEWORKS | {"onnxruntime", "openvino", "tensorrt"}
PLACING = frozenset({"cuda", "npu", "to", "set_device", "autocast"})


@rule.on_file("__main__", "main()", "cuda", ".npu(", "torch.npu")
def insert_call(match: FileMatch) -> Fix | None:
    file = match.file
    facts = {module.path: module for module in file.project.programs.below(file.path)}
    own = facts.get(file.path)
    if own is None or not _wanted(match, own, list(facts.values())):
        return None
    place = _place(match, own)
    if place is None:
        return None
    node, edit = place
    return Fix(
        [edit],
        "set_compile_mode(jit_compile=False): no compilation of a kernel for each new shape",
        "Ascend 910A and 310P need it; from Ascend910B1 on it is the default, and --soc Ascend910B1 leaves it away. "
        "Processes that are started with functions of other files need it too.",
        node=node,
    )


@rule.on_name("torch_npu.npu.set_compile_mode", "torch.npu.set_compile_mode")
def jit_on(match: Name) -> Report | None:
    arg = match.call.argument(0, "jit_compile") if match.call is not None else None
    if arg is None or not isinstance(arg.value, cst.Name) or arg.value.value != "True":
        return None
    return Report(
        "jit_compile=True compiles a kernel for each new shape",
        "Write jit_compile=False, unless the shapes never change and the compiled kernels were measured to be faster.",
    )


def _wanted(match: FileMatch, own: ModuleFacts, modules: list[ModuleFacts]) -> bool:
    """Whether the file may be where a program starts that uses the device and needs the call."""
    target, path = match.file.target, match.file.path
    if "set_compile_mode(" in match.file.source.text:
        return False
    if own.is_test or NO_PROGRAM.search(path) or (target.soc is not None and has_prebuilt_kernels(target.soc)):
        return False
    if any(module.compile_mode for module in modules) or not any(m.device and m.uses_torch for m in modules):
        return False
    if not own.device and OTHER & {name.partition(".")[0] for name in own.imports}:
        return False
    if "torch_npu" not in match.file.source.text:
        return True
    imports = [*match.file.tree.all(cst.Import), *match.file.tree.all(cst.ImportFrom)]
    return not any("torch_npu" in match.file.tree.text(s) and falls_back(match.file, s) for s in imports)


def _place(match: FileMatch, own: ModuleFacts) -> tuple[cst.CSTNode, Edit] | None:
    """Where the program starts: the node to show, and the edit."""
    main = next((s for s in match.node.body if isinstance(s, cst.If) and _is_main_test(match, s.test)), None)
    started = _started(match)
    if not started and not _works(match, own, [match.node]):
        return None
    if match.file.project.programs.is_imported(match.file.path) and (
        main is None or not any(ENTRY.fullmatch(_called_name(call)) for call in _calls(match, main))
    ):
        return None
    block = main or _called_main(match)
    if block is not None:
        return started or block, _first_line(match, started or block)
    return _in_script(match, own) if own.device else None


def _works(match: FileMatch, own: ModuleFacts, regions: Sequence[cst.CSTNode]) -> bool:
    """Whether code trains, infers, or places something on a device; without torch, by what it imports for that."""
    calls = [call for region in regions for call in _calls(match, region)]
    if not (own.device or own.uses_torch):
        calls = [call for call in calls if _is_imported(match, call.func)]
    called = set(map(_called_name, calls))
    return any(map(WORK.fullmatch, called)) or (own.device and bool(PLACING & called))


def _is_imported(match: FileMatch, function: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether a function comes from another module: `fit`, `net.fit`, `Net().fit`."""
    while isinstance(function, (cst.Attribute, cst.Call)):
        function = function.value if isinstance(function, cst.Attribute) else function.func
    bindings = match.file.names.bindings_of(function) if isinstance(function, cst.Name) and depth < 5 else []
    return any(b.is_import or (b.value is not None and _is_imported(match, b.value, depth + 1)) for b in bindings)


def _calls(match: FileMatch, region: cst.CSTNode) -> list[cst.Call]:
    """All calls below a node."""
    calls = match.file.tree.all(cst.Call)
    return calls if region is match.node else [call for call in calls if region in match.file.tree.ancestors(call)]


def _called_name(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func) or ""


def _is_main_test(match: FileMatch, test: cst.BaseExpression) -> bool:
    return bool(
        re.fullmatch(
            r"""\(?(__name__ == (['"])__main__\2|(['"])__main__\3 == __name__)\)?""", match.file.tree.text(test)
        )
    )


def _called_main(match: FileMatch) -> cst.FunctionDef | None:
    """`main` of a script that calls main() at its top level."""
    for line in match.node.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(part, cst.Expr) and isinstance(part.value, cst.Call) and dotted(part.value.func) == "main":
                return _function(match, part.value.func)
    return None


def _started(match: FileMatch) -> cst.FunctionDef | None:
    """The function of this file that the program's processes are started with."""
    for call in match.file.tree.all(cst.Call):
        name = (dotted(call.func) or "").rpartition(".")[2]
        for arg in call.args:
            function = _function(match, arg.value)
            if function is None:
                continue
            uses_device = re.search(r"\b(cuda|npu)\b", match.file.tree.text(function)) is not None
            if name in STARTERS or (name == "Process" and uses_device):
                return function
    return None


def _function(match: FileMatch, name: cst.CSTNode) -> cst.FunctionDef | None:
    """The function at module level that a name stands for."""
    bindings = match.file.names.bindings_of(name) if isinstance(name, cst.Name) else []
    node = bindings[0].node if len(bindings) == 1 else None
    return node if isinstance(node, cst.FunctionDef) and match.file.tree.parents[node] is match.node else None


def _first_line(match: FileMatch, block: cst.If | cst.FunctionDef) -> Edit:
    """The call as the first statement of a block, behind a docstring and in front of comments."""
    statements, file, text = list(block.body.body), match.file, match.file.source.text
    behind_docstring = isinstance(block, cst.FunctionDef) and block.get_docstring() is not None and len(statements) > 1
    first = statements[behind_docstring]
    start, _ = file.tree.span((getattr(first, "decorators", None) or [first])[0])
    if not isinstance(block.body, cst.IndentedBlock):
        return Edit(start, start, f"{CALL}; ")
    lines = text[:start].splitlines(keepends=True)
    indent = lines.pop()
    while lines[-1].lstrip().startswith("#") or not lines[-1].strip():
        start -= len(lines.pop())
    start -= len(indent)
    return Edit(start, start, f"{indent}{CALL}{file.source.newline}")


def _in_script(match: FileMatch, own: ModuleFacts) -> tuple[cst.CSTNode, Edit] | None:
    """Behind the imports of a file that trains or infers in a loop at its top level."""
    body = match.node.body
    if not any(isinstance(statement, (cst.For, cst.While, cst.With)) for statement in body):
        return None
    if not _works(match, own, [part for part in body if not isinstance(part, (cst.FunctionDef, cst.ClassDef))]):
        return None
    loop = next(i for i, statement in enumerate(body) if isinstance(statement, (cst.For, cst.While, cst.With)))
    last = next((statement for statement in reversed(body[:loop]) if _is_import(statement)), None)
    text, newline = match.file.source.text, match.file.source.newline
    start = text.find(newline, match.file.tree.span(last)[1]) + len(newline) if last is not None else 0
    if last is None or not len(newline) <= start < len(text):
        return None
    # Not a plain insertion: the import of torch_npu may go to the same place, and must come first.
    return last, Edit(start, start + 1, f"{CALL}{newline}{text[start]}")


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )
