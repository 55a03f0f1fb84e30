"""CPU references for torch_npu's own operators, and for a few of PyTorch's that the CPU does not have.

A reference is a plain function of CPU tensors, with the arguments of the operator's schema. Where the
operator has options without a reference, it raises NotImplementedError and says which.
"""

# Each module registers its references.
from . import (  # noqa: F401
    activations,
    attention,
    batch_norm,
    detection,
    dropout,
    indices,
    layout,
    linear,
    moe,
    norms,
    optimizers,
    quantization,
    reductions,
    regions,
    rotary,
    softmax,
)
from .registry import REFERENCES, Reference

__all__ = ["REFERENCES", "Reference"]
