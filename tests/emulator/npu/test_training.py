"""Training on the emulated NPU gives the numbers of the CPU."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch_npu
from comparing import on_both, to_cpu
from torch import Tensor, nn

Optimizer = Callable[[Iterable[nn.Parameter]], Any]


class Network(nn.Module):
    # The convolution has no bias: before a normalization its gradient is rounding noise, which Adam blows up.
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


def train(
    device: str, optimizer_of: Optimizer, scaler: Any = None, autocast: Any = None, steps: int = 3
) -> tuple[list[float], dict[str, Tensor]]:
    torch.manual_seed(1)
    model, criterion = Network().to(device), nn.CrossEntropyLoss()
    optimizer = optimizer_of(model.parameters())
    numbers = torch.Generator().manual_seed(3)
    losses = []
    for _ in range(steps):
        images = torch.randn(4, 3, 8, 8, generator=numbers).to(device, non_blocking=True)
        labels = torch.randint(0, 10, (4,), generator=numbers).to(device)
        optimizer.zero_grad()
        if scaler is None:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        else:
            with autocast:
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    return losses, to_cpu(model.state_dict())


def sgd(parameters: Iterable[nn.Parameter]) -> Any:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        sgd,
        lambda parameters: torch.optim.SGD(parameters, 0.1, foreach=False),
        lambda parameters: torch.optim.AdamW(parameters, 1e-2),
        lambda parameters: torch.optim.Adam(parameters, 1e-2, foreach=True),
        lambda parameters: torch.optim.AdamW(parameters, 1e-2, fused=True),
        lambda parameters: torch.optim.RMSprop(parameters, 1e-2),
    ],
    ids=["sgd", "sgd-loop", "adamw", "adam-foreach", "adamw-fused", "rmsprop"],
)
def test_optimizer(optimizer_of: Optimizer) -> None:
    on_both(lambda device: train(device, optimizer_of), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("fused", "plain"),
    [
        (
            lambda parameters: torch_npu.optim.NpuFusedSGD(parameters, 0.1, momentum=0.9),
            sgd,
        ),
        (
            lambda parameters: torch_npu.optim.NpuFusedAdam(parameters, 1e-3),
            lambda parameters: torch.optim.Adam(parameters, 1e-3),
        ),
        (
            lambda parameters: torch_npu.optim.NpuFusedAdamW(parameters, 1e-3),
            lambda parameters: torch.optim.AdamW(parameters, 1e-3),
        ),
        (
            lambda parameters: torch_npu.optim.NpuFusedRMSprop(parameters, 1e-3),
            lambda parameters: torch.optim.RMSprop(parameters, 1e-3),
        ),
        (
            lambda parameters: torch_npu.optim.NpuFusedAdadelta(parameters, 1.0),
            lambda parameters: torch.optim.Adadelta(parameters, 1.0),
        ),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop", "adadelta"],
)
def test_fused_optimizer_of_the_wheel(fused: Optimizer, plain: Optimizer) -> None:
    on_both(lambda device: train(device, fused if device == "npu" else plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["NpuFusedLamb", "NpuFusedBertAdam", "NpuFusedAdamP"])
def test_other_fused_optimizer_learns(name: str) -> None:
    _, state = train("npu", lambda parameters: getattr(torch_npu.optim, name)(parameters, 1e-2), steps=8)
    assert all(tensor.isfinite().all() for tensor in state.values())
    _, initial = train("npu", sgd, steps=0)
    assert not torch.equal(state["head.weight"], initial["head.weight"])


def test_bfloat16_autocast_and_torch_scaler() -> None:
    def trained(device: str) -> Any:
        scaler = torch.amp.GradScaler(device)
        return train(device, sgd, scaler, torch.amp.autocast(device, dtype=torch.bfloat16))

    # The CPU autocasts other operators than the NPU, so rounding differs: bfloat16 has 8 bits.
    on_both(trained, rtol=0.05, atol=0.05)


def test_float16_autocast_and_scaler_of_the_wheel() -> None:
    scaler = torch_npu.npu.amp.GradScaler(init_scale=1024.0)
    losses, state = train("npu", sgd, scaler, torch_npu.npu.amp.autocast())
    expected, expected_state = train("cpu", sgd)
    assert losses == pytest.approx(expected, rel=0.02)
    torch.testing.assert_close(state, expected_state, rtol=0.02, atol=0.02)
    assert scaler.get_scale() == 1024.0


def test_scaler_skips_a_step_that_overflows() -> None:
    weight = nn.Parameter(torch.ones(3, device="npu"))
    optimizer, scaler = torch.optim.SGD([weight], 0.1), torch.amp.GradScaler("npu", init_scale=2.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight.cpu(), torch.ones(3))
    assert scaler.get_scale() == 1.0


def test_unscale_and_clip() -> None:
    weight = nn.Parameter(torch.ones(4, device="npu"))
    optimizer, scaler = torch.optim.SGD([weight], 1.0), torch.amp.GradScaler("npu", init_scale=8.0)
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_([weight], 1.0).item() == pytest.approx(6.0)
    scaler.step(optimizer)
    assert torch.allclose(weight.cpu(), torch.full((4,), 0.5))


def test_checkpoint_round_trip() -> None:
    model = Network().npu()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model(torch.ones(2, 3, 8, 8, device="npu")).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    for location in (None, "cpu", "npu:1"):
        file.seek(0)
        loaded = torch.load(file, map_location=location)["model"]
        assert {str(tensor.device) for tensor in loaded.values()} == {location or "npu:0"}
        again = Network().npu()
        again.load_state_dict(loaded)
        torch.testing.assert_close(to_cpu(again.state_dict()), to_cpu(model.state_dict()), rtol=0, atol=0)


def test_attention_block() -> None:
    def block(device: str) -> Any:
        torch.manual_seed(2)
        embedding, norm = nn.Embedding(20, 16).to(device), nn.LayerNorm(16).to(device)
        attention = nn.MultiheadAttention(16, 2, batch_first=True).to(device)
        tokens = embedding(torch.arange(10).view(2, 5).to(device))
        heads = tokens.view(2, 5, 2, 8).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(2, 5, 16)
        output, weights = attention(mixed, mixed, mixed)
        loss = nn.functional.gelu(norm(output)).pow(2).sum()
        loss.backward()
        return loss, weights, embedding.weight.grad, attention.in_proj_weight.grad

    on_both(block, rtol=1e-4, atol=1e-5)


def test_masked_attention() -> None:
    def masked(device: str) -> Any:
        torch.manual_seed(2)
        query = torch.randn(2, 2, 5, 8).to(device).requires_grad_()
        mask = torch.ones(5, 5, dtype=torch.bool).tril().to(device)
        output = nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
        output.pow(2).sum().backward()
        return output, query.grad

    on_both(masked, rtol=1e-4, atol=1e-5)


def test_transformer_encoder() -> None:
    def encode(device: str) -> Any:
        torch.manual_seed(2)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2).to(device)
        inputs = torch.randn(2, 5, 16).to(device)
        trained = encoder(inputs)
        trained.sum().backward()
        encoder.eval()
        with torch.no_grad():
            return trained, encoder(inputs), next(encoder.parameters()).grad

    on_both(encode, rtol=1e-4, atol=1e-4)


def test_recurrent_networks() -> None:
    def recur(device: str) -> Any:
        torch.manual_seed(2)
        lstm, gru = nn.LSTM(4, 6, 2, bidirectional=True).to(device), nn.GRU(12, 5).to(device)
        cell, plain = nn.LSTMCell(5, 3).to(device), nn.RNN(3, 2).to(device)
        inputs = torch.randn(3, 2, 4).to(device).requires_grad_()
        hidden = gru(lstm(inputs)[0])[0]
        state = cell(hidden[0])[0]
        output = plain(state[None])[0]
        output.sum().backward()
        return output, inputs.grad, lstm.weight_hh_l1.grad

    on_both(recur)


def test_packed_sequence() -> None:
    def packed(device: str) -> Any:
        torch.manual_seed(2)
        lstm = nn.LSTM(3, 4, batch_first=True).to(device)
        inputs = torch.randn(2, 5, 3).to(device)
        sequence = nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor([5, 3]), batch_first=True)
        assert sequence.data.device.type == device
        assert sequence.batch_sizes.device.type == "cpu"
        output, _ = lstm(sequence)
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]

    on_both(packed)


def test_layers_of_convolutional_networks() -> None:
    def layers(device: str) -> Any:
        torch.manual_seed(2)
        inputs = torch.randn(2, 4, 8, 8).to(device).requires_grad_()
        stack = nn.Sequential(
            *(nn.Conv2d(4, 8, 3, stride=2, groups=2), nn.GroupNorm(2, 8), nn.SiLU()),
            *(nn.ConvTranspose2d(8, 4, 3), nn.InstanceNorm2d(4), nn.LeakyReLU()),
            *(nn.AdaptiveAvgPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.AvgPool2d(2)),
        ).to(device)
        output = stack(inputs)
        output.sum().backward()
        line = nn.Conv1d(8, 2, 3).to(device)(inputs.detach()[0])
        volume = nn.Conv3d(2, 2, 2).to(device)(inputs.detach().view(2, 2, 2, 8, 8))
        return output, inputs.grad, line, volume

    on_both(layers, atol=1e-5)


def test_channels_last() -> None:
    def channels_last(device: str) -> Any:
        torch.manual_seed(2)
        model = Network().to(memory_format=torch.channels_last).to(device)
        images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).to(device)
        assert images.is_contiguous(memory_format=torch.channels_last)
        output = model(images)
        output.sum().backward()
        return output, model.body[0].weight.grad

    on_both(channels_last)


def test_losses() -> None:
    functional = nn.functional

    def losses(device: str) -> Any:
        torch.manual_seed(2)
        logits, target = torch.randn(4, 5).to(device).requires_grad_(), torch.rand(4, 5).to(device)
        labels = torch.tensor([1, 2, 3, 0]).to(device)
        found = [
            functional.mse_loss(logits, target),
            functional.l1_loss(logits, target),
            functional.smooth_l1_loss(logits, target),
            functional.huber_loss(logits, target),
            functional.binary_cross_entropy_with_logits(logits, target),
            functional.binary_cross_entropy(logits.sigmoid(), target),
            functional.nll_loss(logits.log_softmax(1), labels),
            functional.kl_div(logits.log_softmax(1), target, reduction="batchmean"),
            functional.cross_entropy(logits, labels, label_smoothing=0.1),
            functional.cross_entropy(logits, labels, ignore_index=1),
        ]
        sum(found).backward()
        return found, logits.grad

    on_both(losses)


def test_activation_checkpointing_replays_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    inputs = torch.ones(64, device="npu", requires_grad=True)
    outputs = checkpoint(lambda tensor: nn.functional.dropout(tensor, 0.5), inputs, use_reentrant=False)
    outputs.sum().backward()
    assert torch.equal(inputs.grad, outputs.detach())
    assert 0 < int((outputs == 0).sum()) < 64
