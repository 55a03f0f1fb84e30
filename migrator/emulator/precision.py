"""Half-precision operators computed in float32 and rounded once, as the NPU's matrix unit does.

The CPU's own half-precision convolutions and products are also many times slower than its float32 ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Operator = Callable[..., Any]

_WIDENED = frozenset({"_convolution", "convolution_backward", "convolution_overrideable"}) | frozenset(
    {"addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "mm", "mv"}
)


def widened(operator: torch._ops.OpOverload) -> Operator:
    """The operator, with float16 and bfloat16 tensors computed in float32 if it is one of these."""
    if operator._schema.name.partition("::")[2] not in _WIDENED or operator._schema.is_mutable:
        return operator  # type: ignore[no-any-return]

    def in_float32(*args: Any, **kwargs: Any) -> Any:
        narrow: torch.dtype | None = None

        def widen(value: Any) -> Any:
            nonlocal narrow
            if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
                narrow = value.dtype
                return value.float()
            return value

        result = operator(*map(widen, args), **kwargs)
        if narrow is None:
            return result
        if isinstance(result, Tensor):
            return result.to(narrow)
        return tuple(value if value is None else value.to(narrow) for value in result)

    return in_float32
