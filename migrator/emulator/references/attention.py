"""Fused attention: softmax(mask(scale * (query key' + pse))) value, in float32, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .dropout import seeded_bits, unpack_bits
from .gradients import gradients
from .registry import reference

_REPEATS = 8  # the softmax statistics are stored eight times over


@dataclass(frozen=True)
class Attention:
    """What to compute, apart from the tensors that gradients are wanted for.

    heads: query heads; key and value may have fewer, and each then serves a group.
    layout: order of batch, sequence, heads and head size: BSH, SBH, BSND, BNSD or TND.
    mask: true where a position is left out; the compressed one of the modes 2, 3, 4 and 6 is not read.
    query_lengths, key_lengths: the cumulative ones of TND.
    pse_after_scale: whether pse is added after the scores were scaled, and not before.
    """

    heads: int
    layout: str
    scale: float
    mask: Tensor | None = None
    mode: int = 0
    before: int = 2147483647
    after: int = 2147483647
    prefix: Sequence[int] | None = None
    query_lengths: Sequence[int] | None = None
    key_lengths: Sequence[int] | None = None
    keep_prob: float = 1.0
    dropout_mask: Tensor | None = None
    pse_after_scale: bool = False
    statistics_layout: str = ""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, pse: Tensor | None = None, sink: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The result and, as float32, the largest score and the sum of exponentials of each row."""
        if self.layout == "TND":
            return self._varying(query, key, value, pse, sink)
        heads, key_heads = self.heads, self._key_heads(query, key)
        q = _to_bnsd(query, self.layout, heads)
        k, v = (_to_bnsd(tensor, self.layout, key_heads) for tensor in (key, value))
        kept = None
        if self.dropout_mask is not None:
            kept = unpack_bits(self.dropout_mask, [*q.shape[:3], k.shape[2]])
        result, largest, total = self._attend(q, k, v, pse, sink, self.prefix, kept)
        return _from_bnsd(result, self.layout).to(query.dtype), _repeat(largest), _repeat(total)

    def _key_heads(self, query: Tensor, key: Tensor) -> int:
        if self.layout in ("BSH", "SBH"):
            return int(key.shape[2] // (query.shape[2] // self.heads))
        return int(key.shape[1] if self.layout == "BNSD" else key.shape[2])

    def _varying(
        self, query: Tensor, key: Tensor, value: Tensor, pse: Tensor | None, sink: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.query_lengths is None or self.key_lengths is None:
            raise RuntimeError("fusion attention: the layout TND needs actual_seq_qlen and actual_seq_kvlen")
        result = torch.zeros(*query.shape[:2], value.shape[2])
        statistics: tuple[list[Tensor], list[Tensor]] = ([], [])
        bits = 0
        for index, (rows, columns) in enumerate(zip(_spans(self.query_lengths), _spans(self.key_lengths), strict=True)):
            q, k, v = (part.transpose(0, 1)[None].float() for part in (query[rows], key[columns], value[columns]))
            kept, size = None, q.shape[2] * k.shape[2] * self.heads
            if self.dropout_mask is not None:
                kept = unpack_bits(self.dropout_mask, [bits + size])[bits:].view(1, self.heads, *q.shape[2:3], -1)
            bits += size
            part_pse = None if pse is None else pse[index : index + 1] if pse.shape[0] > 1 else pse
            prefix = None if self.prefix is None else [self.prefix[index]]
            output, *both = self._attend(q, k, v, part_pse, sink, prefix, kept)
            result = result.index_copy(0, torch.arange(rows.start, rows.stop), output[0].transpose(0, 1))
            for collected, statistic in zip(statistics, both, strict=True):
                values = _repeat(statistic)[0]
                collected.append((values.transpose(0, 1) if self.statistics_layout == "TND" else values).flatten())
        shape = (*query.shape[:2], _REPEATS)
        rest = torch.zeros(math.prod(shape) - sum(part.numel() for part in statistics[0]))
        largest, total = (torch.cat([*collected, rest]).view(shape) for collected in statistics)
        return result.to(query.dtype), largest, total

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pse: Tensor | None,
        sink: Tensor | None,
        prefix: Sequence[int] | None,
        kept: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over float32 tensors of batch, heads, sequence, size."""
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        scores = query @ key.transpose(-1, -2)
        if pse is not None and not self.pse_after_scale:
            scores = scores + pse.float()
        scores = scores * self.scale
        if pse is not None and self.pse_after_scale:
            scores = scores + pse.float()
        mask = self._mask(scores.shape[-2], scores.shape[-1], prefix)
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        largest = scores.amax(-1, keepdim=True)
        if sink is not None:
            largest = torch.maximum(largest, sink.view(-1, 1, 1))
        largest = largest.detach()
        exponentials = torch.exp(scores - largest.masked_fill(largest == -math.inf, 0))
        total = exponentials.sum(-1, keepdim=True)
        if sink is not None:
            total = total + torch.exp(sink.view(-1, 1, 1) - largest)
        weights = exponentials / total.masked_fill(total == 0, 1)  # a row without any position gives zeros
        if kept is not None:
            weights = weights * kept / self.keep_prob
        return weights @ value, largest, total

    def _mask(self, rows: int, columns: int, prefix: Sequence[int] | None) -> Tensor | None:
        """Which positions of a (rows, columns) block to leave out, in a shape that broadcasts; None: none."""
        if self.mask is None:
            return None
        if self.mode in (0, 1, 5):
            return self.mask[..., :rows, :columns].bool()
        # How far right of the diagonal that ends in the lower right corner each position is.
        distance = torch.arange(columns) - torch.arange(rows)[:, None] - (columns - rows)
        if self.mode == 2:
            return distance + (columns - rows) > 0
        if self.mode == 3:
            return distance > 0
        if self.mode == 4:
            return (distance > self.after) | (distance < -self.before)
        if self.mode == 6 and prefix is not None:
            beyond = torch.arange(columns) >= torch.tensor(prefix).view(-1, 1, 1, 1)
            return (distance > 0) & beyond
        raise NotImplementedError(f"attention: the emulated NPU has no reference for sparse_mode {self.mode}")


def _spans(cumulative: Sequence[int]) -> Iterator[slice]:
    """The rows of each sequence. Trailing zeros stand for sequences that are left out."""
    start = 0
    for end in cumulative:
        end = max(start, int(end))
        yield slice(start, end)
        start = end


def _to_bnsd(tensor: Tensor, layout: str, heads: int) -> Tensor:
    wide = tensor.float()
    if layout == "BSH":
        return wide.unflatten(2, (heads, -1)).transpose(1, 2)
    if layout == "SBH":
        return wide.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
    if layout == "BSND":
        return wide.transpose(1, 2)
    if layout == "BNSD":
        return wide
    raise NotImplementedError(f"attention: the emulated NPU has no reference for the layout {layout}")


def _from_bnsd(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BSH":
        return tensor.transpose(1, 2).flatten(2)
    if layout == "SBH":
        return tensor.permute(2, 0, 1, 3).flatten(2)
    if layout == "BSND":
        return tensor.transpose(1, 2).contiguous()
    return tensor


def _repeat(statistic: Tensor) -> Tensor:
    return statistic.detach().expand(*statistic.shape[:-1], _REPEATS).contiguous()


def _dropout(attention: Attention, query: Tensor, key: Tensor, seed: int, offset: int) -> tuple[Attention, int]:
    """The attention with a dropout mask drawn from a seed, and the number of elements in it."""
    count = _score_count(attention, query, key)
    if attention.keep_prob < 1 and attention.dropout_mask is None:
        bits = seeded_bits(count, 1 - attention.keep_prob, seed, offset)
        attention = replace(attention, dropout_mask=bits)
    return attention, count


def _score_count(attention: Attention, query: Tensor, key: Tensor) -> int:
    if attention.layout == "TND":
        pairs = zip(_spans(attention.query_lengths or ()), _spans(attention.key_lengths or ()), strict=True)
        return attention.heads * sum(int(q.stop - q.start) * int(k.stop - k.start) for q, k in pairs)
    batch, rows = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2)}[attention.layout]
    return int(query.shape[batch] * attention.heads * query.shape[rows] * key.shape[rows])


def _seed(keep_prob: float, seed: int) -> int:
    return int(torch.randint(1, 1 << 31, ())) if keep_prob < 1 and not seed else seed


@reference("npu_fusion_attention", random=True)
def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: list[int] | None = None,
    actual_seq_qlen: list[int] | None = None,
    actual_seq_kvlen: list[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    attention = Attention(
        *(head_num, input_layout, scale, atten_mask, sparse_mode, pre_tockens, next_tockens),
        *(prefix, actual_seq_qlen, actual_seq_kvlen, keep_prob, dropout_mask),
        statistics_layout=softmax_layout,
    )
    seed = _seed(keep_prob, seed)
    attention, count = _dropout(attention, query, key, seed, offset)
    result, largest, total = attention(query, key, value, pse, sink)
    return result, largest, total, query.new_empty(0), seed, offset, count


@reference("npu_fusion_attention_grad")
def npu_fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: list[int] | None = None,
    actual_seq_qlen: list[int] | None = None,
    actual_seq_kvlen: list[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    attention = Attention(
        *(head_num, input_layout, scale_value, atten_mask, sparse_mode, pre_tockens, next_tockens),
        *(prefix, actual_seq_qlen, actual_seq_kvlen, keep_prob),
    )
    attention, _ = _dropout(attention, query, key, seed, offset)
    return _attention_gradients(attention, query, key, value, pse, sink, dy)


def _attention_gradients(
    attention: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pse: Tensor | None,
    sink: Tensor | None,
    dy: Tensor,
) -> tuple[Tensor | None, ...]:
    found = gradients(attention, [query, key, value, pse, sink], [dy])
    return tuple(query.new_empty(0) if grad is None else grad for grad in found)


@reference("npu_fusion_attention_v2", random=True)
def npu_fusion_attention_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    pse: Tensor | None = None,
    pse_type: int = 1,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    q_start_idx: list[int] | None = None,
    kv_start_idx: list[int] | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    prefix: list[int] | None = None,
    actual_seq_qlen: list[int] | None = None,
    actual_seq_kvlen: list[int] | None = None,
    sparse_mode: int = 0,
    softmax_layout: str = "",
    sink: Tensor | None = None,
    dropout_mask: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
    **tuning: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    _refuse_v2(pse_type, query_rope, key_rope)
    attention = Attention(
        *(head_num, input_layout, scale, atten_mask, sparse_mode, pre_tokens, next_tokens),
        *(prefix, actual_seq_qlen, actual_seq_kvlen, keep_prob, dropout_mask),
        pse_after_scale=pse_type == 0,
        statistics_layout=softmax_layout,
    )
    seed = _seed(keep_prob, seed)
    attention, count = _dropout(attention, query, key, seed, offset)
    result, largest, total = attention(query, key, value, pse, sink)
    return result, largest, total, query.new_empty(0), seed, offset, count


@reference("npu_fusion_attention_grad_v2")
def npu_fusion_attention_grad_v2(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    pse: Tensor | None = None,
    pse_type: int = 1,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    prefix: list[int] | None = None,
    actual_seq_qlen: list[int] | None = None,
    actual_seq_kvlen: list[int] | None = None,
    sparse_mode: int = 0,
    sink: Tensor | None = None,
    seed: int = 0,
    offset: int = 0,
    **saved_and_tuning: Any,
) -> tuple[Tensor | None, ...]:
    _refuse_v2(pse_type, query_rope, key_rope)
    attention = Attention(
        *(head_num, input_layout, scale_value, atten_mask, sparse_mode, pre_tokens, next_tokens),
        *(prefix, actual_seq_qlen, actual_seq_kvlen, keep_prob),
        pse_after_scale=pse_type == 0,
    )
    attention, _ = _dropout(attention, query, key, seed, offset)
    dq, dk, dv, dpse, dsink = _attention_gradients(attention, query, key, value, pse, sink, dy)
    return dq, dk, dv, dpse, query.new_empty(0), query.new_empty(0), dsink


def _refuse_v2(pse_type: int, query_rope: Tensor | None, key_rope: Tensor | None) -> None:
    if pse_type not in (0, 1) or query_rope is not None or key_rope is not None:
        raise NotImplementedError(
            "npu_fusion_attention_v2: the emulated NPU has no reference for pse_type above 1, query_rope and key_rope"
        )


@reference("npu_prompt_flash_attention")
def npu_prompt_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    pse_shift: Tensor | None = None,
    actual_seq_lengths: list[int] | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: list[int] | None = None,
    sparse_mode: int = 0,
    **quantization: Tensor | None,
) -> Tensor:
    _refuse_inference("npu_prompt_flash_attention", quantization, actual_seq_lengths, actual_seq_lengths_kv)
    layout = "BNSD" if input_layout == "BNSD_BSND" else input_layout
    attention = Attention(num_heads, layout, scale_value, atten_mask, sparse_mode, pre_tokens, next_tokens)
    result = replace(attention, pse_after_scale=True)(query, key, value, pse_shift)[0]
    return result.transpose(1, 2).contiguous() if input_layout == "BNSD_BSND" else result


@reference("npu_incre_flash_attention")
def npu_incre_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    pse_shift: Tensor | None = None,
    actual_seq_lengths: list[int] | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
    inner_precise: int = 1,
    **cache_and_quantization: Tensor | None,
) -> Tensor:
    _refuse_inference("npu_incre_flash_attention", cache_and_quantization)
    batch = query.shape[0]
    mask = None if atten_mask is None else atten_mask.bool().view(batch, 1, 1, -1)
    if actual_seq_lengths is not None:
        lengths = torch.tensor(actual_seq_lengths).expand(batch).view(-1, 1, 1, 1)
        unused = torch.arange(key.shape[2 if input_layout == "BNSD" else 1]) >= lengths
        mask = unused if mask is None else mask | unused
    attention = Attention(num_heads, input_layout, scale_value, mask, pse_after_scale=True)
    return attention(query, key, value, pse_shift)[0]


def _refuse_inference(name: str, options: dict[str, Tensor | None], *lengths: list[int] | None) -> None:
    used = [option for option, tensor in options.items() if tensor is not None]
    if any(length is not None for length in lengths):
        used.append("actual_seq_lengths")
    if used:
        raise NotImplementedError(f"{name}: the emulated NPU has no reference for {', '.join(used)}")
