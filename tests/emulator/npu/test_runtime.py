"""Devices, memory, streams, events, random numbers, and what surrounds training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch import nn


def test_devices() -> None:
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 2
    assert torch.npu.get_device_name(0) == "Ascend910B1"
    assert torch.npu.get_device_properties(0).total_memory == 64 << 30
    with torch.npu.device(1):
        assert torch.ones(1, device="npu").device == torch.device("npu:1")
    assert torch.npu.current_device() == 0
    assert torch.accelerator.current_accelerator().type == "npu"


def test_memory_statistics_move() -> None:
    torch.npu.empty_cache()
    before, free = torch.npu.memory_allocated(), torch.npu.mem_get_info()[0]
    torch.npu.reset_peak_memory_stats()
    block = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() >= before + (64 << 20)
    assert torch.npu.mem_get_info()[0] <= free - (64 << 20)
    assert torch.npu.memory_reserved() >= 64 << 20
    del block
    assert torch.npu.memory_allocated() == before
    assert torch.npu.max_memory_allocated() >= before + (64 << 20)
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] == free
    assert torch.npu.memory_reserved() < 64 << 20
    assert "Allocated memory" in torch.npu.memory_summary()


def test_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(65 << 30, dtype=torch.uint8, device="npu")
    assert torch.ones(2, device="npu").sum().item() == 2


def test_a_device_has_more_memory_than_is_in_use() -> None:
    torch.npu.empty_cache()
    untouched = torch.empty(60 << 30, dtype=torch.uint8, device="npu")
    assert torch.npu.mem_get_info()[0] < 4 << 30
    del untouched
    torch.npu.empty_cache()


def test_streams_and_events() -> None:
    stream, tensor = torch.npu.Stream(), torch.ones(4, device="npu")
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        start.record()
        doubled = tensor * 2
        end.record()
    torch.npu.current_stream().wait_event(end)
    doubled.record_stream(torch.npu.current_stream())
    end.synchronize()
    torch.npu.synchronize()
    assert end.query()
    assert stream.query()
    assert start.elapsed_time(end) > 0
    assert (doubled + 1).sum().item() == 12


def test_pinned_memory_and_workers() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    total = 0.0
    for values, labels in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=1):
        assert values.is_pinned()
        total += (values.to("npu", non_blocking=True).sum() + labels.npu().sum()).item()
    assert total == 66 + 15


def test_registered_memory_of_the_host() -> None:
    runtime, memory = torch.npu.npurt(), torch.arange(6.0)
    assert runtime.npuHostRegister(memory.data_ptr(), memory.nbytes, 0) == 0
    assert memory.npu(non_blocking=True).sum().item() == 15
    assert runtime.npuHostUnregister(memory.data_ptr()) == 0
    assert runtime.npuHostRegister(memory.data_ptr(), 0, 0) != 0


def test_copies_to_the_host_that_do_not_block_are_pinned() -> None:
    tensor = torch.arange(6, device="npu")
    assert tensor.to("cpu", torch.float32, non_blocking=True).is_pinned()
    assert not tensor.to("cpu").is_pinned()
    assert tensor.to("cpu", non_blocking=True).tolist() == [0, 1, 2, 3, 4, 5]


def test_seeds_repeat() -> None:
    torch.manual_seed(5)
    first, second = torch.randn(3, device="npu"), torch.rand(3, device="npu")
    torch.manual_seed(5)
    assert torch.equal(torch.randn(3, device="npu"), first)
    assert torch.equal(torch.rand(3, device="npu"), second)
    torch.npu.manual_seed_all(6)
    assert not torch.equal(torch.randn(3, device="npu"), first)


def test_devices_have_their_own_stream() -> None:
    torch.npu.manual_seed_all(5)
    first = torch.randn(3, device="npu:0")
    torch.randn(3, device="npu:0")
    assert torch.equal(torch.randn(3, device="npu:1").cpu(), first.cpu())


def test_generator_state_replays() -> None:
    state = torch.npu.get_rng_state()
    first = torch.randn(3, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="npu"), first)


def test_fork_rng_restores() -> None:
    torch.npu.manual_seed(7)
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        inside = torch.randn(3, device="npu")
    assert torch.equal(torch.randn(3, device="npu"), inside)


def test_own_generator() -> None:
    generator = torch.Generator(device="npu").manual_seed(3)
    first = torch.randperm(10, generator=generator, device="npu")
    assert sorted(first.tolist()) == list(range(10))
    assert torch.equal(torch.randperm(10, generator=generator.manual_seed(3), device="npu"), first)


def test_host_numbers_are_untouched() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    torch.randn(5, device="npu")
    F.dropout(torch.ones(5, device="npu"), 0.5)
    assert torch.equal(torch.rand(3), expected)


def test_dropout_rate() -> None:
    dropped = F.dropout(torch.ones(10000, device="npu"), 0.3)
    assert int((dropped == 0).sum()) == pytest.approx(3000, abs=300)
    assert dropped.max().item() == pytest.approx(1 / 0.7)


def test_eager_compilation() -> None:
    compiled = torch.compile(lambda tensor: (tensor * 2 + 1).relu(), backend="eager")
    assert compiled(torch.ones(3, device="npu")).cpu().tolist() == [3.0, 3.0, 3.0]


def test_tracing_a_convolution() -> None:
    model = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).npu().eval()
    )
    images = torch.randn(2, 3, 8, 8).npu()
    traced = torch.jit.trace(model, images)
    assert "aten::_convolution" in str(traced.inlined_graph)
    other = torch.randn(3, 3, 8, 8).npu()
    torch.testing.assert_close(traced(other).cpu(), model(other).cpu())


def test_data_parallel() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4).npu()
    inputs = torch.randn(5, 3).npu()
    devices = []
    model.register_forward_hook(lambda module, args, output: devices.append(str(output.device)))
    outputs = nn.DataParallel(model, device_ids=[0, 1])(inputs)
    assert sorted(devices) == ["npu:0", "npu:1"]
    outputs.pow(2).sum().backward()
    gradient, model.weight.grad = model.weight.grad, None
    expected = model(inputs)
    expected.pow(2).sum().backward()
    torch.testing.assert_close(outputs.cpu(), expected.cpu())
    torch.testing.assert_close(gradient.cpu(), model.weight.grad.cpu())


def test_per_sample_gradients() -> None:
    def loss(weight: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return (weight @ row).pow(2).sum()

    weight, rows = torch.randn(2, 3).npu(), torch.randn(4, 3).npu()
    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, rows)
    expected = torch.stack([2 * torch.outer(weight.cpu() @ row, row) for row in rows.cpu()])
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_missing_reference_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"npu::npu_quantize .*no CPU reference"):
        torch_npu.npu_quantize(torch.ones(2, 2).npu(), torch.ones(2).npu(), None, torch.qint8, 0)


def test_missing_option_is_refused_by_name() -> None:
    heads = torch.ones(1, 2, 4, 8).npu()
    mask = torch.zeros(4, 4, dtype=torch.bool).npu()
    with pytest.raises(NotImplementedError, match="sparse_mode 7"):
        torch_npu.npu_fusion_attention(heads, heads, heads, 2, "BNSD", atten_mask=mask, sparse_mode=7)


def test_launch_behind_the_kernels_is_refused_by_name() -> None:
    # A kernel of the wheel launches this; what it launches must not pass for a tensor of zeros.
    quantized = torch._empty_affine_quantized([2, 3], scale=1, zero_point=0, dtype=torch.quint8, device="npu")
    with pytest.raises(RuntimeError, match="does not implement AsStrided"):
        quantized.flatten()


def test_results_of_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::quantize_per_tensor.*quantized"):
        torch.quantize_per_tensor(torch.eye(2, device="npu"), 0.1, 0, torch.qint8)


def test_transformer_library_operators_are_refused_by_name() -> None:
    cache = torch.zeros(1, 2, 1, 4, device="npu")
    with pytest.raises(NotImplementedError, match="atb::_npu_reshape_and_cache"):
        torch_npu._npu_reshape_and_cache(cache[0], cache[0], cache, cache, torch.zeros(2, dtype=torch.int32).npu())


def test_graph_capture_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match=r"aclmdlRI\w+"):
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            torch.ones(2, device="npu")


def test_every_refusal_covers_its_operator() -> None:
    """No operator of the wheel's may reach its own kernel unless the emulator says so."""
    from _npu_emulator.operators import _OWN_KERNELS

    registered = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    for name in registered:
        base = name.removeprefix("npu::").partition(".")[0]
        if name.startswith(("npu::", "atb::")) and base not in _OWN_KERNELS:
            table = torch._C._dispatch_dump_table(name)
            (line,) = [line for line in table.splitlines() if line.startswith("PrivateUse1:")]
            assert "dispatcher.py" in line, name


def test_memory_of_the_host_that_the_device_sees() -> None:
    swapped = torch_npu.empty_with_swapped_memory((2, 3), device="npu")
    swapped.fill_(2)
    assert (swapped + torch.ones(2, 3, device="npu")).sum().item() == 18
