"""NPU tensors have no CUDA array interface.

`tensor.__cuda_array_interface__` hands GPU memory to CuPy, Numba and other libraries without a copy.  None of
them can read NPU memory, and torch_npu has no such attribute.
"""

from migrator.rule import MANUAL, Example, Method, Report, Rule

rule = Rule(
    id="NPU113",
    name="array-interface",
    title="NPU memory cannot be handed to CUDA libraries",
    applicability=MANUAL,
    tags=("core", "device"),
    docs="https://docs.pytorch.org/docs/stable/dlpack.html",
    examples=[Example.reported("import torch\np = x.__cuda_array_interface__['data']\n", "__cuda_array_interface__")],
)


@rule.on_method("__cuda_array_interface__")
@rule.on_name("torch.Tensor.__cuda_array_interface__")
def report(match: Method) -> Report:
    return Report(
        "__cuda_array_interface__ does not exist on an NPU tensor",
        "Pass data through tensor.cpu().numpy(), or through torch.utils.dlpack where the other side knows NPUs.",
    )
