"""torch_npu's fused attention against loops over batches, heads and rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu
from comparing import against, close
from torch import Tensor

B, N, S, D = 2, 4, 5, 8
SCALE = 0.3
LAYOUTS = {
    "BNSD": lambda t: t,
    "BSND": lambda t: t.transpose(1, 2),
    "BSH": lambda t: t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1),
    "SBH": lambda t: t.permute(2, 0, 1, 3).reshape(t.shape[2], t.shape[0], -1),
}


def tensors(heads: int = N, keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(B, N, S, D), torch.randn(B, heads, keys, D), torch.randn(B, heads, keys, D)


def attend(
    query: Tensor, key: Tensor, value: Tensor, allowed: Any = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row; allowed(row, column) says which positions count, bias is added to the scaled scores."""
    rows, largest, sums = [], [], []
    for b in range(query.shape[0]):
        for n in range(query.shape[1]):
            m = n * key.shape[1] // query.shape[1]
            for i in range(query.shape[2]):
                columns = [j for j in range(key.shape[2]) if allowed is None or allowed(i, j)]
                scores = [SCALE * (query[b, n, i] @ key[b, m, j]) for j in columns]
                if bias is not None:
                    scores = [
                        score + bias[b % bias.shape[0], n, i, j] for score, j in zip(scores, columns, strict=True)
                    ]
                stacked = torch.stack(scores)
                weights = (stacked - stacked.max()).exp()
                largest.append(stacked.max())
                sums.append(weights.sum())
                rows.append((weights / weights.sum()) @ value[b, m, columns])
    shape = query.shape[:3]
    return torch.stack(rows).view(*shape, -1), torch.stack(largest).view(shape), torch.stack(sums).view(shape)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    order = LAYOUTS[layout]

    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(order(q), order(k), order(v), N, layout, scale=SCALE)[0]

    against(operator, lambda q, k, v: order(attend(q, k, v)[0]), *tensors())


def test_other_results() -> None:
    query, key, value = tensors()
    results = torch_npu.npu_fusion_attention(query.npu(), key.npu(), value.npu(), N, "BNSD", scale=SCALE)
    assert len(results) == 7
    _, largest, sums = attend(query, key, value)
    close(results[1], largest.unsqueeze(-1).expand(B, N, S, 8))
    close(results[2], sums.unsqueeze(-1).expand(B, N, S, 8))
    assert results[6] == B * N * S * S


def test_grouped_queries() -> None:
    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", scale=SCALE)[0]

    against(operator, lambda q, k, v: attend(q, k, v)[0], *tensors(heads=2, keys=7))


@pytest.mark.parametrize("shape", [(S, 7), (1, 1, S, 7), (B, 1, S, 7), (B, N, S, 7)])
def test_full_masks(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    mask = torch.rand(S, 7) < 0.4
    mask[:, 0] = False
    full = mask.expand(shape).contiguous()
    for mode, dtype in ((0, torch.bool), (1, torch.uint8)):

        def operator(q: Tensor, k: Tensor, v: Tensor, mode: int = mode, dtype: torch.dtype = dtype) -> Tensor:
            return torch_npu.npu_fusion_attention(
                q, k, v, N, "BNSD", scale=SCALE, atten_mask=full.to(dtype).npu(), sparse_mode=mode
            )[0]

        against(operator, lambda q, k, v: attend(q, k, v, lambda i, j: not mask[i, j])[0], *tensors(keys=7))


@pytest.mark.parametrize(
    ("mode", "options", "allowed"),
    [
        (2, {}, lambda i, j, shift: j <= i),
        (3, {}, lambda i, j, shift: j <= i + shift),
        (4, {"pre_tockens": 3, "next_tockens": 1}, lambda i, j, shift: i + shift - 3 <= j <= i + shift + 1),
        (6, {"prefix": [4, 4]}, lambda i, j, shift: j <= i + shift or j < 4),
    ],
    ids=["left-up", "right-down", "band", "prefix"],
)
def test_compressed_masks(mode: int, options: dict[str, Any], allowed: Any) -> None:
    compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()

    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(
            q, k, v, N, "BNSD", scale=SCALE, atten_mask=compressed, sparse_mode=mode, **options
        )[0]

    against(operator, lambda q, k, v: attend(q, k, v, lambda i, j: allowed(i, j, 2))[0], *tensors(keys=7))


def test_masks_need_a_tensor() -> None:
    query, key, value = (tensor.npu() for tensor in tensors())
    unmasked = torch_npu.npu_fusion_attention(query, key, value, N, "BNSD", scale=SCALE, sparse_mode=2)[0]
    close(unmasked, attend(*tensors())[0])


def test_position_bias() -> None:
    torch.manual_seed(2)
    bias = torch.randn(1, N, S, S)

    def operator(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", pse=b, scale=SCALE)[0]

    # The bias joins the scores before they are scaled.
    against(operator, lambda q, k, v, b: attend(q, k, v, bias=SCALE * b)[0], *tensors(), bias)


def test_position_bias_after_scaling() -> None:
    torch.manual_seed(2)
    bias = torch.randn(1, N, S, S)

    def operator(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention_v2(q, k, v, N, "BNSD", pse=b, scale=SCALE, pse_type=0)[0]

    against(operator, lambda q, k, v, b: attend(q, k, v, bias=b)[0], *tensors(), bias)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_different_lengths(causal: bool) -> None:
    torch.manual_seed(3)
    queries, keys = [2, 5, 7], [3, 6, 9]
    q, k, v = torch.randn(7, N, D), torch.randn(9, 2, D), torch.randn(9, 2, D)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu() if causal else None

    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(
            *(q, k, v, N, "TND"),
            scale=SCALE,
            actual_seq_qlen=queries,
            actual_seq_kvlen=keys,
            atten_mask=mask,
            sparse_mode=3 if causal else 0,
        )[0]

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts, first_row, first_column = [], 0, 0
        for last_row, last_column in zip(queries, keys, strict=True):
            one = [t.transpose(0, 1)[None] for t in (q[first_row:last_row], k[first_column:last_column])]
            value = v[first_column:last_column].transpose(0, 1)[None]
            shift = (last_column - first_column) - (last_row - first_row)
            allowed = (lambda i, j, shift=shift: j <= i + shift) if causal else None
            parts.append(attend(*one, value, allowed)[0][0].transpose(0, 1))
            first_row, first_column = last_row, last_column
        return torch.cat(parts)

    against(operator, formula, q, k, v)


def test_statistics_of_different_lengths() -> None:
    torch.manual_seed(3)
    q, k, v = torch.randn(5, N, D), torch.randn(5, N, D), torch.randn(5, N, D)
    options = {"scale": SCALE, "actual_seq_qlen": [2, 5], "actual_seq_kvlen": [2, 5]}
    by_token = torch_npu.npu_fusion_attention(q.npu(), k.npu(), v.npu(), N, "TND", softmax_layout="TND", **options)[1]
    by_head = torch_npu.npu_fusion_attention(q.npu(), k.npu(), v.npu(), N, "TND", **options)[1]
    first = attend(q[None, :2].transpose(1, 2), k[None, :2].transpose(1, 2), v[None, :2].transpose(1, 2))[1][0]
    assert by_token.shape == by_head.shape == (5, N, 8)
    close(by_token[:2, :, 0], first.t())
    close(by_head.flatten()[: 2 * N * 8].view(N, 2, 8)[..., 0], first)


def test_attention_sink() -> None:
    query, key, value = tensors()
    sink = torch.linspace(-1, 1, N)

    def operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", scale=SCALE, sink=sink.npu())[0]

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = SCALE * q @ k.transpose(-1, -2)
        extended = torch.cat([scores, sink.view(1, N, 1, 1).expand(B, N, S, 1)], -1)
        return torch.softmax(extended, -1)[..., :-1] @ v

    against(operator, formula, query, key, value)


def test_rows_without_any_position_are_zeros() -> None:
    query, key, value = tensors()
    mask = torch.zeros(S, S, dtype=torch.bool)
    mask[1] = True
    result = torch_npu.npu_fusion_attention(
        query.npu(), key.npu(), value.npu(), N, "BNSD", scale=SCALE, atten_mask=mask.npu()
    )[0]
    assert not result[:, :, 1].any()
    assert result.isfinite().all()


def test_dropout_keeps_the_mean_and_repeats_in_backward() -> None:
    heads, size = 2, 64
    query = torch.zeros(1, heads, size, 8, device="npu")
    value = torch.ones(1, heads, size, 8, device="npu", requires_grad=True)
    output, *_, seed, offset, count = torch_npu.npu_fusion_attention(query, query, value, heads, "BNSD", keep_prob=0.5)
    assert output.mean().item() == pytest.approx(1, abs=0.1)
    assert output.std().item() > 0.05
    assert count == heads * size * size
    output.sum().backward()
    # Every weight is 1 / size, so what the output sums up over rows is the gradient's sum over columns.
    assert value.grad.sum().item() == pytest.approx(output.sum().item(), rel=1e-4)
    again = torch_npu.npu_fusion_attention(query, query, value, heads, "BNSD", keep_prob=0.5, seed=seed, offset=offset)[
        0
    ]
    assert torch.equal(again, output)


def test_half_precision_rounds_once() -> None:
    query, key, value = (tensor.half() for tensor in tensors())
    result = torch_npu.npu_fusion_attention(query.npu(), key.npu(), value.npu(), N, "BNSD", scale=SCALE)[0]
    expected = attend(query.float(), key.float(), value.float())[0]
    assert result.dtype == torch.float16
    close(result, expected.half(), rtol=2e-3, atol=1e-5)


def test_prompt_attention() -> None:
    query, key, value = tensors(heads=2)
    mask = torch.ones(S, S, dtype=torch.bool).triu(1)
    result = torch_npu.npu_prompt_flash_attention(
        *(LAYOUTS["BSH"](tensor).npu() for tensor in (query, key, value)),
        num_heads=N,
        num_key_value_heads=2,
        scale_value=SCALE,
        atten_mask=mask.npu(),
    )
    close(result, LAYOUTS["BSH"](attend(query, key, value, lambda i, j: j <= i)[0]))


def test_incremental_attention() -> None:
    query, key, value = tensors(keys=7)
    lengths = [3, 7]
    result = torch_npu.npu_incre_flash_attention(
        *(LAYOUTS["BSH"](tensor).npu() for tensor in (query[:, :, :1], key, value)),
        num_heads=N,
        scale_value=SCALE,
        actual_seq_lengths=lengths,
    )
    for batch, length in enumerate(lengths):
        one = slice(batch, batch + 1)
        expected = attend(query[one, :, :1], key[one, :, :length], value[one, :, :length])[0]
        close(result[one], LAYOUTS["BSH"](expected))


def test_scale_of_torch() -> None:
    query, key, value = tensors()
    result = torch_npu.npu_fusion_attention(query.npu(), key.npu(), value.npu(), N, "BNSD", scale=1 / math.sqrt(D))[0]
    close(result, torch.nn.functional.scaled_dot_product_attention(query, key, value))
