"""torch_npu's activations, normalizations, rotations, softmaxes and dropouts against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch_npu
from comparing import against, close
from torch import Tensor


def normal(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def exact_gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def tanh_gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("operator", "formula"),
    [
        (torch_npu.fast_gelu, lambda x: x * sigmoid(1.702 * x)),
        (torch_npu.npu_fast_gelu, lambda x: x / (1 + torch.exp(-1.702 * x.abs())) * torch.exp(0.851 * (x - x.abs()))),
        (torch_npu.npu_gelu, exact_gelu),
        (lambda x: torch_npu.npu_gelu(x, approximate="tanh"), tanh_gelu),
        (torch_npu.npu_silu, lambda x: x * sigmoid(x)),
        (torch_npu.npu_mish, lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
        (torch_npu.npu_swiglu, lambda x: x[..., :4] * sigmoid(x[..., :4]) * x[..., 4:]),
        (lambda x: torch_npu.npu_swiglu(x, dim=0), lambda x: x[:3] * sigmoid(x[:3]) * x[3:]),
        (torch_npu.npu_geglu, lambda x: (x[..., :4] * tanh_gelu(x[..., 4:]), tanh_gelu(x[..., 4:]))),
        (
            lambda x: torch_npu.npu_geglu(x, approximate=0, activate_left=True),
            lambda x: (exact_gelu(x[..., :4]) * x[..., 4:], exact_gelu(x[..., :4])),
        ),
    ],
)
def test_activations(operator, formula) -> None:
    against(operator, formula, normal(6, 8))


def test_gelu_mul() -> None:
    against(torch_npu.npu_gelu_mul, lambda x: exact_gelu(x[..., :4]) * x[..., 4:], normal(6, 8), gradients=False)


def test_silu_in_place() -> None:
    tensor = normal(5)
    result = tensor.npu()
    torch_npu.npu_silu_(result)
    close(result, tensor * sigmoid(tensor))


def rms(x: Tensor, gamma: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    root = torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps)
    return x / root * gamma, 1 / root


def test_rms_norm() -> None:
    against(torch_npu.npu_rms_norm, rms, normal(3, 8), normal(8) + 2)
    against(lambda x, g: torch_npu.npu_rms_norm(x, g, 0.5), lambda x, g: rms(x, g, 0.5), normal(3, 8), normal(8))


def test_rms_norm_in_half_precision() -> None:
    x, gamma = normal(3, 8).half(), normal(8).half()
    result, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu())
    expected, expected_rstd = rms(x.float(), gamma.float())
    close(result, expected.half(), rtol=1e-3, atol=1e-4)
    close(rstd, expected_rstd)


def test_gemma_rms_norm() -> None:
    against(torch_npu.npu_gemma_rms_norm, lambda x, g: rms(x, g + 1), normal(3, 8), normal(8), gradients=False)


def test_add_rms_norm() -> None:
    def formula(x1: Tensor, x2: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        result, rstd = rms(x1 + x2, gamma)
        return result, rstd, x1 + x2

    tensors = normal(3, 8), normal(4, 3, 8)[1], normal(8)
    against(torch_npu.npu_add_rms_norm, formula, *tensors, gradients=False)
    first, second = tensors[0].npu(), tensors[1].npu()
    rstd = torch_npu.npu_add_rms_norm_v2(first, second, tensors[2].npu())
    for actual, expected in zip((first, rstd, second), formula(*tensors), strict=True):
        close(actual, expected)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    mean = x.mean(dims, keepdim=True)
    rstd = 1 / torch.sqrt(((x - mean) ** 2).mean(dims, keepdim=True) + eps)
    return (x - mean) * rstd * gamma + beta, mean, rstd


def test_add_layer_norm() -> None:
    def formula(x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        return *layer_norm(x1 + x2, gamma, beta, 1e-5), x1 + x2

    tensors = normal(3, 8), normal(4, 3, 8)[2], normal(8) + 1, normal(2, 8)[1]
    against(lambda *t: torch_npu.npu_add_layer_norm(*t, 1e-5, True), formula, *tensors)


def test_deep_norm() -> None:
    def formula(x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        return layer_norm(0.3 * x + gx, gamma, beta, 1e-6)

    tensors = normal(3, 2, 8), normal(4, 3, 2, 8)[3], normal(2, 8), normal(3, 2, 8)[1] + 1
    against(
        lambda *t: (lambda mean, rstd, y: (y, mean, rstd))(*torch_npu.npu_deep_norm(*t, 0.3, 1e-6)), formula, *tensors
    )


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    parts = [layer_norm(part, torch.ones(part.shape[1:]), torch.zeros(()), eps)[0] for part in x.chunk(groups, 1)]
    return torch.cat(parts, 1) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def test_group_norm_with_swish() -> None:
    tensors = normal(2, 6, 3, 3), normal(6) + 1, normal(2, 6)[1]

    def formula(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = group_norm(x, 3, weight, bias, 1e-5)
        return y * sigmoid(1.5 * y)

    against(lambda x, w, b: torch_npu.npu_group_norm_swish(x, 3, w, b, swish_scale=1.5), formula, *tensors)


def test_group_norm_with_silu() -> None:
    def formula(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = group_norm(x, 2, weight, bias, 1e-4)
        return y * sigmoid(y)

    tensors = normal(2, 6, 3, 3), normal(6) + 1, normal(2, 6)[1]
    against(lambda x, w, b: torch_npu.npu_group_norm_silu(x, w, b, 2, 1e-4), formula, *tensors, gradients=False)


def rotated(x: Tensor) -> Tensor:
    return torch.cat([-x[..., 4:], x[..., :4]], -1)


def test_rotary_embedding() -> None:
    tensors = normal(2, 5, 3, 8), normal(1, 5, 1, 8), normal(2, 1, 5, 1, 8)[1]
    against(torch_npu.npu_rotary_mul, lambda x, cos, sin: x * cos + rotated(x) * sin, *tensors)


def test_interleaved_rotary_embedding() -> None:
    def formula(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned = torch.empty_like(x)
        turned = torch.stack([x[..., i ^ 1] * (-1 if i % 2 == 0 else 1) for i in range(8)], -1)
        return x * cos + turned * sin

    tensors = normal(2, 5, 3, 8), normal(1, 5, 1, 8), normal(2, 1, 5, 1, 8)[1]
    against(lambda *t: torch_npu.npu_rotary_mul(*t, rotary_mode="interleave"), formula, *tensors)


def test_rotary_embedding_of_queries_and_keys() -> None:
    query, key, cos, sin = normal(2, 5, 3, 8), normal(3, 2, 5, 3, 8)[1], normal(2, 5, 1, 8), normal(3, 2, 5, 1, 8)[2]
    results = torch_npu.npu_apply_rotary_pos_emb(*(t.npu() for t in (query, key, cos, sin)))
    for result, x in zip(results, (query, key), strict=True):
        close(result, x * cos + rotated(x) * sin)


def test_interleave_rope() -> None:
    x, cos, sin = normal(2, 3, 5, 8), normal(2, 1, 5, 8), normal(3, 2, 1, 5, 8)[1]
    paired = torch.cat([x[..., ::2], x[..., 1::2]], -1)
    close(torch_npu.npu_interleave_rope(x.npu(), cos.npu(), sin.npu()), paired * cos + rotated(paired) * sin)


def softmax(x: Tensor) -> Tensor:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


@pytest.mark.parametrize("triangular", [False, True])
def test_scaled_masked_softmax(triangular: bool) -> None:
    torch.manual_seed(1)
    mask = torch.rand(2, 1, 4, 4) < 0.4
    used = torch.ones(4, 4, dtype=torch.bool).triu(1).expand(2, 1, 4, 4) if triangular else mask
    against(
        lambda x: torch_npu.npu_scaled_masked_softmax(x, mask.npu(), 0.7, triangular),
        lambda x: softmax(torch.where(used, torch.tensor(-10000.0), 0.7 * x)),
        normal(2, 3, 4, 4),
    )


def test_softmax_cross_entropy() -> None:
    labels = softmax(normal(4, 5))
    against(
        lambda x: torch_npu.npu_softmax_cross_entropy_with_logits(x, labels.npu()),
        lambda x: -(labels * torch.log(softmax(x))).sum(1),
        normal(2, 4, 5)[1],
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str) -> None:
    target, weight = torch.tensor([1, 0, 3, 2]), torch.tensor([0.5, 1.0, 0.7, 0.2, 0.9])

    def formula(x: Tensor) -> tuple[Tensor, Tensor]:
        log_prob = torch.log(softmax(x))
        kept = target != 2
        loss = torch.stack([-weight[t] * log_prob[n, t] for n, t in enumerate(target)]) * kept
        smooth = -(log_prob * weight).sum(1) * kept / 5
        total = 0.9 * loss + 0.1 * smooth
        if reduction == "none":
            return total, log_prob
        divisor = (weight[target] * kept).sum() if reduction == "mean" else 1
        return total.sum().view(1) / divisor, log_prob

    def operator(x: Tensor) -> Tensor:
        return torch_npu.npu_cross_entropy_loss(x, target.npu(), weight.npu(), reduction, 2, 0.1)

    against(operator, formula, normal(4, 5))


@pytest.mark.parametrize("operator", [torch_npu._npu_dropout, torch_npu._dropout_with_byte_mask])
def test_dropout(operator) -> None:
    x = torch.ones(4000, device="npu", requires_grad=True)
    result = operator(x, 0.25)[0]
    assert int((result == 0).sum()) == pytest.approx(1000, abs=150)
    assert result.max().item() == pytest.approx(1 / 0.75)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


def test_generated_mask() -> None:
    mask = torch_npu.npu_dropout_gen_mask([4000], 0.25, dtype=torch.float32, device=torch.device("npu:0"))
    assert mask.dtype == torch.uint8
    assert mask.numel() == 4096 / 8
    kept = torch_npu.npu_dropout_do_mask(torch.ones(4000, device="npu"), mask, 0.25)[0] > 0
    assert int(kept.sum()) == pytest.approx(3000, abs=150)


def test_dropout_with_a_given_mask() -> None:
    mask = torch.tensor([0b101] + [0] * 15, dtype=torch.uint8).npu()
    result, _ = torch_npu.npu_dropout_do_mask(torch.ones(4, device="npu"), mask, 0.5)
    assert result.tolist() == [2.0, 0.0, 2.0, 0.0]


def test_dropout_after_softmax() -> None:
    x, added = normal(1, 2, 16, 16), normal(2, 1, 2, 16, 16)[1]
    first, second = x.npu().requires_grad_(), added.npu().requires_grad_()
    mask, weights, result = torch_npu.npu_dropout_with_add_softmax(first, second, 0.5, 0.3, -1)
    expected = softmax(added + 0.5 * x)
    close(weights, expected)
    close(result, expected * mask.cpu() / 0.7)
    result.pow(2).sum().backward()
    theirs = [x.clone().requires_grad_(), added.clone().requires_grad_()]
    (softmax(theirs[1] + 0.5 * theirs[0]) * mask.cpu() / 0.7).pow(2).sum().backward()
    close(first.grad, theirs[0].grad)
    close(second.grad, theirs[1].grad)
