"""Integers and 8-bit floats: their products, fake quantisation, and linear layers over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # which defines the ops of `quantized_decomposed`
from support import check_all
from torch import Tensor, nn
from torch.nn import functional as F

import flambeau

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def bytes_of(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def same_on_xla(function: Callable[..., Any], *args: Any) -> None:
    """Run a function in StableHLO on XLA, and compare with eager PyTorch."""
    run = flambeau.load(flambeau.compile(function, args, output_type="stablehlo"), engine="xla")
    torch.testing.assert_close(run(*args), function(*args), rtol=1e-2, atol=1e-3)


@pytest.mark.usefixtures("_plain_kernels")
def test_products_of_bytes_have_32_bits() -> None:
    cases = [(torch._int_mm, (bytes_of(32, 256), bytes_of(256, 8))), (torch._int_mm, (bytes_of(17, 1), bytes_of(1, 8)))]
    check_all(cases)
    check_all(cases[:1], dynamic=True)
    same_on_xla(torch._int_mm, bytes_of(32, 256), bytes_of(256, 8))


def scaled(out: torch.dtype | None) -> Callable[..., Tensor]:
    def product(x: Tensor, y: Tensor, x_scale: Tensor, y_scale: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch._scaled_mm(x, y.t(), x_scale, y_scale, bias=bias, out_dtype=out)

    return product


@pytest.mark.usefixtures("_plain_kernels")
def test_scaled_products_of_8_bit_floats() -> None:
    whole, rows = (torch.tensor(0.5), torch.tensor(0.25)), (torch.rand(32, 1) + 0.1, torch.rand(1, 16) + 0.1)
    x, y = torch.randn(32, 16), torch.randn(16, 16)
    cases = [
        (scaled(torch.float32), (x.to(E4M3), y.to(E4M3), *whole)),
        (scaled(torch.bfloat16), (x.to(E4M3), y.to(E4M3), *rows)),
        (scaled(torch.bfloat16), (x.to(E5M2), y.to(E4M3), *whole, torch.randn(16).bfloat16())),
        (scaled(torch.bfloat16), (x.to(E5M2), y.to(E5M2), *rows)),
        (scaled(torch.float16), (x.to(E4M3), y.to(E5M2), *whole)),
    ]
    check_all(cases, rtol=0, atol=0)
    for function, args in cases[1:3]:
        same_on_xla(function, *args)

    def small(*args: Tensor) -> Tensor:
        return scaled(None)(*args).float()

    check_all([(small, (x.to(E4M3), y.to(E4M3), *whole))], rtol=0, atol=0)


def fake_quantized() -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    x = torch.randn(4, 9) * 3
    x[0, :2] = torch.tensor([0.25, -1e30])
    scale, zero = torch.tensor(0.1), torch.tensor(3, dtype=torch.int32)
    scales, zeros = torch.rand(4) + 0.1, torch.tensor([-3, 0, 2, 5])
    on, off = torch.tensor(1), torch.tensor(0)
    masked = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    return [
        (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7), (x,)),
        (lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -8, 7), (x, scale, zero)),
        (lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -8, 7), (x,)),
        (lambda x, s, z, e: masked(x, s, z, e, -8, 7), (x, scale, zero, on)),
        (lambda x, s, z, e: masked(x, s, z, e, -8, 7), (x, scale, zero, off)),
        (lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -8, 7), (x, scales, zeros.int())),
        (lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -8, 7), (x, scales, zeros + 0.5)),
        (lambda x, s, z: aten.fake_quantize_per_channel_affine_cachemask(x, s, z, 1, -8, 7),
         (x.t().contiguous(), scales, zeros.int())),
        (lambda x, s, z: aten._fake_quantize_learnable_per_tensor_affine(x, s, z, -8, 7),
         (x, torch.tensor([0.1]), torch.tensor([2.5]))),
        (lambda x, s, z: aten._fake_quantize_learnable_per_channel_affine(x, s, z, 0, -8, 7),
         (x, scales, torch.tensor([-30.0, 0.5, 1.5, 2.4]))),
    ]  # fmt: skip


def test_fake_quantisation_with_and_without_masks() -> None:
    check_all(fake_quantized(), rtol=0, atol=0)


def test_quantisation_that_is_chosen_while_the_program_runs() -> None:
    def per_tensor(x: Tensor) -> Tensor:
        scale, zero = decomposed.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        small = decomposed.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        return decomposed.dequantize_per_tensor.tensor(small, scale, zero, -128, 127, torch.int8)

    def per_token(x: Tensor) -> Tensor:
        scale, zero = decomposed.choose_qparams_per_token_asymmetric(x, torch.int8)
        small = decomposed.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        return decomposed.dequantize_per_token(small, scale, zero, -128, 127, torch.int8, torch.float32)

    def converted(x: Tensor) -> Tensor:
        return decomposed.convert_element_type.no_fuse(x, torch.int8)

    x = torch.randn(4, 9)
    check_all([(per_tensor, (x,)), (per_token, (x,)), (converted, (x * 20,))])
    same_on_xla(per_token, x)


# --- Linear layers ---


class Float8Linear(nn.Module):
    """Weights with a scale for each row; activations get theirs while the program runs."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        weight = torch.randn(out, width)
        scale = weight.abs().amax(1, keepdim=True) / 448
        self.register_buffer("weight", (weight / scale).to(E4M3))
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", torch.randn(out).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        scale = x.float().abs().amax(1, keepdim=True) / 448
        small = (x.float() / scale).to(E4M3)
        return torch._scaled_mm(small, self.weight.t(), scale, self.scale, bias=self.bias, out_dtype=torch.bfloat16)


class Int8Linear(nn.Module):
    """Weights of 8 bits, multiplied in the activations' dtype."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.register_buffer("weight", bytes_of(out, width))
        self.register_buffer("scale", torch.rand(out).bfloat16() / 100)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale + aten._weight_int8pack_mm(x, self.weight, self.scale)


class Int4Linear(nn.Module):
    """Weights of 4 bits, two in a byte, with a scale and a zero point for each group of columns."""

    def __init__(self, width: int, out: int, group: int) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("packed", torch.randint(0, 256, (out, width // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(out, width // group, 1) / 10)
        self.register_buffer("zero", torch.randint(0, 16, (out, width // group, 1)).float())

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.packed & 0xF, self.packed >> 4
        digits = torch.stack([low, high], -1).reshape(self.packed.shape[0], -1, self.group).to(torch.float32)
        weight = ((digits - self.zero) * self.scale).reshape(self.packed.shape[0], -1)
        return F.linear(x, weight.to(x.dtype))


class Packed4Linear(nn.Module):
    """Weights of 4 bits as PyTorch packs them for a CPU."""

    def __init__(self, width: int, out: int, group: int) -> None:
        super().__init__()
        self.group = group
        digits = torch.randint(0, 16, (out, width), dtype=torch.int32)
        self.register_buffer("packed", aten._convert_weight_to_int4pack_for_cpu(digits, 1))
        self.register_buffer("scales", torch.rand(width // group, out, 2).bfloat16() / 10)

    def forward(self, x: Tensor) -> Tensor:
        return aten._weight_int4pack_mm_for_cpu(x, self.packed, self.group, self.scales)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "float8": lambda: Float8Linear(32, 16),
    "int8": lambda: Int8Linear(32, 16),
    "int4": lambda: Int4Linear(32, 16, 8),
    "packed4": lambda: Packed4Linear(64, 128, 32),
}


@pytest.mark.parametrize("name", LAYERS)
def test_linear_layers_over_small_weights(name: str, target: str) -> None:
    block = nn.Sequential(LAYERS[name](), nn.ReLU()).eval()
    x = torch.randn(5, 64 if name == "packed4" else 32).bfloat16()
    module = flambeau.compile(block, (x,), dynamic_shapes=({0: torch.export.Dim("n")},), output_type=target)
    run = flambeau.load(module, profile="quick")
    for rows in (x, x[:2]):
        torch.testing.assert_close(run(rows), block(rows), rtol=2e-2, atol=2e-2)
    assert {str(w.dtype) for w in module.weights.values()} & {"torch.float8_e4m3fn", "torch.int8", "torch.uint8"}
    same_on_xla(block, x)
