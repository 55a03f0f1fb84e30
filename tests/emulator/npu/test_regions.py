"""Suppression per class, encodings for grids, pooling of regions and deformable convolution."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import torch_npu
from comparing import against, close
from torch import Tensor


def normal(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape)


def deformable(x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, **options: int) -> Tensor:
    size, strides, padding = [weight.shape[2], weight.shape[3]], [1, 1, 2, 1], [1, 1, 2, 2]
    return torch.ops.npu.npu_deformable_conv2d(x, weight, offset, bias, size, strides, padding, **options)


def test_deformable_convolution_without_offsets_is_a_convolution() -> None:
    x, weight, bias = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
    plain = F.conv2d(x, weight, bias, (2, 1), (1, 2), groups=2)
    offset = torch.cat([torch.zeros(2, 2 * 2 * 9, *plain.shape[2:]), torch.ones(2, 2 * 9, *plain.shape[2:])], 1)
    result, samples = deformable(x.npu(), weight.npu(), offset.npu(), bias.npu(), groups=2, deformable_groups=2)
    close(result, plain)
    assert samples.shape == (2, 4, plain.shape[2] * 3, plain.shape[3] * 3)


def test_deformable_convolution_moves_and_weighs_samples() -> None:
    x, weight = normal(1, 2, 8, 8), normal(3, 2, 3, 3)

    def moved(x: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
        # Everything is half a pixel further to the right and one down: x(r + 1, c + 0.5), weighed by the factor.
        wide = F.pad(x, (3, 4, 3, 4))
        half = (wide[..., :-1] + wide[..., 1:]) / 2
        return F.conv2d(half[..., 3:13, 1:13], weight * factor, None, (2, 1))

    def on_npu(x: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
        shift = torch.ones(1, 9, 4, 10).npu()
        offset = torch.cat([shift * 0.5, shift, shift * factor], 1)
        return deformable(x, weight, offset, None)[0]

    against(on_npu, moved, x, weight, torch.tensor([0.25]), gradients=False)
    x, weight, factor = x.npu(), weight.npu(), torch.tensor([0.25]).npu()
    offset = torch.cat([torch.full((1, 9, 4, 10), value) for value in (0.5, 1.0, 0.25)], 1).npu()
    upstream = normal(1, 3, 4, 10).npu()
    settings = ([3, 3], [1, 1, 2, 1], [1, 1, 2, 2])
    ours = torch_npu.npu_deformable_conv2dbk(x, upstream, x, weight, offset, *settings)
    leaves = [tensor.cpu().requires_grad_() for tensor in (x, weight, factor)]
    theirs = torch.autograd.grad(moved(*leaves), leaves, upstream.cpu())
    close(ours[0], theirs[0], atol=1e-4)
    close(ours[1], theirs[1], atol=1e-4)
    close(ours[2][:, 18:].sum().reshape(1), theirs[2], rtol=1e-4, atol=1e-3)
    close(ours[3], upstream.cpu().sum((0, 2, 3)), atol=1e-4)


def test_position_sensitive_pooling() -> None:
    groups, outputs, scale = 2, 3, 0.5
    features = normal(2, outputs * groups**2, 8, 8)
    rois = torch.tensor([[[0.0, 2, 3, 12, 9]], [[1.0, 0, 0, 15, 15]]]).transpose(1, 2)

    def pooled(features: Tensor) -> Tensor:
        result = torch.zeros(2, outputs, groups, groups)
        for n, (batch, x1, y1, x2, y2) in enumerate(rois[:, :, 0].tolist()):
            left, top, right, bottom = x1 * scale, y1 * scale, (x2 + 1) * scale, (y2 + 1) * scale
            height, width = (bottom - top) / groups, (right - left) / groups
            for channel in range(outputs):
                for row in range(groups):
                    for column in range(groups):
                        rows = slice(math.floor(top + row * height), min(math.ceil(top + (row + 1) * height), 8))
                        columns = slice(
                            math.floor(left + column * width), min(math.ceil(left + (column + 1) * width), 8)
                        )
                        source = features[int(batch), (channel * groups + row) * groups + column]
                        result[n, channel, row, column] = source[rows, columns].mean()
        return result

    against(lambda x: torch_npu.npu_ps_roi_pooling(x, rois.npu(), scale, groups, outputs), pooled, features)


def test_suppression_per_class() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [0, 0, 1, 1]]).half()
    scores = torch.tensor([[0.9, 0.1], [0.8, 0.7], [0.5, 0.6], [0.0, 0.0]]).half()
    found, values, classes, count = torch_npu.npu_batch_nms(
        boxes.view(1, 4, 1, 4).npu(), scores[None].npu(), 0.05, 0.5, 10, 6
    )
    assert count.tolist() == [4]
    assert classes[0].tolist() == [0, 1, 1, 0, 0, 0]
    close(values[0], torch.tensor([0.9, 0.7, 0.6, 0.5, 0, 0]).half())
    close(found[0, :4], boxes[[0, 1, 2, 2]])
    _, values, _, count = torch_npu.npu_batch_nms(boxes.view(1, 4, 1, 4).npu(), scores[None].npu(), 0.05, 0.5, 1, 2)
    assert count.tolist() == [2]


def test_encodings_for_grids() -> None:
    anchors = torch.tensor([[0.0, 0, 8, 8], [8, 8, 24, 16]])
    truth = torch.tensor([[2.0, 0, 10, 16], [0, 0, 16, 8]])
    encoded = torch_npu.npu_yolo_boxes_encode(anchors.npu(), truth.npu(), torch.tensor([8, 8]).int().npu())
    close(encoded[0], torch.tensor([2 / 8 + 0.5, 1 - 1e-6, 0.0, math.log(2)]))
    close(encoded[1], torch.tensor([1e-6, 1e-6, 0.0, 0.0]))
    flags = torch_npu.npu_anchor_response_flags(truth.npu(), (2, 3), (8, 8), 2)
    # Their centres are (6, 8) and (8, 4), in the cells (row 1, column 0) and (row 0, column 1).
    assert flags.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]


def test_extreme_values_have_int32_indices() -> None:
    for operator, formula in ((torch_npu.npu_max, torch.max), (torch_npu.npu_min, torch.min)):
        for keep in (False, True):
            against(
                lambda x, operator=operator, keep=keep: operator(x, 1, keep)[0],
                lambda x, formula=formula, keep=keep: formula(x, 1, keep)[0],
                normal(3, 4, 2),
            )
        _, indices = operator(normal(3, 4).npu(), 1)
        assert indices.dtype == torch.int32
        assert indices.tolist() == formula(normal(3, 4), 1).indices.tolist()
