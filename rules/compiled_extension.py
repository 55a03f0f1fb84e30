"""Compiled CUDA extensions that a repository imports by name.

`import scaled_masked_softmax_cuda`, `from . import _C`, `from . import deform_conv_ext`: the module is built from
C++ and CUDA sources and cannot be loaded on a machine without CUDA.  A name counts when no Python file of the
repository has it and the file uses it as a module; the finding lists what is used, since that is what has to be
replaced.
"""

import re

import libcst as cst

from migrator import api
from migrator.names import Binding
from migrator.rule import ERROR, INFO, MANUAL, Example, FileMatch, Report, Rule
from migrator.statements import falls_back

rule = Rule(
    id="NPU802",
    name="compiled-extension",
    title="compiled CUDA extensions cannot be loaded without CUDA",
    applicability=MANUAL,
    tags=("third-party", "build"),
    severity=ERROR,
    docs="https://github.com/Ascend/op-plugin",
    examples=[
        Example.reported("import scaled_softmax_cuda\ny = scaled_softmax_cuda.forward(x, 1.0)\n", "it: forward"),
        Example.reported("from . import _C\nkeep = _C.nms(b, s)\ny = _C.roi_align(x)\n", "used of it: nms, roi_align"),
        Example.reported(
            "try:\n    from . import dcn_ext\nexcept ImportError:\n    pass\n\n\ndef f(x):\n    return dcn_ext.go(x)\n",
            "falls back",
        ),
        Example.reported("import my_kernels_cuda\n", "my_kernels_cuda"),
        Example.unchanged("from Cython.Distutils import build_ext\nbuild_ext.run(x)\n"),
        Example.unchanged("from torch import _C\n_C._set_grad(True)\n"),
        Example.unchanged("from .utils import is_cuda, to_cuda\nto_cuda(x)\n"),
        Example("from ops import nms_cuda\nnms_cuda.run(x)\n", files=(("ops/nms_cuda.py", ""),)),
        Example("from conf import _C\n_C.X = 1\n", files=(("conf.py", "_C = 1\n"),)),
    ],
)  # fmt: skip

COMPILED = re.compile(r"_C|\w+(_cuda|_cuda_ext|_ext|_cuda_kernels?)")
REMEDY = (
    "Replace the calls by torch operators, by a package with NPU kernels (torch_npu, mmcv), or port the sources in "
    "Ascend C or Triton for Ascend; what is plain C++ builds with torch_npu.utils.cpp_extension.NpuExtension."
)


@rule.on_file("_C", *(f"_{kind}{end}" for kind in ("cuda", "ext") for end in ("\n", "\r", " ", ",", ".", ")")))
def report_extensions(match: FileMatch) -> list[Report]:
    """One finding per import statement."""
    return [
        _report(match, binding, name)
        for binding in match.file.names.import_bindings
        for name in [match.file.names.imported_name(binding)]
        if COMPILED.fullmatch(name.rpartition(".")[2]) and _is_compiled(match, binding, name)
    ]


def _is_compiled(match: FileMatch, binding: Binding, name: str) -> bool:
    """Whether an imported name is a module that no Python file of the repository is."""
    project, (parent, _, last) = match.file.project, name.rpartition(".")
    if name.startswith(("torch.", "torch_npu.", "apex.")) or api.mapping(f"pkg:{name}") or _is_module(match, name):
        return False
    statement = match.file.tree.parents[binding.node]
    if not isinstance(statement, cst.ImportFrom):
        return True
    if last.endswith("_ext") and not statement.relative and not project.defines(parent):
        return False
    defined = project.parameters(last) or project.is_class(last) or _is_module(match, parent, package=False)
    return not defined and bool(_members(match, binding))


def _is_module(match: FileMatch, name: str, package: bool = True) -> bool:
    """Whether a Python file of the repository has this name, wherever its import root is; or a file, no package."""
    modules = match.file.project.modules
    found = {module for module in modules if module == name or module.endswith("." + name)}
    return bool(found) and (package or not any(m.rpartition(".")[0] in found for m in modules))


def _members(match: FileMatch, binding: Binding) -> list[str]:
    """The attributes of it that the file uses."""
    attributes = match.file.tree.all(cst.Attribute)
    return sorted({a.attr.value for a in attributes if isinstance(a.value, cst.Name) and a.value.value == binding.name})


def _report(match: FileMatch, binding: Binding, name: str) -> Report:
    members = ", ".join(_members(match, binding))
    message = f"{name.rpartition('.')[2]} is a compiled extension" + (f"; used of it: {members}" if members else "")
    if falls_back(match.file, binding.node):
        return Report(f"{message}; the code falls back without it", REMEDY, INFO, binding.node)
    return Report(message, REMEDY, node=binding.node)
