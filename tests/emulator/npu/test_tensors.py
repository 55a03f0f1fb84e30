"""Indexing, views, types and errors of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparing import on_both
from torch import Tensor, nn


def test_indexing_and_gradients() -> None:
    def index(device: str) -> Any:
        torch.manual_seed(2)
        a = torch.randn(5, 6).to(device).requires_grad_()
        i = torch.tensor([[0, 1], [2, 3], [1, 1], [0, 0], [3, 2]]).to(device)
        gathered = a.gather(1, i)
        changed = a.clone()
        changed[0, :] = 7
        changed[:, 1] += 1
        changed[changed > 1] = 0
        added = torch.zeros(5, 6, device=device)
        added.index_add_(0, i[:, 0], a.detach())
        added.masked_fill_(added > 1, 0)
        results = [
            gathered,
            torch.zeros(5, 6, device=device).scatter_add(1, i, gathered),
            a[i[:, 0]],
            a[a > 0],
            changed,
            torch.where(a > 0, a, torch.zeros_like(a)),
            torch.topk(a, 2)[0],
            a.sort()[0],
            a.cumsum(0),
            a.index_select(0, i[:, 0]),
        ]
        sum(result.pow(2).sum() for result in results).backward()
        integers = [torch.nonzero(a > 0), torch.unique(i), torch.topk(a, 2)[1], a.argmax(1), F.one_hot(i[:, 0], 5)]
        return results, integers, added, a.grad

    on_both(index)


def test_views_share_memory() -> None:
    def views(device: str) -> Any:
        a = torch.arange(24.0).to(device)
        b = a.view(2, 3, 4)
        b[:, 1].mul_(2)
        permuted = b.permute(2, 0, 1).contiguous()
        permuted[0] = 1
        b[0].t().add_(1)
        joined = torch.cat([b, b], 0)
        einsum = torch.einsum("abc,dbc->ad", b, b)
        numbers = [b.std(), b.var(1), b.norm(), torch.linalg.norm(b[0]), b.half(), b.int(), b.bool()]
        return a, b, permuted, joined, torch.chunk(joined, 2)[1], einsum, b.expand(2, 2, 3, 4).sum(), numbers

    on_both(views)


@pytest.mark.parametrize(("name", "axes"), [("transpose_", (0, 1)), ("t_", ()), ("swapaxes_", (0, 1))])
def test_in_place_transposition(name: str, axes: tuple[int, ...]) -> None:
    tensor = torch.arange(6.0).view(2, 3).npu()
    getattr(tensor, name)(*axes)
    assert tensor.stride() == (1, 3)
    assert torch.equal(tensor.cpu(), torch.arange(6.0).view(2, 3).t())


def test_in_place_squeeze_and_unsqueeze() -> None:
    tensor = torch.arange(6.0, device="npu").view(1, 2, 3)
    assert tensor.squeeze_(0).unsqueeze_(-1).shape == (2, 3, 1)
    assert torch.equal(tensor.flatten().cpu(), torch.arange(6.0))


def test_out_argument_is_resized() -> None:
    out = torch.empty(0, device="npu")
    assert torch.add(torch.ones(3, device="npu"), 1, out=out) is out
    assert torch.equal(out.cpu(), torch.full((3,), 2.0))


def test_out_argument_grows() -> None:
    out = torch.zeros(2, device="npu")
    with pytest.warns(UserWarning, match="resized"):
        assert torch.cat([torch.ones(3, device="npu"), torch.zeros(3, device="npu")], out=out) is out
    assert out.tolist() == [1, 1, 1, 0, 0, 0]


def test_out_argument_keeps_its_strides() -> None:
    out = torch.zeros(3, 2, device="npu").t()
    torch.mm(torch.eye(2, device="npu"), torch.arange(6.0, device="npu").view(2, 3), out=out)
    assert out.stride() == (1, 2)
    assert torch.equal(out.cpu(), torch.arange(6.0).view(2, 3))


def test_fourier_transforms() -> None:
    def transforms(device: str) -> Any:
        signal = torch.arange(16.0).to(device).requires_grad_()
        spectrum = torch.fft.rfft(signal)
        spectrum.abs().sum().backward()
        stft = torch.stft(
            signal.detach().repeat(8), 16, 4, window=torch.hann_window(16).to(device), return_complex=True
        )
        return spectrum, torch.fft.irfft(spectrum), signal.grad, stft, spectrum.conj() * 2, spectrum.imag + 1

    on_both(transforms, rtol=1e-4, atol=1e-4)


def test_empty_and_scalar_tensors() -> None:
    def awkward(device: str) -> Any:
        empty, scalar = torch.ones(0, 3, device=device), torch.tensor(2.0, device=device)
        return (
            empty.sum(),
            empty @ torch.ones(3, 2, device=device),
            scalar + torch.tensor(1.0),
            scalar * 3,
            empty.sum(0),
        )

    on_both(awkward)


def test_scalar_of_the_host_may_join() -> None:
    assert (torch.ones(2, device="npu") * torch.tensor(3.0)).cpu().tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "operation",
    [
        lambda npu: npu + torch.ones(2, 2),
        lambda npu: torch.cat([npu, torch.ones(2, 2)]),
        lambda npu: torch.matmul(npu, torch.ones(2, 2)),
        lambda npu: torch.where(npu > 0, torch.ones(2, 2), torch.ones(2, 2)),
        lambda npu: F.linear(torch.ones(2, 2), npu),
        lambda npu: F.embedding(torch.tensor([0]), npu),
        lambda npu: F.cross_entropy(npu, torch.tensor([0, 1])),
        lambda npu: nn.Conv2d(1, 1, 1).npu()(torch.ones(1, 1, 2, 2)),
        lambda npu: npu + npu.to("npu:1"),
    ],
)
def test_tensors_on_two_devices(operation: Callable[[Tensor], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"same device.*npu:0"):
        operation(torch.ones(2, 2, device="npu"))


def test_indices_of_the_host() -> None:
    tensor, index = torch.arange(4.0, device="npu"), torch.tensor([1, 3])
    assert tensor[index].tolist() == [1.0, 3.0]
    tensor[index] = torch.ones(2, device="npu")
    assert tensor.tolist() == [0.0, 1.0, 2.0, 1.0]
    with pytest.raises(RuntimeError, match="same device"):
        torch.index_put_(tensor, (index,), torch.ones(2))


def test_other_wrong_devices() -> None:
    tensor = torch.ones(2, device="npu")
    with pytest.raises(TypeError, match="npu:0 device type tensor to numpy"):
        tensor.numpy()
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        tensor.cuda()
    with pytest.raises(RuntimeError):
        torch.ones(2, device="npu:7")


def test_results_in_tensors_of_the_host_are_refused() -> None:
    number, values = torch.tensor(0.0), torch.ones(3, device="npu")
    with pytest.raises(RuntimeError, match="two devices, npu:0 and cpu"):
        torch.sum(values, 0, out=number)
    with pytest.raises(RuntimeError, match="two devices, npu:0 and cpu"):
        number.add_(values[0])
    assert number.item() == 0


def test_results_that_overlap_with_inputs_are_refused() -> None:
    values = torch.arange(6.0, device="npu")
    with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
        values[1:].copy_(values[:-1])
    with pytest.raises(RuntimeError, match="unsupported operation: some elements"):
        torch.add(values[:-1], 1, out=values[1:])
    values[:3].copy_(values[3:])
    values.mul_(values)
    assert values.tolist() == [9, 16, 25, 9, 16, 25]


def test_copies_between_devices() -> None:
    tensor = torch.arange(4.0, device="npu:0")
    other = tensor.to("npu:1", non_blocking=True)
    assert other.device == torch.device("npu:1")
    assert other.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    tensor.zero_()
    assert other.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_half_convolution_rounds_once() -> None:
    torch.manual_seed(0)
    inputs, weight = torch.randn(2, 16, 8, 8).half(), torch.randn(8, 16, 3, 3).half()
    expected = F.conv2d(inputs.float(), weight.float()).half()
    assert torch.equal(F.conv2d(inputs.npu(), weight.npu()).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_product_rounds_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    first, second = torch.randn(8, 64).to(dtype), torch.randn(64, 8).to(dtype)
    expected = (first.float() @ second.float()).to(dtype)
    assert torch.equal((first.npu() @ second.npu()).cpu(), expected)


def test_half_sum_without_nan_rounds_once() -> None:
    values = torch.linspace(-9, 9, 4200).bfloat16().view(2, 3, 100, 7)[..., ::2]
    assert torch.nansum(values.npu()).item() == values.double().sum().bfloat16().item()
    assert torch.nansum(values.npu(), dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_half_operators_that_the_cpu_lacks(mode: str) -> None:
    def compute(images: Tensor) -> list[Tensor]:
        smaller = F.interpolate(images, scale_factor=0.5, mode=mode, antialias=True)
        results = [smaller, F.avg_pool3d(images, 2), F.local_response_norm(images, 3)]
        sum(result.sum() for result in results).backward()
        return [*results, images.grad]

    images = torch.linspace(0, 1, 384).view(2, 4, 6, 8).half()
    found = compute(images.npu().requires_grad_())
    for result, expected in zip(found, compute(images.float().requires_grad_()), strict=True):
        torch.testing.assert_close(result.cpu(), expected.half(), rtol=4e-3, atol=4e-3)


def test_products_of_different_types_are_refused() -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        torch.ones(2, 2, device="npu").half() @ torch.ones(2, 2, device="npu")


def test_rules_of_the_wheel_for_conversions() -> None:
    images = torch.ones(1, 3, 2, 2, device="npu")
    with pytest.raises(RuntimeError, match="Only contiguous_format or preserve_format is supported"):
        images.to(memory_format=torch.channels_last)
    assert images.double().dtype == images.to(torch.float64).dtype == torch.float32


def test_default_device() -> None:
    torch.set_default_device("npu")
    try:
        tensor = torch.arange(3.0)
        assert tensor.is_npu
        assert (tensor + 1).cpu().tolist() == [1.0, 2.0, 3.0]
        assert torch.randn(3).is_npu
    finally:
        torch.set_default_device(None)


def test_operators_without_npu_kernel_fall_back_to_the_cpu() -> None:
    on_both(lambda device: torch.lgamma(torch.tensor([0.5, 3.0]).to(device)))


def test_int32_as_indices() -> None:
    labels = torch.tensor([[1, 0, -1], [2, -1, 0]])

    def of_labels(device: str) -> Any:
        scores = torch.tensor([[0.1, 0.7, 0.3], [0.9, 0.2, 0.4]]).to(device)
        target = labels.to(device, torch.int32 if device == "npu" else torch.int64)
        ones = F.one_hot(target.clamp(min=0), 4)
        assert ones.dtype == target.dtype
        return F.multilabel_margin_loss(scores, target), ones.long()

    on_both(of_labels)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors() -> None:
    def compute(device: str) -> Any:
        indices, values = torch.tensor([[0, 0, 1], [2, 2, 1]]), torch.tensor([1.0, 2.0, -3.0])
        sparse = torch.sparse_coo_tensor(indices, values, (2, 3)).to(device)
        merged = sparse.coalesce()
        parts = [
            merged.indices(),
            merged.values(),
            (sparse + sparse).to_dense(),
            torch.sparse.sum(sparse, 1).to_dense(),
        ]
        dense = torch.eye(3, device=device).to_sparse()
        return [*parts, dense.indices(), (dense * 2).to_dense(), sparse.t().abs().to_dense()]

    on_both(compute)
    assert torch.eye(3, device="npu:1").to_sparse().values().device == torch.device("npu:1")


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_values_of_half_precision_are_added_in_float32() -> None:
    values = torch.tensor([2048.0, 1, 1, 1, 1]).half()
    merged = torch.sparse_coo_tensor(torch.zeros(1, 5, dtype=torch.long), values, (1,), device="npu").coalesce()
    assert merged.values().dtype == torch.float16
    assert merged.values().item() == 2052


def test_sparse_gradients_of_an_embedding() -> None:
    def train(device: str) -> Tensor:
        torch.manual_seed(0)
        table = nn.Embedding(10, 3, sparse=True).to(device)
        optimizer = torch.optim.SGD(table.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            table(torch.tensor([1, 2, 2, 5]).to(device)).pow(2).sum().backward()
            assert table.weight.grad.is_sparse
            optimizer.step()
        return table.weight

    on_both(train)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_operators_that_the_wheel_lacks_are_refused_as_on_a_device() -> None:
    sparse = torch.eye(3, device="npu").to_sparse()
    with pytest.raises(RuntimeError, match=r"aten::addmm.*not currently supported on the NPU"):
        torch.sparse.mm(sparse, torch.ones(3, 3, device="npu"))
