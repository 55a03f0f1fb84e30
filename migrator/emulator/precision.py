"""Half-precision operators computed in float32 and rounded once, as the NPU's matrix unit does.

The CPU's own half-precision convolutions and products are also many times slower than its float32 ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Operator = Callable[..., Any]

_NARROW = frozenset({torch.float16, torch.bfloat16})
_WIDENED = (
    frozenset({"_coalesce", "_convolution", "convolution_backward", "convolution_overrideable", "nansum"})
    | {"addbmm", "addmm", "addmv", "addr", "baddbmm", "binary_cross_entropy_with_logits", "bmm", "dot", "mm", "mv"}
    # The CPU has no half-precision kernels of these.
    | {"avg_pool3d", "avg_pool3d_backward", "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward"}
    | {"_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward"}
)


def widened(operator: torch._ops.OpOverload) -> Operator:
    """The operator itself, or if it is one of these, a function that computes it in float32."""
    if operator._schema.name.partition("::")[2] not in _WIDENED or operator._schema.is_mutable:
        return operator  # type: ignore[no-any-return]

    def in_float32(*args: Any, **kwargs: Any) -> Any:
        types = {value.dtype for value in args if isinstance(value, Tensor)}
        if len(types) != 1 or not types <= _NARROW or kwargs.get("dtype") is not None:
            return operator(*args, **kwargs)
        wide = [value.float() if isinstance(value, Tensor) else value for value in args]
        result = operator(*wide, **kwargs)
        (narrow,) = types
        if isinstance(result, Tensor):
            return result.to(narrow)
        return tuple(value if value is None else value.to(narrow) for value in result)

    return in_float32
