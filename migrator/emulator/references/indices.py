"""PyTorch's operators whose indices may be int32 on an NPU, while the CPU takes int64 only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import reference


@reference("aten::one_hot")
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Ones and zeros of the type of the indices."""
    return F.one_hot(self.long(), num_classes).to(self.dtype)


@reference("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = torch.ops.aten.multilabel_margin_loss_forward(self, target.long(), reduction)
    return result
