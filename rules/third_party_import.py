"""Packages that need CUDA.

What becomes of a package on an NPU is a row of the CUDA map, or a line of the table below: no version for NPUs,
a separate one (triton-ascend, vllm-ascend), or something to know (DeepSpeed and accelerate find the NPU by
themselves).  The finding stands at the import, or at the first use of something that the map names on its own.
An import that may fail, in a `try:` with a fallback or behind a test for the package, is left working and only
mentioned.

Functions and classes of apex, flash-attn and xformers that something on the NPU can stand in for have rules of
their own.
"""

from dataclasses import dataclass

import libcst as cst

from migrator import api
from migrator.rule import ERROR, INFO, MANUAL, WARNING, Example, FileMatch, Report, Rule, call_of
from migrator.statements import falls_back

rule = Rule(
    id="NPU801",
    name="third-party-import",
    title="packages that need CUDA have no version for NPUs",
    applicability=MANUAL,
    tags=("third-party",),
    examples=[
        Example.reported("import bitsandbytes as bnb\n", "bitsandbytes"),
        Example.reported("import torchvision\nkeep = torchvision.ops.nms(b, s, 0.5)\n", "torchvision.ops.nms"),
        Example.reported("from numba import cuda\n\n\n@cuda.jit\ndef f(x):\n    pass\n", "numba.cuda"),
        Example.reported("from flash_attn.bert_padding import pad_input, unpad_input\n", "flash_attn.bert_padding"),
        Example.reported("try:\n    import xformers\nexcept ImportError:\n    xformers = None\n", "falls back"),
        Example.reported("import triton\nimport triton.language as tl\n", "triton-ascend"),
        Example.reported("import deepspeed\nengine = deepspeed.initialize(model=net)\n", "deepspeed runs"),
        Example("from triton import jit\n", files=(("triton/__init__.py", ""),)),
        Example.unchanged("import numba\nfrom deepspeed import zero\n"),
        Example.unchanged("from .triton import kernel\nfrom nvidia.modeling import Bert\n"),
    ],
)  # fmt: skip

# Packages without a row in the CUDA map: names, and what to do instead.
OTHERS = {
    "torch_sparse torch_cluster torch_spline_conv pyg_lib":
        "Its CUDA kernels do not run. torch.Tensor.scatter_reduce_, index_add_ and gather cover most uses on the NPU.",
    "dgl": "DGL has no NPU version: build graphs on the host, and write message passing with torch operators.",
    "auto_gptq gptqmodel awq exllamav2":
        "Its CUDA kernels do not run on NPUs. Load the model without this quantization, in float16 or bfloat16.",
    "mamba_ssm": "It is made of CUDA and Triton kernels. Use the plain torch scan that most of its users carry along.",
    "causal_conv1d": "It is a CUDA kernel: use torch.nn.functional.conv1d with groups and padding on the left.",
    "MinkowskiEngine torchsparse kaolin nvdiffrast tinycudann diff_gaussian_rasterization":
        "It is made of CUDA kernels. Replace what you use of it by torch operators, or keep that part on a GPU.",
    "cudf cuml cugraph rmm": "RAPIDS needs NVIDIA GPUs: use pandas, scikit-learn or NetworkX on the host.",
    "horovod": 'Horovod has no NPU version: use torch.distributed with backend="hccl".',
    "lightseq": "It is made of CUDA kernels: use the plain torch modules.",
    "nvtx": "Mark ranges with torch.npu.mstx, or leave them out.",
    "faiss.StandardGpuResources": "FAISS has no NPU version: keep the index on the CPU.",
    "flash_attn flash_attn_2_cuda flash_attn_interface":
        "flash-attn is made of CUDA kernels. Use torch.nn.functional.scaled_dot_product_attention, "
        "torch_npu.npu_fusion_attention, or the separate package flash-attn-npu, which has the same interface.",
}  # fmt: skip
# Packages and parts of packages that a row of the CUDA map speaks for.
SAME = {
    "apex": "apex.amp", "apex.contrib": "apex.multi_tensor_apply", "cuda.core": "cuda.bindings", "cupyx": "cupy",
    "cuda.cuda": "cuda.bindings", "cuda.cudart": "cuda.bindings", "cuda.nvrtc": "cuda.bindings",
    "xformers": "xformers.ops", "mmcv.ops": "mmcv.ops.nms", "torchvision.ops.batched_nms": "torchvision.ops.nms",
    "torchvision.ops.RoIAlign": "torchvision.ops.roi_align", "gpustat": "pynvml", "GPUtil": "pynvml",
    "torchvision.ops.DeformConv2d": "torchvision.ops.deform_conv2d", "nvidia_smi": "pynvml",
    "transformers.BitsAndBytesConfig": "bitsandbytes",
}  # fmt: skip
# Rows that other rules rewrite, or report with more to say.
ELSEWHERE = (
    "apex.amp", "apex.optimizers", "apex.normalization", "apex.parallel", "flash_attn.flash_attn_func",
    "flash_attn.flash_attn_varlen_func", "xformers.ops.memory_efficient_attention",
)  # fmt: skip
# Packages that find the NPU by themselves are spoken of where they are set up.
SET_UP = {"deepspeed": ("deepspeed.initialize", "deepspeed.init_inference"), "accelerate": ("accelerate.Accelerator",)}
# Packages that import without CUDA and fail later.
IMPORTABLE = {"torchvision", "transformers", "mmcv", "faiss", "bitsandbytes", "pytorch3d", "torch_scatter",
              "torch_sparse", "torch_cluster", "torch_spline_conv", "pyg_lib", "dgl"}  # fmt: skip
# Of those, the ones that are there in any case, so that no fallback for a failing import is ever taken.
PRESENT = {"torchvision", "transformers", "mmcv", "faiss"}


@dataclass(frozen=True)
class Package:
    """What becomes of a package, or a part of one, on an NPU.

    works      it runs; the remedy is something to know
    successor  another package takes its place
    """

    remedy: str
    works: bool = False
    successor: str | None = None


def _package(name: str) -> Package:
    row = api.mapping(f"pkg:{name}")
    assert row is not None, name
    works = row.kind is api.Kind.ADVICE and not name.startswith("flash_attn")
    return Package(row.remedy or "", works, row.npu if row.npu and not works and "." not in row.npu else None)


ROWS = {row.cuda[4:] for row in api.mappings() if row.cuda.startswith("pkg:") and " " not in row.cuda}
TABLE = {
    **{name: _package(name) for name in ROWS},
    **{name: _package(row) for name, row in SAME.items()},
    **{name: Package(remedy) for names, remedy in OTHERS.items() for name in names.split()},
}
ROOTS = {name.partition(".")[0] for name in TABLE}
# What a file must hold to be read: the package, or for packages that also work without CUDA the part of it.
PARTS = {"torchvision": "torchvision.ops", "mmcv": "mmcv.ops", "nvidia": "dali", "faiss": "StandardGpuResources",
         "transformers": "BitsAndBytesConfig"}  # fmt: skip


@rule.on_file(*(PARTS.get(root, root) for root in sorted(ROOTS)), "import ops")
def report_packages(match: FileMatch) -> list[Report]:
    """One finding per import statement and package, or per package where it is enough to say it once."""
    file, names = match.file, match.file.names
    found: dict[object, Report] = {}
    imported = set()
    for binding in names.import_bindings:
        name = _listed(match, names.imported_name(binding))
        if name is not None and name not in SET_UP and not _is_relative(match, binding.node):
            imported.add(name)
            statement = file.tree.parents[binding.node]
            once = TABLE[name].works or TABLE[name].successor
            found.setdefault(name if once else (name, statement), _report(match, name, statement))
    for reference in names.references:
        name = _listed(match, reference.qualified)
        if name is None or name in imported:
            continue
        if name in SET_UP:
            speaks = reference.qualified in SET_UP[name] and call_of(file, reference.node) is not None
        else:
            speaks = bool(reference.parts)
        if speaks:
            imported.add(name)
            found[name] = _report(match, name, reference.node)
    return list(found.values())


def _listed(match: FileMatch, qualified: str) -> str | None:
    """The longest name in the table that a qualified name lies below; None where another rule speaks of it."""
    if qualified.partition(".")[0] not in ROOTS or match.file.project.defines(qualified):
        return None
    name = qualified.replace("flash_attn.flash_attn_interface", "flash_attn")
    if any(name == other or name.startswith(other + ".") for other in ELSEWHERE):
        return None
    while name and name not in TABLE:
        name = name.rpartition(".")[0]
    return name or None


def _is_relative(match: FileMatch, alias: cst.CSTNode) -> bool:
    statement = match.file.tree.parents.get(alias)
    return isinstance(statement, cst.ImportFrom) and bool(statement.relative)


def _report(match: FileMatch, name: str, node: cst.CSTNode) -> Report:
    package = TABLE[name]
    if package.works:
        return Report(f"{name} runs on NPUs", package.remedy, INFO, node)
    if package.successor:
        return Report(f"{name} is another package on NPUs: {package.successor}", package.remedy, node=node)
    root = name.partition(".")[0]
    if root not in PRESENT and falls_back(match.file, node):
        return Report(f"{name} does not run on an NPU: the code falls back", package.remedy, INFO, node)
    severity = WARNING if root in IMPORTABLE else ERROR
    return Report(f"{name} does not run on an NPU", package.remedy, severity, node)
