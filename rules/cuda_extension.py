"""Extensions that are compiled from CUDA sources.

`CUDAExtension(…)`, `load(…)` with `.cu` files, `load_inline(cuda_sources=…)` and what looks for CUDA_HOME need nvcc.
The finding is an inventory: which CUDA sources the file names, and what is called of the extension where it is
loaded here; each of those has to be ported or replaced.  An extension whose sources are all C++ builds with
torch_npu's NpuExtension, as long as it does not include CUDA headers, which is why that fix waits for `--unsafe`.
"""

import re

import libcst as cst

from migrator.moves import Move
from migrator.names import Reference
from migrator.rule import ERROR, UNSAFE, WARNING, Call, Example, Fix, Import, Match, Name, Report, Rule, call_of
from migrator.statements import split_import

rule = Rule(
    id="NPU902",
    name="cuda-extension",
    title="CUDA sources cannot be compiled for an NPU",
    applicability=UNSAFE,
    tags=("build",),
    severity=ERROR,
    docs="https://github.com/Ascend/pytorch/blob/master/torch_npu/utils/cpp_extension.py",
    examples=[
        Example.reported(
            "from torch.utils.cpp_extension import CUDAExtension\ne = CUDAExtension('a', ['a.cpp', 'a_kernel.cu'])\n",
            "CUDA sources: a_kernel.cu", "CUDA sources: a_kernel.cu",
        ),
        Example(
            "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\ne = CUDAExtension('a', ['a.cpp'])\n",
            "from torch.utils.cpp_extension import BuildExtension\n"
            "from torch_npu.utils.cpp_extension import NpuExtension\n"
            "e = NpuExtension('a', ['a.cpp'])\n",
            unsafe=True,
        ),
        Example.reported(
            "from torch.utils.cpp_extension import load\next = load('ext', sources=['a.cpp', 'a.cu'])\ny = ext.go(x)\n",
            "used of it: go",
        ),
        Example.reported(
            "import torch.utils.cpp_extension as ce\ne = ce.load_inline('e', '', cuda_sources=s)\nh = ce.CUDA_HOME\n",
            "load_inline", "CUDA_HOME",
        ),
        Example.unchanged("from torch.utils.cpp_extension import load\next = load('ext', sources=['a.cpp'])\n"),
    ],
)  # fmt: skip

MODULE = "torch.utils.cpp_extension"
NPU_EXTENSION = "torch_npu.utils.cpp_extension.NpuExtension"
CUDA_SOURCE = re.compile(r"[\w./*{}-]+\.cuh?\b")
CPP_SOURCE = re.compile(r"[\w./-]+\.(cpp|cc|cxx|c)")
CUDA_ARGUMENTS = {"cuda_sources", "extra_cuda_cflags", "with_cuda", "cuda"}


@rule.on_import(f"{MODULE}.CUDAExtension")
def cuda_extension(match: Import) -> list[Fix | Report]:
    found: list[Fix | Report] = []
    for binding in match.bindings:
        uses = match.file.names.uses(binding)
        if isinstance(match.node, cst.ImportFrom) and uses and all(_is_cpp_only(match, use) for use in uses):
            edits = split_import(match, match.node, {binding.node: Move(NPU_EXTENSION, "NpuExtension")})
            edits += [match.replace(use.root, "NpuExtension") for use in uses]
            remedy = "The sources must not include CUDA headers. NpuExtension takes no nvcc arguments."
            found.append(Fix(edits, "CUDAExtension → NpuExtension: the sources are C++", remedy, node=binding.node))
        else:
            found.append(_report(match, "CUDAExtension", binding.node))
    return found


@rule.on_name(f"{MODULE}.CUDAExtension", words=("CUDAExtension",))
def use(match: Name) -> Report | None:
    if _is_cpp_only(match, match.reference):
        return None
    return _report(match, "CUDAExtension", match.node, match.call.node if match.call else None)


@rule.on_name(f"{MODULE}.load", f"{MODULE}.load_inline", f"{MODULE}.include_paths", words=("cpp_extension",))
def build(match: Name) -> Report | None:
    call, function = match.call, match.qualified.rpartition(".")[2]
    if call is None or not (_cuda_sources(match, call.node) or _asks_for_cuda(match, call)):
        return None
    return _report(match, f"{function}()", match.node, call.node)


@rule.on_name(f"{MODULE}.CUDA_HOME", f"{MODULE}.CUDNN_HOME", words=("CUDA_HOME", "CUDNN_HOME"))
def toolkit(match: Name) -> Report | None:
    """Once per file, at the first use."""
    same = (other for other in match.file.names.references if other.qualified == match.qualified)
    row = match.row
    if row is None or next(same).node is not match.node:
        return None
    return Report(f"{match.qualified.rpartition('.')[2]} is not set on an NPU", row.remedy or "", WARNING)


def _report(match: Match, what: str, node: cst.CSTNode, call: cst.Call | None = None) -> Report:
    """The inventory: sources named in the call, else in the file, and what is used of the extension."""
    sources = _cuda_sources(match, call or node) or _cuda_sources(match, match.file.tree.module)
    message = f"{what} compiles for CUDA" + (f"; CUDA sources: {', '.join(sources)}" if sources else "")
    if call is not None and (used := _used(match, call)):
        message += f"; used of it: {', '.join(used)}"
    row = match.file.target.mapping(f"{MODULE}.CUDAExtension")
    return Report(message, (row.remedy if row else None) or "", node=node)


def _cuda_sources(match: Match, within: cst.CSTNode) -> list[str]:
    tree = match.file.tree
    texts = (node for node in tree.all(cst.SimpleString) if within in (node, *tree.ancestors(node)))
    return sorted({name for text in texts for name in CUDA_SOURCE.findall(text.value)})


def _asks_for_cuda(match: Match, call: Call) -> bool:
    arguments = (call.keywords[name] for name in CUDA_ARGUMENTS & set(call.keywords))
    return any(match.file.tree.text(arg.value) not in {"False", "None", "[]"} for arg in arguments)


def _used(match: Match, call: cst.Call) -> list[str]:
    """`ext = load(…)`: the attributes of ext that the file uses."""
    assign = match.file.tree.parents.get(call)
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    if not isinstance(target, cst.Name):
        return []
    attributes = match.file.tree.all(cst.Attribute)
    return sorted({a.attr.value for a in attributes if isinstance(a.value, cst.Name) and a.value.value == target.value})


def _is_cpp_only(match: Match, use: Reference) -> bool:
    """`CUDAExtension("a", ["a.cpp"])`: a call with literal C++ sources and nothing for nvcc."""
    call = call_of(match.file, use.node)
    sources = call.argument(1, "sources") if call is not None and not call.has_star else None
    if call is None or sources is None or not isinstance(sources.value, (cst.List, cst.Tuple)):
        return False
    texts = [e.value.evaluated_value if isinstance(e.value, cst.SimpleString) else "" for e in sources.value.elements]
    return all(CPP_SOURCE.fullmatch(str(text)) for text in texts) and "nvcc" not in match.file.tree.text(call.node)
