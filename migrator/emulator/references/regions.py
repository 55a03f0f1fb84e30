"""Samples of feature maps: pooling of regions, and deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .gradients import gradient, gradients
from .registry import reference


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


@reference("npu_ps_roi_pooling")
def npu_ps_roi_pooling(input: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    """(b * n, output_dim, g, g) means over the g x g cells of regions (b, 5, n), each from its own channels."""
    batch, x1, y1, x2, y2 = rois.transpose(1, 2).reshape(-1, 5).float().unbind(1)
    height, width = input.shape[2:]
    top, bottom = _cell_edges(y1, y2, spatial_scale, group_size, height)
    left, right = _cell_edges(x1, x2, spatial_scale, group_size, width)
    # Sums over rectangles are differences of sums from the origin.
    sums = F.pad(input.double().cumsum(2).cumsum(3), (1, 0, 1, 0))
    cells = torch.arange(group_size)
    channels = (torch.arange(output_dim)[:, None, None] * group_size + cells[:, None]) * group_size + cells
    image = batch.long()[:, None, None, None]

    def corner(rows: Tensor, columns: Tensor) -> Tensor:
        return sums[image, channels, rows[:, None, :, None], columns[:, None, None, :]]

    totals = corner(bottom, right) - corner(top, right) - corner(bottom, left) + corner(top, left)
    area = (bottom - top)[:, None, :, None] * (right - left)[:, None, None, :]
    return (totals / area.clamp(min=1)).to(input.dtype)


def _cell_edges(start: Tensor, end: Tensor, scale: float, cells: int, size: int) -> tuple[Tensor, Tensor]:
    """(n, cells) first pixels of the cells along one side, and those after the last."""
    start, end = start.round() * scale, (end + 1).round() * scale
    step = ((end - start).clamp(min=0.1) / cells)[:, None]
    index = torch.arange(cells)
    first = (index * step + start[:, None]).floor().clamp(0, size).long()
    after = ((index + 1) * step + start[:, None]).ceil().clamp(0, size).long()
    return first, torch.maximum(first, after)


@reference("npu_ps_roi_pooling_backward")
def npu_ps_roi_pooling_backward(
    output_grad: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int, input_size: list[int]
) -> Tensor:
    count, channels = rois.shape[0], output_dim * group_size**2

    def forward(features: Tensor) -> Tensor:
        return npu_ps_roi_pooling(features, rois, spatial_scale, group_size, output_dim)

    return gradient(forward, output_grad.new_zeros(count, channels, *input_size[-2:]), output_grad)


@reference("npu_deformable_conv2d")
def npu_deformable_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> tuple[Tensor, Tensor]:
    """The convolution, and the samples (b, channels, out_height * kernel_height, out_width * kernel_width) of it.

    offset: (b, 3 * deformable_groups * kernel_height * kernel_width, out_height, out_width) shifts of all
    samples along x, then along y, then their weights; without the weights when not modulated.
    """
    kernel = (weight.shape[2], weight.shape[3])
    parts = offset.float().unflatten(1, (-1, deformable_groups, *kernel)).unbind(1)
    columns = _positions(kernel[1], stride[3], padding[2], dilation[3], offset.shape[3])[:, None, :] + parts[0]
    rows = _positions(kernel[0], stride[2], padding[0], dilation[2], offset.shape[2])[:, None, :, None] + parts[1]
    height, width = input.shape[2:]
    # Where grid_sample's range from -1 to 1 ends is half a pixel outside of the first and last pixels.
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    in_groups = input.float().unflatten(1, (deformable_groups, -1)).flatten(0, 1)
    samples = F.grid_sample(in_groups, _in_blocks(grid), padding_mode="zeros", align_corners=False)
    samples = samples.unflatten(0, (-1, deformable_groups))
    if modulated:
        samples = samples * _in_blocks(parts[2].unsqueeze(-1)).unflatten(0, (-1, deformable_groups)).movedim(-1, 2)
    samples = samples.flatten(1, 2)
    result = F.conv2d(samples, weight.float(), None if bias is None else bias.float(), kernel, groups=groups)
    return result, samples


def _positions(kernel: int, stride: int, padding: int, dilation: int, size: int) -> Tensor:
    """(kernel, size) places of a convolution's samples along one side."""
    return torch.arange(kernel)[:, None] * dilation + torch.arange(size) * stride - padding


def _in_blocks(values: Tensor) -> Tensor:
    """(b, groups, kernel_height, kernel_width, height, width, n) as (b * groups, height blocks, width blocks, n)."""
    return values.permute(0, 1, 4, 2, 5, 3, 6).flatten(4, 5).flatten(2, 3).flatten(0, 1)


@reference("npu_deformable_conv2dbk")
def npu_deformable_conv2dbk(
    input: Tensor,
    grad_output: Tensor,
    offset_out: Tensor,
    weight: Tensor,
    offset: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> tuple[Tensor | None, ...]:
    """The gradients of the input, the weight, the offset and the bias."""
    settings = (kernel_size, stride, padding, dilation, groups, deformable_groups, modulated)

    def forward(input: Tensor, weight: Tensor, offset: Tensor, bias: Tensor) -> Tensor:
        return npu_deformable_conv2d(input, weight, offset, bias, *settings)[0]

    return gradients(forward, [input, weight, offset, weight.new_zeros(weight.shape[0])], [grad_output])
