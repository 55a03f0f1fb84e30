"""The parallel layers, which are the plain ones with one process."""

from __future__ import annotations

from typing import Any

import torch


class ColumnParallelLinear(torch.nn.Linear):
    """A linear layer with all of its columns here."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **_how: Any) -> None:
        super().__init__(in_features, out_features, bias=bias)


class RowParallelLinear(ColumnParallelLinear):
    """A linear layer with all of its rows here."""


class ParallelEmbedding(torch.nn.Embedding):
    """An embedding with all of its columns here."""

    def __init__(self, num_embeddings: int, embedding_dim: int, **_how: Any) -> None:
        super().__init__(num_embeddings, embedding_dim)
