"""Backward references out of forward ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def gradients(
    forward: Callable[..., Any], inputs: Sequence[Tensor | None], upstream: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs, given those of the results of forward(*inputs).

    An absent input or result gradient is None, and so is the gradient of an absent input. An input that
    does not matter has a gradient of zeros.
    """
    with _recording():
        leaves = [tensor if tensor is None else tensor.detach().requires_grad_() for tensor in inputs]
        results = forward(*leaves)
        results = (results,) if isinstance(results, Tensor) else results
        pairs = [(result, grad) for result, grad in zip(results, upstream, strict=False) if grad is not None]
        wanted = [leaf for leaf in leaves if leaf is not None]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                wanted,
                [grad.to(result.dtype).expand_as(result) for result, grad in pairs],
                allow_unused=True,
                materialize_grads=True,
            )
        )
    return tuple(leaf if leaf is None else next(found) for leaf in leaves)


def gradient(forward: Callable[[Tensor], Tensor], tensor: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of the only input of a function with one result."""
    (result,) = gradients(forward, [tensor], [upstream])
    assert result is not None
    return result


@contextmanager
def _recording() -> Iterator[None]:
    """Differentiate inside a kernel, where the dispatcher has left autograd behind."""
    keys = torch._C.DispatchKey
    included = torch._C._dispatch_tls_local_include_set().add(keys.ADInplaceOrView)
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (keys.AutogradCPU, keys.AutogradOther, keys.ADInplaceOrView):
        excluded = excluded.remove(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.inference_mode(False), torch.enable_grad():
        yield
