"""Routing of tokens to experts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .gradients import gradients
from .registry import reference


@reference("npu_moe_gating_top_k_softmax")
def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    probabilities = torch.softmax(x.float(), -1)
    values, experts = _top_k(probabilities, k)
    rows = math.prod(x.shape[:-1])
    order = torch.arange(rows * k, dtype=torch.int32).view(k, rows).t().reshape(experts.shape)
    return values.to(x.dtype), _finish(experts, finished, x.shape[-1]), order.contiguous()


@reference("npu_moe_gating_top_k_softmax_v2")
def npu_moe_gating_top_k_softmax_v2(
    x: Tensor,
    *,
    k: int = 1,
    finished: Tensor | None = None,
    renorm: int | None = 0,
    output_softmax: bool | None = False,
) -> tuple[Tensor, Tensor, Tensor]:
    probabilities = torch.softmax(x.float(), -1)
    if renorm == 1:
        logits, experts = _top_k(x.float(), k)
        values = torch.softmax(logits, -1)
    else:
        values, experts = _top_k(probabilities, k)
    rest = probabilities if output_softmax and renorm != 1 else probabilities.new_empty(0)
    return values.to(x.dtype), _finish(experts, finished, x.shape[-1]), rest


def _top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores and where they are; of equal ones the first comes first."""
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    return values[..., :k].contiguous(), order[..., :k].int()


def _finish(experts: Tensor, finished: Tensor | None, count: int) -> Tensor:
    """Send finished rows to an expert that does not exist."""
    return experts if finished is None else experts.masked_fill(finished.bool().unsqueeze(-1), count)


@reference("npu_moe_gating_top_k")
def npu_moe_gating_top_k(
    x: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    input_ids: Tensor | None = None,
    tid2eid: Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> tuple[Tensor, Tensor, Tensor]:
    if input_ids is not None or tid2eid is not None or renorm or norm_type not in (0, 1):
        raise NotImplementedError(
            "npu_moe_gating_top_k: the emulated NPU has no reference for input_ids, tid2eid, renorm and other norm_type"
        )
    wide = x.float()
    normalized = torch.sigmoid(wide) if norm_type else torch.softmax(wide, -1)
    scores = normalized if bias is None else normalized + bias.float()
    if group_count > 1:
        groups = scores.unflatten(-1, (group_count, -1))
        rank = groups.amax(-1) if group_select_mode == 0 else groups.topk(2, -1).values.sum(-1)
        _, chosen = _top_k(rank, k_group)
        outside = torch.ones_like(rank, dtype=torch.bool).scatter(-1, chosen.long(), False)
        scores = groups.masked_fill(outside.unsqueeze(-1), -math.inf).flatten(-2)
    _, experts = _top_k(scores, k)
    values = normalized.gather(-1, experts.long())
    if norm_type == 1:
        values = values / (values.sum(-1, keepdim=True) + eps)
    return (values * routed_scaling_factor).to(x.dtype), experts, normalized


@reference("npu_moe_gating_top_k_backward")
def npu_moe_gating_top_k_backward(
    x_norm: Tensor,
    grad_y: Tensor,
    expertIdx: Tensor,
    *,
    renorm: int = 0,
    norm_type: int = 0,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> Tensor:
    normalized = x_norm.float()
    logits = torch.logit(normalized) if norm_type else normalized.log()

    def forward(scores: Tensor) -> Tensor:
        again = torch.sigmoid(scores) if norm_type else torch.softmax(scores, -1)
        values = again.gather(-1, expertIdx.long())
        if norm_type == 1:
            values = values / (values.sum(-1, keepdim=True) + eps)
        return values * routed_scaling_factor

    (result,) = gradients(forward, [logits], [grad_y])
    assert result is not None
    return result.to(grad_y.dtype)


@reference("npu_moe_compute_expert_tokens")
def npu_moe_compute_expert_tokens(sorted_expert_for_source_row: Tensor, num_expert: int) -> Tensor:
    experts = torch.arange(num_expert, dtype=sorted_expert_for_source_row.dtype)
    return torch.searchsorted(sorted_expert_for_source_row, experts, right=True).to(experts.dtype)


@reference("npu_moe_init_routing")
def npu_moe_init_routing(
    x: Tensor, row_idx: Tensor, expert_idx: Tensor, active_num: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, k = expert_idx.shape
    experts, order = expert_idx.flatten().sort(stable=True)
    source = row_idx.flatten()[order].long()
    destination = torch.empty_like(source)
    destination[source] = torch.arange(source.numel())
    active = min(active_num, rows) * k
    return x[source[:active] % rows], destination.int(), experts


@reference("npu_moe_finalize_routing")
def npu_moe_finalize_routing(
    expanded_permuted_rows: Tensor,
    skip1: Tensor | None,
    skip2: Tensor | None,
    bias: Tensor | None,
    scales: Tensor | None,
    expanded_src_to_dst_row: Tensor,
    export_for_source_row: Tensor | None,
    drop_pad_mode: int | None = 0,
    k: int | None = 1,
) -> Tensor:
    if drop_pad_mode not in (None, 0, 1):
        raise NotImplementedError(
            f"npu_moe_finalize_routing: the emulated NPU has no reference for drop_pad_mode {drop_pad_mode}"
        )
    top_k = scales.shape[1] if scales is not None else (k or 1)
    tokens = expanded_permuted_rows.flatten(0, -2).float()
    source = expanded_src_to_dst_row.long().view(top_k, -1).t()
    chosen = tokens[source.clamp(min=0)] * (source >= 0).unsqueeze(-1)
    if bias is not None and export_for_source_row is not None:
        chosen = chosen + bias.float()[export_for_source_row.long()]
    if scales is not None:
        chosen = chosen * scales.float().unsqueeze(-1)
    result = chosen.sum(1)
    for skip in (skip1, skip2):
        if skip is not None:
            result = result + skip.float()
    return result.to(expanded_permuted_rows.dtype)


@reference("npu_moe_token_permute")
def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    _refuse_padded("npu_moe_token_permute", padded_mode)
    k = 1 if indices.dim() == 1 else indices.shape[1]
    order = indices.flatten().argsort(stable=True)
    kept = order[: num_out_tokens or None]
    # Where each (token, choice) went, which is what putting them back needs.
    return tokens[kept // k], order.argsort().int()


@reference("npu_moe_token_permute_grad_v2")
def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: int,
    num_topK: int,
    padded_mode: bool = False,
) -> Tensor:
    _refuse_padded("npu_moe_token_permute", padded_mode)
    return _put_back(grad_permuted_tokens, sorted_indices, num_topK).sum(1).to(grad_permuted_tokens.dtype)


@reference("npu_moe_token_permute_grad")
def npu_moe_token_permute_grad(
    tokens: Tensor, grad_permuted_tokens: Tensor, indices: Tensor, sorted_indices: Tensor, padded_mode: bool = False
) -> Tensor:
    k = 1 if indices.dim() == 1 else indices.shape[1]
    return npu_moe_token_permute_grad_v2(grad_permuted_tokens, sorted_indices, tokens.shape[0], 0, k, padded_mode)


@reference("npu_moe_token_unpermute")
def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
) -> Tensor:
    _refuse_padded("npu_moe_token_unpermute", padded_mode)
    chosen = _put_back(permuted_tokens, sorted_indices, 1 if probs is None else probs.shape[1])
    if probs is not None:
        chosen = chosen * probs.float().unsqueeze(-1)
    return chosen.sum(1).to(permuted_tokens.dtype)


@reference("_npu_moe_token_unpermute")
def npu_moe_token_unpermute_keeping(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
) -> tuple[Tensor, Tensor]:
    result = npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)
    return result, permuted_tokens


@reference("npu_moe_token_unpermute_grad")
def npu_moe_token_unpermute_grad(
    permuted_tokens: Tensor,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
) -> tuple[Tensor | None, ...]:
    def forward(tokens: Tensor, weights: Tensor | None) -> Tensor:
        return npu_moe_token_unpermute(tokens, sorted_indices, weights, padded_mode, restore_shape)

    dtokens, dprobs = gradients(forward, [permuted_tokens, probs], [grad_unpermuted_tokens])
    return dtokens, permuted_tokens.new_empty(0) if dprobs is None else dprobs


@reference("npu_moe_token_unpermute_grad_v2")
def npu_moe_token_unpermute_grad_v2(
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: int,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
    permuted_tokens: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    if permuted_tokens is None:
        permuted_tokens = grad_unpermuted_tokens.new_zeros(permuted_tokens_size_0, grad_unpermuted_tokens.shape[1])
    return npu_moe_token_unpermute_grad(
        permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs, padded_mode, restore_shape
    )


def _put_back(permuted: Tensor, places: Tensor, k: int) -> Tensor:
    """The tokens in their old order as (tokens, k, size), float32; those that were dropped are zeros."""
    index = places.long()
    present = index < permuted.shape[0]
    chosen = permuted.float()[index.clamp(max=max(permuted.shape[0] - 1, 0))] * present.unsqueeze(-1)
    return chosen.unflatten(0, (-1, k))


def _refuse_padded(name: str, padded_mode: bool) -> None:
    if padded_mode:
        raise NotImplementedError(f"{name}: the operator does not support padded_mode")
