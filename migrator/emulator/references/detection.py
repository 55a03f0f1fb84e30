"""Boxes: overlaps, suppression, encoding, and pooling of regions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .gradients import gradient, gradients
from .registry import reference

_EPSILON = 1e-9


def _corners(boxes: Tensor, centered: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x1, y1, x2, y2 of boxes given along the first dimension as corners or as centre and size."""
    a, b, c, d = boxes.float()
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if centered else (a, b, c, d)


class _Pairs:
    """Boxes of shape (4, n) against (4, m): each with each as (n, m), or in pairs as (n,)."""

    def __init__(self, boxes: Tensor, others: Tensor, centered: bool, cross: bool, foreground: bool) -> None:
        first, second = _corners(boxes, centered), _corners(others, centered)
        if cross:
            first = tuple(value.unsqueeze(1) for value in first)
        self.first, self.second = first, second
        (x1, y1, x2, y2), (u1, v1, u2, v2) = first, second
        width = (torch.minimum(x2, u2) - torch.maximum(x1, u1)).clamp(min=0)
        height = (torch.minimum(y2, v2) - torch.maximum(y1, v1)).clamp(min=0)
        self.intersection = width * height
        self.area = (x2 - x1) * (y2 - y1)
        self.other_area = (u2 - u1) * (v2 - v1)
        self.union = self.area + self.other_area - self.intersection
        denominator = self.other_area if foreground else self.union
        self.overlap = self.intersection / (denominator + _EPSILON)
        self.width = torch.maximum(x2, u2) - torch.minimum(x1, u1)
        self.height = torch.maximum(y2, v2) - torch.minimum(y1, v1)

    def distance(self) -> Tensor:
        """The squared distance of the centres over the squared diagonal of the box around both."""
        (x1, y1, x2, y2), (u1, v1, u2, v2) = self.first, self.second
        apart = ((u1 + u2 - x1 - x2) ** 2 + (v1 + v2 - y1 - y2) ** 2) / 4
        return apart / (self.width**2 + self.height**2 + _EPSILON)

    def shape_term(self) -> tuple[Tensor, Tensor]:
        """The difference of the angles of the diagonals, and how much differing proportions cost."""
        (x1, y1, x2, y2), (u1, v1, u2, v2) = self.first, self.second
        angle = torch.atan((u2 - u1) / (v2 - v1 + _EPSILON)) - torch.atan((x2 - x1) / (y2 - y1 + _EPSILON))
        cost = 4 / math.pi**2 * angle**2
        with torch.no_grad():
            weight = cost / (1 - self.overlap + cost + _EPSILON)
        return angle, weight * cost


@reference("npu_iou", "npu_ptiou")
def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    """(m, n) overlaps of n boxes with m true ones; mode 1 is over the area of the true box."""
    pairs = _Pairs(gtboxes.t(), bboxes.t(), centered=False, cross=True, foreground=False)
    overlap = pairs.intersection / (pairs.area + _EPSILON) if mode == 1 else pairs.overlap
    return overlap.to(bboxes.dtype)


@reference("npu_giou")
def npu_giou(input: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    pairs = _Pairs(input, gtboxes, trans, is_cross, mode == 1)
    around = pairs.width * pairs.height
    result = pairs.overlap - (around - pairs.union) / (around + _EPSILON)
    return (result if is_cross else result.unsqueeze(1)).to(input.dtype)


@reference("npu_giou_backward")
def npu_giou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor | None, ...]:
    def forward(boxes: Tensor, others: Tensor) -> Tensor:
        return npu_giou(boxes, others, trans, is_cross, mode)

    return gradients(forward, [bboxes, gtboxes], [_like_column(grad, is_cross)])


def _like_column(grad: Tensor, is_cross: bool) -> Tensor:
    return grad if is_cross else grad.reshape(-1, 1)


@reference("npu_diou")
def npu_diou(input: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    pairs = _Pairs(input, gtboxes, trans, is_cross, mode == 1)
    result = pairs.overlap - pairs.distance()
    return (result if is_cross else result.unsqueeze(0)).to(input.dtype)


@reference("npu_diou_backward")
def npu_diou_backward(
    grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0
) -> tuple[Tensor | None, ...]:
    def forward(boxes: Tensor, others: Tensor) -> Tensor:
        return npu_diou(boxes, others, trans, is_cross, mode)

    return gradients(forward, [bboxes, gtboxes], [grad])


@reference("_npu_ciou")
def npu_ciou(
    input: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> tuple[Tensor, Tensor]:
    pairs = _Pairs(input, gtboxes, trans, is_cross, mode == 1)
    angle, cost = pairs.shape_term()
    result = pairs.overlap - pairs.distance() - cost
    if not is_cross:
        result, angle = result.unsqueeze(0), angle.unsqueeze(0)
    return result.to(input.dtype), angle.to(input.dtype)


@reference("npu_ciou_backward")
def npu_ciou_backward(
    grad: Tensor,
    bboxes: Tensor,
    gtboxes: Tensor,
    atan_sub: Tensor | None,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
) -> tuple[Tensor | None, ...]:
    def forward(boxes: Tensor, others: Tensor) -> Tensor:
        return npu_ciou(boxes, others, trans, is_cross, mode)[0]

    return gradients(forward, [bboxes, gtboxes], [grad])


def _suppress(boxes: Tensor, order: Tensor, threshold: float, limit: int) -> list[int]:
    """The boxes (n, 4), visited in this order, that overlap no earlier kept one by more than the threshold."""
    overlaps = npu_iou(boxes.float(), boxes.float())
    kept: list[int] = []
    for index in order.tolist():
        if len(kept) == limit:
            break
        if not kept or overlaps[index, kept].max() <= threshold:
            kept.append(index)
    return kept


@reference("npu_nms_v4")
def npu_nms_v4(
    input: Tensor,
    scores: Tensor,
    max_output_size: float,
    iou_threshold: Tensor,
    scores_threshold: Tensor,
    pad_to_max_output_size: bool = False,
) -> tuple[Tensor, Tensor]:
    order = scores.argsort(descending=True, stable=True)
    order = order[scores[order] > scores_threshold]
    kept = _suppress(input, order, float(iou_threshold), int(max_output_size))
    selected = torch.zeros(int(max_output_size), dtype=torch.int32)
    selected[: len(kept)] = torch.tensor(kept, dtype=torch.int32)
    return selected, torch.tensor(len(kept), dtype=torch.int32)


@reference("npu_nms_with_mask")
def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    count = input.shape[0]
    kept = _suppress(input[:, :4], torch.arange(count), float(iou_threshold), count)
    mask = torch.zeros(count, dtype=torch.uint8)
    mask[kept] = 1
    return input.clone(), torch.arange(count, dtype=torch.int32), mask


# The wheel hands boxes to these two as float16.
@reference("npu_bounding_box_encode")
def npu_bounding_box_encode(anchor_box: Tensor, ground_truth_box: Tensor, *statistics: float) -> Tensor:
    means, deviations = torch.tensor(statistics[:4]), torch.tensor(statistics[4:])
    center, size = _center_and_size(anchor_box)
    other_center, other_size = _center_and_size(ground_truth_box)
    deltas = torch.cat([(other_center - center) / size, torch.log(other_size / size)], 1)
    return ((deltas - means) / deviations).half().to(anchor_box.dtype)


@reference("npu_bounding_box_decode")
def npu_bounding_box_decode(rois: Tensor, deltas: Tensor, *settings: Any) -> Tensor:
    *statistics, max_shape, ratio = settings
    means, deviations = torch.tensor(statistics[:4]), torch.tensor(statistics[4:])
    shift, growth = (deltas.float() * deviations + means).split(2, 1)
    limit = abs(math.log(float(ratio)))
    center, size = _center_and_size(rois)
    center, size = center + shift * size, size * growth.clamp(-limit, limit).exp()
    boxes = torch.cat([center - (size - 1) / 2, center + (size - 1) / 2], 1)
    if max_shape:
        height, width = (list(max_shape) * 2)[:2]
        edge = torch.tensor([width - 1, height - 1] * 2, dtype=boxes.dtype)
        boxes = torch.minimum(boxes.clamp(min=0), edge)
    return boxes.half().to(rois.dtype)


def _center_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    low, high = boxes.float().split(2, 1)
    return (low + high) / 2, high - low + 1


@reference("npu_roi_align")
def npu_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sample_num: int,
    roi_end_mode: int,
) -> Tensor:
    """Means of sample_num squared bilinear samples per cell.

    roi_end_mode 0: the region ends at its last corner; 1: one further; 2 and 3: moved by half a pixel.
    """
    if roi_end_mode not in (0, 1, 2, 3):
        raise NotImplementedError(f"npu_roi_align: the emulated NPU has no reference for roi_end_mode {roi_end_mode}")
    pooled = []
    for batch, x1, y1, x2, y2 in rois.tolist():
        offset = 0.5 if roi_end_mode >= 2 else 0.0
        further = 1.0 if roi_end_mode == 1 else 0.0
        left, top = x1 * spatial_scale - offset, y1 * spatial_scale - offset
        width = (x2 + further) * spatial_scale - offset - left
        height = (y2 + further) * spatial_scale - offset - top
        if roi_end_mode < 2:
            width, height = max(width, 1.0), max(height, 1.0)
        rows = _samples(top, height, pooled_height, sample_num)
        columns = _samples(left, width, pooled_width, sample_num)
        values = _bilinear(input[int(batch)].float(), rows.flatten(), columns.flatten())
        grid = values.unflatten(-1, columns.shape).unflatten(1, rows.shape)
        pooled.append(grid.mean((2, 4)))
    return torch.stack(pooled).to(input.dtype)


@reference("npu_roi_alignbk")
def npu_roi_alignbk(
    input: Tensor,
    rois: Tensor,
    xdiff_shape: list[int],
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    sample_num: int,
    roi_end_mode: int | None = None,
) -> Tensor:
    mode = 1 if roi_end_mode is None else roi_end_mode

    def forward(features: Tensor) -> Tensor:
        return npu_roi_align(features, rois, spatial_scale, pooled_height, pooled_width, sample_num, mode)

    return gradient(forward, input.new_zeros(xdiff_shape), input)


def _samples(start: float, length: float, cells: int, count: int) -> Tensor:
    """(cells, samples) positions along one side."""
    count = count or max(math.ceil(length / cells), 1)
    return start + (torch.arange(cells * count).view(cells, count) + 0.5) * (length / (cells * count))


def _bilinear(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(channels, rows, columns) samples of an image; those more than a pixel outside are zeros."""
    y0, y1, wy, inside_y = _neighbours(rows, image.shape[1])
    x0, x1, wx, inside_x = _neighbours(columns, image.shape[2])
    wy = wy[:, None]
    top = image[:, y0][:, :, x0] * (1 - wx) + image[:, y0][:, :, x1] * wx
    bottom = image[:, y1][:, :, x0] * (1 - wx) + image[:, y1][:, :, x1] * wx
    return (top * (1 - wy) + bottom * wy) * (inside_y[:, None] & inside_x)


def _neighbours(positions: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inside = (positions >= -1) & (positions <= size)
    clamped = positions.clamp(0, size - 1)
    low = clamped.floor().long()
    return low, (low + 1).clamp(max=size - 1), clamped - low, inside
