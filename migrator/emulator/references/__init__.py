"""CPU references for torch_npu's own operators.

A reference is a plain function of CPU tensors, with the arguments of the operator's schema.
"""

from .registry import REFERENCES, Reference

__all__ = ["REFERENCES", "Reference"]
