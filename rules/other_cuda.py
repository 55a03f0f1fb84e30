"""CUDA of other libraries.

numba.cuda, CuPy, PyCUDA and NVIDIA's cuda-python run on NVIDIA hardware only.  Their names are never renamed;
the import is reported, so that the part that depends on it can be replaced or kept away from the NPU.
"""

from migrator.rule import MANUAL, Example, Import, Report, Rule

rule = Rule(
    id="NPU112",
    name="other-cuda",
    title="other libraries' CUDA has no NPU version",
    applicability=MANUAL,
    tags=("core", "third-party"),
    examples=[
        Example.reported("from numba import cuda\n\n\n@cuda.jit\ndef f(x):\n    pass\n", "numba.cuda"),
        Example.reported("import cupy as cp\n", "cupy"),
    ],
)

REMEDIES = {
    "numba.cuda": "Write the kernel with torch operators, in Triton for Ascend, or in Ascend C.",
    "cupy": "Use torch tensors in its place; data crosses over through numpy.",
    "pycuda": "Write the kernel with torch operators, in Triton for Ascend, or in Ascend C.",
    "cuda": "Use torch_npu, or CANN's own ACL interface, in its place.",
}


@rule.on_import(*REMEDIES)
def report_import(match: Import) -> Report:
    return Report(f"{match.module} needs an NVIDIA GPU: there is no NPU version", REMEDIES[match.module])
