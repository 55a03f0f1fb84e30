"""Boxes: overlaps, suppression, encoding, and grids of anchors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .gradients import gradients
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


@reference("npu_batch_nms")
def npu_batch_nms(
    input: Tensor,
    scores: Tensor,
    score_threshold: float,
    iou_threshold: float,
    max_size_per_class: int,
    max_total_size: int,
    change_coordinate_frame: bool = False,
    transpose_box: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Suppression per class of boxes (b, n, 1 or classes, 4), of which the best are kept in order, then zeros.

    Results: (b, max_total_size, 4) boxes, their scores and classes, and how many there are in each image.
    """
    if change_coordinate_frame or transpose_box:
        raise NotImplementedError(
            "npu_batch_nms: the emulated NPU has no reference for change_coordinate_frame and transpose_box"
        )
    images = [
        _best_of_image(boxes, values, score_threshold, iou_threshold, max_size_per_class, max_total_size)
        for boxes, values in zip(input, scores, strict=True)
    ]
    padded = input.new_zeros(len(images), max_total_size, 6)
    for rows, found in zip(padded, images, strict=True):
        rows[: len(found)] = found
    counts = torch.tensor([len(found) for found in images], dtype=torch.int32)
    return padded[..., :4].clone(), padded[..., 4].clone(), padded[..., 5].clone(), counts


def _best_of_image(
    boxes: Tensor, scores: Tensor, score_threshold: float, iou_threshold: float, per_class: int, total: int
) -> Tensor:
    """(k, 6) boxes, scores and classes of one image, best first."""
    found = []
    for label, values in enumerate(scores.unbind(1)):
        candidates = boxes[:, label if boxes.shape[1] > 1 else 0]
        order = values.argsort(descending=True, stable=True)
        order = order[values[order] > score_threshold]
        kept = _suppress(candidates, order, iou_threshold, per_class)
        labels = torch.full((len(kept), 1), label, dtype=boxes.dtype)
        found.append(torch.cat([candidates[kept], values[kept, None], labels], 1))
    everything = torch.cat(found)
    return everything[everything[:, 4].argsort(descending=True, stable=True)[:total]]


@reference("npu_bounding_box_encode")
def npu_bounding_box_encode(anchor_box: Tensor, ground_truth_box: Tensor, *statistics: float) -> Tensor:
    means, deviations = torch.tensor(statistics[:4]), torch.tensor(statistics[4:])
    center, size = _center_and_size(anchor_box)
    other_center, other_size = _center_and_size(ground_truth_box)
    deltas = torch.cat([(other_center - center) / size, torch.log(other_size / size)], 1)
    return ((deltas - means) / deviations).half().to(anchor_box.dtype)  # an NPU rounds here, but not in decoding


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
    return boxes.to(rois.dtype)


def _center_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    low, high = boxes.float().split(2, 1)
    return (low + high) / 2, high - low + 1


@reference("npu_yolo_boxes_encode")
def npu_yolo_boxes_encode(input: Tensor, gt_bboxes: Tensor, stride: Tensor, performance_mode: bool = False) -> Tensor:
    """(n, 4) centres of the true boxes within the cells of their anchors, and logarithms of the ratios of sizes."""
    smallest = 1e-6
    (low, high), (true_low, true_high) = input.float().split(2, 1), gt_bboxes.float().split(2, 1)
    apart = (true_low + true_high - low - high) / 2
    centers = (apart / stride[:, None] + 0.5).clamp(smallest, 1 - smallest)
    sizes = ((true_high - true_low) / (high - low)).clamp(min=smallest).log()
    return torch.cat([centers, sizes], 1).to(input.dtype)


@reference("npu_anchor_response_flags")
def npu_anchor_response_flags(
    input: Tensor, featmap_size: list[int], stride: list[int], num_base_anchors: int
) -> Tensor:
    """(height * width * anchors,) ones for the cells in which boxes (n, 4) have their centres."""
    height, width = featmap_size
    x = ((input[:, 0] + input[:, 2]) * 0.5 / stride[0]).floor().long()
    y = ((input[:, 1] + input[:, 3]) * 0.5 / stride[1]).floor().long()
    cells = torch.zeros(height * width, dtype=torch.uint8)
    cells[y * width + x] = 1
    return cells.repeat_interleave(num_base_anchors)
