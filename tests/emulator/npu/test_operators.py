"""torch_npu's layout, matrix, routing, box and optimizer operators against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from comparing import against, close
from torch import Tensor


def normal(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape)


def test_casts() -> None:
    against(lambda x: torch_npu.npu_format_cast(x, 29), lambda x: x, normal(3, 4))
    against(lambda x: torch_npu.npu_dtype_cast(x, torch.float16), lambda x: x.half(), normal(3, 4), rtol=1e-3)
    assert torch_npu.npu_dtype_cast(torch.tensor([1.5, -1.0]).npu(), torch.int32).tolist() == [1, -1]
    assert torch_npu.npu_dtype_cast(normal(2).npu(), torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("shape", "target", "perm", "first"),
    [
        ((2, 6, 8), (2, 6, 4, 2), (0, 2, 1, 3), False),
        ((2, 4, 6, 2), (2, 6, 8), (0, 2, 1, 3), True),
        ((2, 3, 4), (4, 6), (2, 0, 1), True),
        ((4, 6), (2, 3, 4), (2, 0, 1), False),
    ],
)
def test_confusion_transpose(shape, target, perm, first) -> None:
    against(
        lambda x: torch_npu.npu_confusion_transpose(x, perm, target, first),
        lambda x: x.permute(perm).reshape(target) if first else x.view(target).permute(perm),
        normal(*shape),
    )


@pytest.mark.parametrize(
    ("operator", "formula"),
    [
        (lambda x: torch_npu.npu_transpose(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1)),
        (lambda x: torch_npu.npu_reshape(x, (4, 6)), lambda x: x.view(4, 6)),
        (lambda x: torch_npu.npu_slice(x, [0, 1, 2], [2, 2, -1]), lambda x: x[:2, 1:3, 2:]),
        (lambda x: torch_npu.npu_broadcast(x, (5, 2, 3, 4)), lambda x: x.expand(5, 2, 3, 4)),
        (lambda x: torch_npu.npu_pad(x, (1, 0, 0, 2, 3, 1)), lambda x: F.pad(x, (3, 1, 0, 2, 1, 0))),
        (lambda x: torch_npu.npu_indexing(x, [0, 1, 3], [2, 3, 0], [1, 1, 1], end_mask=4), lambda x: x[0:2, 1:3, 3:]),
        (lambda x: torch_npu.npu_indexing(x, [1, 0], [2, 3], [1, 2], shrink_axis_mask=1), lambda x: x[1, 0:3:2]),
        (lambda x: torch_npu.npu_stride_copy(x, (2, 2), (6, 2), 3), lambda x: x.as_strided((2, 2), (6, 2), 3)),
        (torch_npu.npu_sort_v2, lambda x: x.sort().values),
    ],
)
def test_reorderings(operator, formula) -> None:
    against(operator, formula, normal(2, 3, 4), gradients=False)


def test_results_in_a_given_tensor() -> None:
    out = torch.empty(0, device="npu")
    torch_npu.npu_transpose(normal(2, 3).npu(), (1, 0), out=out)
    close(out, normal(2, 3).t().contiguous())


@pytest.mark.parametrize("keepdim", [False, True])
def test_extremes(keepdim: bool) -> None:
    for name in ("max", "min"):
        against(
            lambda x, name=name: getattr(torch_npu, f"npu_{name}")(x, 1, keepdim)[0],
            lambda x, name=name: getattr(x, name)(1, keepdim).values,
            normal(3, 5),
        )
    assert torch_npu.npu_max(normal(3, 5).npu(), 1)[1].dtype == torch.int32


def test_one_hot() -> None:
    result = torch_npu.npu_one_hot(torch.tensor([1, 0, 3], dtype=torch.int32).npu(), depth=4, on_value=2, off_value=-1)
    assert result.tolist() == [[-1, 2, -1, -1], [2, -1, -1, -1], [-1, -1, -1, 2]]


def test_scatters() -> None:
    indices, updates = torch.tensor([[1], [3]], dtype=torch.int32), normal(2, 4)
    expected = torch.zeros(5, 4)
    expected[1], expected[3] = updates
    close(torch_npu.npu_scatter_nd_update(torch.zeros(5, 4).npu(), indices.npu(), updates.npu()), expected)
    cache = torch.zeros(2, 6, 3).npu()
    torch_npu.scatter_update_(cache, torch.tensor([1, 4]).npu(), torch.ones(2, 1, 3).npu(), 1)
    assert cache.cpu().sum((0, 2)).tolist() == [0, 3, 0, 0, 3, 0]
    assert cache[0, 1, 0] == cache[1, 4, 0] == 1


def test_linear() -> None:
    against(torch_npu.npu_linear, lambda x, w, b: x @ w.t() + b, normal(4, 3), normal(2, 5, 3)[1], normal(5))
    against(lambda x, w: torch_npu.npu_linear(x, w), lambda x, w: x @ w.t(), normal(4, 3), normal(2, 5, 3)[1])


def test_batched_product() -> None:
    tensors = normal(3, 2, 4), normal(2, 3, 4, 5)[1]
    against(lambda a, b: torch_npu.npu_bmmV2(a, b, []), lambda a, b: torch.einsum("bij,bjk->bik", a, b), *tensors)


def test_convolutions() -> None:
    tensors = normal(2, 4, 6, 6), normal(2, 6, 2, 3, 3)[1], normal(6)
    settings = [2, 2], [1, 1], [1, 1], 2
    against(
        lambda *t: torch_npu.npu_convolution(*t, *settings),
        lambda *t: F.conv2d(*t, *settings),
        *tensors,
    )
    transposed = normal(2, 4, 5, 5), normal(2, 4, 3, 3, 3)[1], normal(6)
    against(
        lambda *t: torch_npu.npu_convolution_transpose(*t, [1, 1], [0, 0], [2, 2], [1, 1], 2),
        lambda *t: F.conv_transpose2d(*t, [2, 2], [1, 1], [0, 0], 2, [1, 1]),
        *transposed,
    )


@pytest.mark.parametrize("kind", [0, 1])
def test_grouped_product(kind: int) -> None:
    x, weights, sizes = normal(7, 3), normal(3, 3, 4), [2, 0, 5]
    groups = torch.tensor(sizes if kind else [2, 2, 7])
    (result,) = torch_npu.npu_grouped_matmul(
        [x.npu()], [weights.npu()], group_list=groups.npu(), split_item=3, group_type=0, group_list_type=kind
    )
    close(result, torch.cat([x[:2] @ weights[0], x[2:] @ weights[2]]))
    with pytest.raises(NotImplementedError, match="act_type"):
        torch_npu.npu_grouped_matmul(
            [x.npu()], [weights.npu()], group_list=groups.npu(), split_item=3, group_type=0, act_type=1
        )


def test_gating() -> None:
    logits = normal(5, 6)
    values, experts, rows = torch_npu.npu_moe_gating_top_k_softmax(logits.npu(), None, k=2)
    probabilities = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    for row in range(5):
        best = sorted(range(6), key=lambda expert, row=row: -probabilities[row, expert])[:2]
        assert experts[row].tolist() == best
        close(values[row], probabilities[row, best])
    assert rows.tolist() == [[i, i + 5] for i in range(5)]
    finished = torch.tensor([True, False, False, False, True]).npu()
    assert torch_npu.npu_moe_gating_top_k_softmax(logits.npu(), finished, k=2)[1][[0, 4]].tolist() == [[6, 6], [6, 6]]


def test_grouped_gating() -> None:
    logits, bias = normal(4, 8), normal(2, 8)[1]

    def formula(x: Tensor) -> Tensor:
        scores = 1 / (1 + torch.exp(-x))
        rows = []
        for row in range(4):
            biased = (scores[row] + bias).detach()
            groups = [biased[g * 2 : g * 2 + 2].sum() for g in range(4)]
            kept = sorted(range(4), key=lambda g, groups=groups: -groups[g])[:2]
            allowed = [e for e in range(8) if e // 2 in kept]
            best = sorted(allowed, key=lambda e, biased=biased: -biased[e])[:3]
            rows.append(scores[row, best] / (scores[row, best].sum() + 1e-20) * 2.5)
        return torch.stack(rows)

    def operator(x: Tensor) -> Tensor:
        return torch_npu.npu_moe_gating_top_k(
            x, 3, bias=bias.npu(), k_group=2, group_count=4, group_select_mode=1, norm_type=1, routed_scaling_factor=2.5
        )[0]

    against(operator, formula, logits)


def test_routing_there_and_back() -> None:
    tokens, experts, scales = normal(4, 3), torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]]).int(), normal(4, 2)
    rows = torch.arange(8).view(2, 4).t().contiguous().int()
    expanded, places, sorted_experts = torch_npu.npu_moe_init_routing(tokens.npu(), rows.npu(), experts.npu(), 4)
    assert sorted_experts.tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    for token in range(4):
        for choice in range(2):
            place = places[choice * 4 + token]
            assert sorted_experts[place] == experts[token, choice]
            close(expanded[place], tokens[token])
    assert torch_npu.npu_moe_compute_expert_tokens(sorted_experts, 3).tolist() == [2, 5, 8]
    skip, bias = normal(2, 4, 3)[1], normal(3, 3)
    result = torch_npu.npu_moe_finalize_routing(
        expanded * 2, skip.npu(), None, bias.npu(), scales.npu(), places, experts.npu()
    )
    expected = skip + sum(scales[:, k : k + 1] * (2 * tokens + bias[experts[:, k].long()]) for k in range(2))
    close(result, expected)


def test_token_permutation() -> None:
    experts, weights = torch.tensor([[2, 0], [1, 2], [0, 1]]), normal(3, 2)

    def operator(tokens: Tensor, probs: Tensor) -> Tensor:
        permuted, places = torch_npu.npu_moe_token_permute(tokens, experts.npu())
        assert permuted.shape == (6, 4)
        return torch_npu.npu_moe_token_unpermute(permuted * 3, places, probs)

    against(operator, lambda tokens, probs: 3 * tokens * probs.sum(1, keepdim=True), normal(3, 4), weights)
    permuted, _ = torch_npu.npu_moe_token_permute(normal(3, 4).npu(), experts.npu())
    close(permuted, normal(3, 4)[[0, 2, 1, 2, 0, 1]])


def boxes(count: int) -> Tensor:
    """Corners of boxes, as (count, 4)."""
    torch.manual_seed(count)
    corner = torch.rand(count, 2) * 5
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 4], 1)


def overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection and union of two boxes."""
    width = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    height = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height, areas - width * height


def test_overlaps() -> None:
    a, b = boxes(3), boxes(4)
    expected = torch.stack([torch.stack([(lambda i, u: i / u)(*overlap(x, y)) for x in a]) for y in b])
    close(torch_npu.npu_iou(a.npu(), b.npu()), expected)
    foreground = torch.stack([torch.stack([overlap(x, y)[0] / ((y[2] - y[0]) * (y[3] - y[1])) for x in a]) for y in b])
    close(torch_npu.npu_ptiou(a.npu(), b.npu(), 1), foreground)


def generalized(a: Tensor, b: Tensor) -> Tensor:
    intersection, union = overlap(a, b)
    around = (torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])) * (
        torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1])
    )
    return intersection / union - (around - union) / around


def distance_term(a: Tensor, b: Tensor) -> Tensor:
    apart = (a[0] + a[2] - b[0] - b[2]) ** 2 / 4 + (a[1] + a[3] - b[1] - b[3]) ** 2 / 4
    width = torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])
    height = torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1])
    return apart / (width**2 + height**2)


def test_generalized_overlap() -> None:
    against(
        lambda a, b: torch_npu.npu_giou(a, b),
        lambda a, b: torch.stack([generalized(x, y) for x, y in zip(a.t(), b.t(), strict=True)]).view(-1, 1),
        boxes(4).t().contiguous(),
        boxes(5)[:4].t().contiguous(),
    )
    close(
        torch_npu.npu_giou(boxes(3).t().contiguous().npu(), boxes(4).t().contiguous().npu(), is_cross=True),
        torch.stack([torch.stack([generalized(x, y) for y in boxes(4)]) for x in boxes(3)]),
    )


def test_distance_overlap() -> None:
    def formula(a: Tensor, b: Tensor) -> Tensor:
        pairs = zip(a.t(), b.t(), strict=True)
        return torch.stack([(lambda i, u: i / u)(*overlap(x, y)) - distance_term(x, y) for x, y in pairs]).view(1, -1)

    against(torch_npu.npu_diou, formula, boxes(4).t().contiguous(), boxes(5)[:4].t().contiguous())


def test_complete_overlap() -> None:
    def formula(a: Tensor, b: Tensor) -> Tensor:
        results = []
        for x, y in zip(a.t(), b.t(), strict=True):
            x, y = (torch.cat([box[:2] - box[2:] / 2, box[:2] + box[2:] / 2]) for box in (x, y))
            intersection, union = overlap(x, y)
            angle = torch.atan((y[2] - y[0]) / (y[3] - y[1])) - torch.atan((x[2] - x[0]) / (x[3] - x[1]))
            cost = 4 / math.pi**2 * angle**2
            weight = (cost / (1 - intersection / union + cost)).detach()
            results.append(intersection / union - distance_term(x, y) - weight * cost)
        return torch.stack(results).view(1, -1)

    against(
        lambda a, b: torch_npu.npu_ciou(a, b, True, False, 0, True),
        formula,
        boxes(4).t().contiguous(),
        boxes(5)[:4].t().contiguous(),
    )


def test_suppression() -> None:
    candidates = torch.tensor([[0, 0, 4, 4], [0, 0, 4, 3.5], [5, 5, 9, 9], [5, 5, 9, 8], [20, 0, 21, 1]]).float()
    scores = torch.tensor([0.5, 0.9, 0.8, 0.1, 0.7])
    selected, count = torch_npu.npu_nms_v4(
        candidates.npu(), scores.npu(), 4, torch.tensor(0.5).npu(), torch.tensor(0.3).npu()
    )
    assert count.item() == 3
    assert selected.tolist() == [1, 2, 4, 0]
    with_scores = torch.cat([candidates, scores[:, None]], 1)
    _, indices, mask = torch_npu.npu_nms_with_mask(with_scores.npu(), 0.5)
    assert indices.tolist() == [0, 1, 2, 3, 4]
    assert mask.tolist() == [1, 0, 1, 0, 1]


def test_box_encoding_there_and_back() -> None:
    anchors, truth = boxes(4), boxes(5)[:4]
    statistics = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    deltas = torch_npu.npu_bounding_box_encode(anchors.npu(), truth.npu(), *statistics)
    width = anchors[:, 2] - anchors[:, 0] + 1
    shift = (truth[:, 0] + truth[:, 2] - anchors[:, 0] - anchors[:, 2]) / 2 / width
    close(deltas[:, 0], (shift - 0.1) / 0.5, rtol=1e-3, atol=1e-3)
    decoded = torch_npu.npu_bounding_box_decode(anchors.npu(), deltas, *statistics, (100, 100), 0.001)
    close(decoded, truth, rtol=1e-2, atol=1e-2)  # they are float16 on the way


def test_box_decoding() -> None:
    rois = torch.tensor([[0.0, 0, 9, 9], [10, 20, 19, 39], [10, 20, 19, 39]])
    growth = torch.tensor([0.0, math.log(2), math.log(1000)])
    deltas = torch.stack([torch.tensor([0.1, 0.2, 0.0]), torch.tensor([-0.2, 0.0, 0.0]), growth, growth.flip(0)], 1)

    def decode(*settings: object) -> torch.Tensor:
        return torch_npu.npu_bounding_box_decode(rois.npu(), deltas.npu(), *settings)

    # The centres move by parts of the sizes 10 x 10 and 10 x 20; sizes grow to at most four times as much.
    whole = [[1, 0, 10, 22], [7, 10, 26, 49], [0, 20, 34, 39.0]]  # beginning at -17 and -5 without the edge
    close(decode(0, 0, 0, 0, 1, 1, 1, 1, (1000, 1000), 0.25), torch.tensor(whole), atol=1e-4)
    inside = [[1, 0, 10, 22], [7, 10, 11, 29], [0, 20, 11, 29.0]]
    close(decode(0, 0, 0, 0, 1, 1, 1, 1, (30, 12), 0.25), torch.tensor(inside), atol=1e-4)
    moved = decode(0.1, 0.2, 0, 0, 2, 1, 1, 1, (1000, 1000), 0.25)[1]  # by 0.2 * 2 + 0.1 to the right, 0.2 down
    close(moved, torch.tensor([10.0, 14, 29, 53]), atol=1e-4)


def test_region_pooling() -> None:
    features = torch.arange(1.0, 37.0).view(1, 1, 6, 6)
    rois = torch.tensor([[0, -2.0, -2.0, 22.0, 22.0]])
    result = torch_npu.npu_roi_align(features.npu(), rois.npu(), 0.25, 3, 3, 2, 0)
    # Each cell is the mean of four pixels.
    close(result, F.avg_pool2d(features, 2))
    gradient = torch_npu.npu_roi_alignbk(torch.ones(1, 1, 3, 3).npu(), rois.npu(), [1, 1, 6, 6], 3, 3, 0.25, 2, 0)
    close(gradient, torch.full((1, 1, 6, 6), 0.25))


def test_adam_of_bert() -> None:
    gradient = normal(6)
    tensors = [normal(2, 6)[1], torch.zeros(6), torch.zeros(6)]
    on_npu = [tensor.npu() for tensor in tensors]
    torch_npu.npu_bert_apply_adam(0.1, 0.9, 0.99, 1e-6, gradient.npu(), -1.0, 0.0, 0.01, out=tuple(on_npu))
    m, v = 0.1 * gradient, 0.01 * gradient**2
    close(on_npu[1], m)
    close(on_npu[2], v)
    close(on_npu[0], tensors[0] - 0.1 * (m / (torch.sqrt(v) + 1e-6) + 0.01 * tensors[0]))


def test_adam_steps() -> None:
    parameter = normal(6).requires_grad_()
    optimizer = torch.optim.Adam([parameter], 0.01)
    on_npu = [normal(6).npu(), torch.zeros(6).npu(), torch.zeros(6).npu()]
    for step in range(1, 4):
        gradient = normal(4, 6)[step]
        parameter.grad = gradient
        optimizer.step()
        torch_npu.npu_apply_adam(
            0.9**step, 0.999**step, 0.01, 0.9, 0.999, 1e-8, gradient.npu(), False, False, out=tuple(on_npu)
        )
    close(on_npu[0], parameter.detach(), rtol=1e-4, atol=1e-5)


def test_overflow_flags_are_clear() -> None:
    flags = torch_npu.npu_get_float_status(torch_npu.npu_alloc_float_status(torch.empty(0).npu()))
    assert flags.tolist() == [0.0] * 8
