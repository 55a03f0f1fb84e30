"""Runs the same function on the CPU and on the emulated NPU and compares what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only


def on_both(function: Callable[[str], Any], rtol: float = 1e-5, atol: float = 1e-6) -> Any:
    """Assert that function("npu") returns what function("cpu") does; return the former on the CPU."""
    expected = to_cpu(function("cpu"))
    actual = to_cpu(function("npu"))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    return actual


def to_cpu(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), values)


def close(actual: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Assert that an NPU tensor holds these CPU values, and their type."""
    assert actual.device.type == "npu"
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=rtol, atol=atol)


def against(
    operator: Callable[..., Any],
    formula: Callable[..., Any],
    *tensors: torch.Tensor,
    gradients: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Assert that an operator on the NPU gives the results, and the gradients, of a formula on the CPU.

    Both return a tensor or a tuple; only the first result is differentiated.
    """
    wanted = [gradients and tensor.is_floating_point() for tensor in tensors]
    ours = [tensor.detach().npu().requires_grad_(grad) for tensor, grad in zip(tensors, wanted, strict=True)]
    theirs = [tensor.detach().clone().requires_grad_(grad) for tensor, grad in zip(tensors, wanted, strict=True)]
    actual, expected = operator(*ours), formula(*theirs)
    actual, expected = (value if isinstance(value, tuple) else (value,) for value in (actual, expected))
    for ours_result, theirs_result in zip(actual, expected, strict=False):
        close(ours_result, theirs_result, rtol, atol)
    if gradients:
        weights = torch.linspace(-1, 1, expected[0].numel()).view(expected[0].shape)
        (actual[0].float() * weights.npu()).sum().backward()
        (expected[0].float() * weights).sum().backward()
        for our_leaf, their_leaf in zip(ours, theirs, strict=True):
            if their_leaf.grad is not None:
                close(our_leaf.grad, their_leaf.grad, rtol, atol)
