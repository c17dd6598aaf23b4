"""Quantised models: exact on linalg and StableHLO, integer arithmetic on TOSA."""

from __future__ import annotations

import copy
import itertools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from support import Together
from torch import Tensor, nn
from torch.nn import functional as F

import flambeau
from flambeau.infer.builder import rules as infer_rules
from flambeau.infer.rules import Meta
from flambeau.ir import dtypes
from flambeau.ir.printing import generic_text
from flambeau.lowering.tosa.quantized import _multiplier

Q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)
TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")


def qdq(x: Tensor, scale: float, zero: int, kind: Any = INT8) -> Tensor:
    return Q.dequantize_per_tensor.default(Q.quantize_per_tensor.default(x, scale, zero, *kind), scale, zero, *kind)


class Integers(nn.Module):
    """A weight of 8-bit integers, with a scale for all or one for each channel."""

    def __init__(self, shape: Sequence[int], per_channel: bool = True, seed: int = 0, zero: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("weight", torch.randint(-127, 128, tuple(shape), dtype=torch.int8, generator=generator))
        self.register_buffer("scales", torch.rand(shape[0], generator=generator) * 0.02 + 0.002)
        self.register_buffer("zeros", torch.full((shape[0],), zero))
        self.register_buffer("bias", torch.randn(shape[0], generator=generator))
        self.per_channel, self.zero = per_channel, zero

    def forward(self) -> Tensor:
        if self.per_channel:
            return Q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, *INT8)
        return Q.dequantize_per_tensor.default(self.weight, 0.01, self.zero, *INT8)


def lowered(model: Callable[..., Any], *inputs: Tensor, target: str = "tosa", **options: Any) -> flambeau.Module:
    return flambeau.compile(model, inputs, output_type=target, verify=target == "tosa", **options)


def ran(module: flambeau.Module, *inputs: Tensor) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync")(*inputs)


def check_step(model: Callable[..., Any], *inputs: Tensor, **options: Any) -> str:
    """Compile for TOSA and run; the result is at most a step from eager's. Gives the text of the program."""
    module = lowered(model, *inputs, **options)
    assert_within_a_step(ran(module, *inputs), model(*inputs))
    return str(module)


def assert_within_a_step(found: Tensor, wanted: Tensor) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert (found.double() - wanted.double()).abs().max() <= 1.0001
    # Rounding differs where a result lies between two steps, which is rare.
    assert (found != wanted).double().mean() < 0.02


class Steps(Together):
    """Models that are compiled together; each is checked as by `check_step`."""

    def __init__(self, models: Mapping[str, tuple[Callable[..., Any], Tensor]]) -> None:
        super().__init__({name: partial(lowered, model, x) for name, (model, x) in models.items()})
        self.models = models

    def check(self, name: str) -> str:
        model, x = self.models[name]
        assert_within_a_step(self[name](x), model(x))
        return str(self.modules[name])


def ops_of(text: str) -> list[str]:
    return [op for op in re.findall(r"tosa\.([a-z_0-9]+)", text) if op not in ("const", "const_shape", "shape")]


# --- Quantising and dequantising alone ---

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)) * 3
EDGES = torch.tensor([0.015, 0.045, -0.015, -0.045, 0.0, 1e9, -1e9, float("inf"), float("-inf"), 3.825, -3.855])
SCALES, ZEROS = torch.linspace(0.01, 0.1, 8), torch.arange(-4, 4)
ONE_SCALE, ONE_ZERO = torch.tensor([0.03]), torch.tensor([4])
GROUP_SCALES, GROUP_ZEROS = torch.linspace(0.05, 0.4, 12).reshape(6, 2), torch.arange(12).reshape(6, 2) - 6

EXACT: dict[str, Callable[[], Any]] = {
    "per tensor": lambda: (lambda x: Q.quantize_per_tensor.default(x, 0.03, 5, *INT8), X),
    "symmetric": lambda: (lambda x: Q.quantize_per_tensor.default(x, 0.03, 0, -127, 127, torch.int8), X),
    "halves, infinities and what is out of range": lambda: (
        lambda x: Q.quantize_per_tensor.default(x, 0.03, 1, *INT8), EDGES,
    ),
    "without dims": lambda: (lambda x: qdq(x, 0.03, 5), torch.tensor(1.234)),
    "empty": lambda: (lambda x: qdq(x, 0.03, 5), torch.ones(0, 3)),
    "unsigned": lambda: (lambda x: Q.quantize_per_tensor.default(x, 0.03, 100, *UINT8), X),
    "unsigned and back": lambda: (lambda x: qdq(x, 0.03, 100, UINT8), X),
    "16 bits": lambda: (lambda x: qdq(x, 0.0003, 5, (-32768, 32767, torch.int16)), X),
    "32 bits": lambda: (lambda x: qdq(x, 0.0003, 0, (-(2**31), 2**31 - 1, torch.int32)), X),
    "half floats": lambda: (lambda x: Q.quantize_per_tensor.default(x, 0.03, 5, *INT8), X.half()),
    "to half floats": lambda: (
        lambda x: Q.dequantize_per_tensor.default(x, 0.03, 5, *INT8, out_dtype=torch.float16),
        torch.arange(-128, 128).to(torch.int8),
    ),
    "scales as tensors": lambda: (
        lambda x: Q.dequantize_per_tensor.tensor(
            Q.quantize_per_tensor.tensor(x, ONE_SCALE, ONE_ZERO, *INT8), ONE_SCALE, ONE_ZERO, *INT8
        ),
        X,
    ),
    "per channel": lambda: (lambda x: Q.quantize_per_channel.default(x, SCALES, ZEROS, 1, *INT8), X),
    "per channel and back": lambda: (
        lambda x: Q.dequantize_per_channel.default(
            Q.quantize_per_channel.default(x, SCALES, ZEROS, 0, *INT8), SCALES, ZEROS, 0, *INT8
        ),
        X.t().contiguous(),
    ),
    "per channel without zero points": lambda: (
        lambda x: Q.dequantize_per_channel.default(x, SCALES, None, 1, *INT8),
        torch.arange(-8, 8).view(2, 8).to(torch.int8),
    ),
    "groups of columns": lambda: (
        lambda x: Q.dequantize_per_channel_group.default(
            Q.quantize_per_channel_group.default(x, GROUP_SCALES, GROUP_ZEROS, -8, 7, torch.int8, 4),
            GROUP_SCALES, GROUP_ZEROS, -8, 7, torch.int8, 4, torch.float32,
        ),
        X,
    ),
    "per token, which PyTorch expands": lambda: (
        lambda x: Q.quantize_per_token.default(x, SCALES[:6, None], ZEROS[:6, None], *INT8), X,
    ),
    "fake": lambda: (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.03, 5, -128, 127), X),
    "fake, with tensors": lambda: (
        lambda x: torch.fake_quantize_per_tensor_affine(x, ONE_SCALE, ONE_ZERO.int(), -128, 127), X,
    ),
    "fake, per channel": lambda: (
        lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 1, -128, 127), X,
    ),
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_quantising_is_exact(target: str) -> None:
    cases = [case() for case in EXACT.values()]
    functions, inputs = [f for f, _ in cases], [x for _, x in cases]

    def all_of(*xs: Tensor) -> list[Tensor]:
        return [f(x) for f, x in zip(functions, xs, strict=True)]

    found = ran(lowered(all_of, *inputs, target=target), *inputs)
    for name, actual, wanted in zip(EXACT, found, all_of(*inputs), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, msg=lambda m, name=name: f"{name}: {m}")


def dynamic(x: Tensor, symmetric: bool) -> tuple[Tensor, Tensor]:
    choose = Q.choose_qparams_symmetric.tensor if symmetric else Q.choose_qparams.tensor
    scale, zero = choose(x, -128, 127, 1e-7, torch.int8)
    integers = Q.quantize_per_tensor.tensor(x, scale, zero, *INT8)
    return integers, Q.dequantize_per_tensor.tensor(integers, scale, zero, *INT8)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_scales_that_come_from_the_data(target: str) -> None:
    def model(x: Tensor, y: Tensor) -> list[Tensor]:
        return [*dynamic(x, False), *dynamic(x, True), *dynamic(y, False)]

    inputs = (X, X.abs() + 1)
    found = ran(lowered(model, *inputs, target=target), *inputs)
    for actual, wanted in zip(found, model(*inputs), strict=True):
        # TOSA divides by multiplying with a reciprocal.
        atol = 0 if target != "tosa" else 1 if actual.dtype is torch.int8 else 0.06
        torch.testing.assert_close(actual, wanted, rtol=0, atol=atol)


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (Q.choose_qparams.tensor, (X, -128, 127, 1e-7, torch.int8)),
    (Q.choose_qparams_symmetric.tensor, (X, -128, 127, 1e-7, torch.int8)),
    (Q.quantize_per_tensor.tensor, (X, ONE_SCALE, ONE_ZERO, *UINT8)),
    (Q.dequantize_per_tensor.tensor, (X.to(torch.int8), ONE_SCALE, ONE_ZERO, *INT8)),
]


@pytest.mark.parametrize("op, args", CALLS, ids=[str(op) for op, _ in CALLS])
def test_types_are_those_of_pytorch(op: Any, args: tuple[Any, ...]) -> None:
    rule = infer_rules().get(str(op))
    assert rule is not None

    def meta(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return dtypes.from_torch(value).code
        return Meta(tuple(value.shape), dtypes.from_torch(value.dtype)) if isinstance(value, Tensor) else value

    given = [*args, *[None] * (len(op._schema.arguments) - len(args))]
    found, wanted = rule(*map(meta, given)), op(*args)
    assert found == (tuple(map(meta, wanted)) if isinstance(wanted, tuple) else meta(wanted))


def test_a_scale_in_64_bits_cannot_leave_tosa() -> None:
    with pytest.raises(flambeau.CompileError, match="TOSA has no 64-bit floats"):
        lowered(lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8), X)


def test_scales_zero_points_and_biases_stand_in_the_text() -> None:
    # 200 channels are more than the text takes of other constants.
    module = flambeau.compile(Dense(8, 200), (X,), output_type="torch")
    assert re.findall(r"dense_resource<([\w.]+)>", str(module)) == ["integers.weight"]
    assert list(module.weights.tensors) == ["integers.weight"]
    plain = flambeau.compile(nn.Linear(8, 200), (X,), output_type="torch")
    assert sorted(plain.weights.tensors) == ["bias", "weight"]


# --- Integer arithmetic in TOSA ---


class Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int, per_channel: bool = True, zero: int = 0, bias: bool = True) -> None:
        super().__init__()
        self.integers, self.has_bias = Integers((outputs, inputs), per_channel, zero=zero), bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(qdq(x, 0.03, 3), self.integers(), self.integers.bias if self.has_bias else None)


class Convolution(nn.Module):
    def __init__(self, shape: Sequence[int], per_channel: bool = True, zero: int = 0, **options: Any) -> None:
        super().__init__()
        self.integers, self.options, self.dims = Integers(shape, per_channel, zero=zero), options, len(shape) - 2

    def forward(self, x: Tensor) -> Tensor:
        convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[self.dims]
        return convolve(qdq(x, 0.03, -7), self.integers(), self.integers.bias, **self.options)


class Then(nn.Module):
    """A model whose result is quantised."""

    def __init__(self, *models: Any, scale: float = 0.08, zero: int = -5, kind: Any = INT8) -> None:
        super().__init__()
        self.models = nn.ModuleList(m for m in models if isinstance(m, nn.Module))
        self.steps, self.parameters_ = models, (scale, zero, *kind)

    def forward(self, *x: Tensor) -> Tensor:
        for step in self.steps:
            x = (step(*x),)
        return Q.quantize_per_tensor.default(x[0], *self.parameters_)


def integer_part(text: str) -> str:
    """Return the lines after the input is quantised."""
    lines = text.splitlines()
    last = max(i for i, line in enumerate(lines) if "xf32>" in line)
    return "\n".join(lines[last + 1 :])


LINEARS = list(itertools.product((True, False), (0, 9), (True, False)))
LINEAR = Steps({str(options): (Then(Dense(8, 5, *options)), X) for options in LINEARS})


@pytest.mark.engine
@pytest.mark.parametrize(("per_channel", "zero", "bias"), LINEARS)
def test_linear_is_a_matmul_of_8_bits_and_a_rescale(per_channel: bool, zero: int, bias: bool) -> None:
    text = LINEAR.check(str((per_channel, zero, bias)))
    assert re.search(r"tosa\.matmul .*xi8>.*xi8>.* -> tensor<1x6x5xi32>", text)
    assert f"per_channel = {str(per_channel).lower()}" in text
    assert ops_of(text).count("rescale") == 1
    assert ops_of(text)[-2 - bias :] == ["reshape", *["add"] * bias, "rescale"]
    assert "f32" not in integer_part(text)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((4, 3, 3, 3), (2, 3, 9, 8), {}),
    "strided": ((4, 3, 3, 3), (2, 3, 9, 8), {"padding": 1, "stride": 2}),
    "dilated": ((4, 3, 3, 2), (3, 9, 8), {"padding": (1, 0), "dilation": 2}),
    "in groups": ((4, 2, 3, 3), (1, 4, 7, 7), {"groups": 2, "padding": 1}),
    "depthwise": ((8, 1, 3, 3), (1, 4, 7, 7), {"groups": 4, "padding": 1}),
    "in one dim": ((4, 3, 3), (2, 3, 9), {"padding": 1}),
    "in three dims": ((4, 3, 2, 2, 2), (1, 3, 4, 5, 4), {}),
}
CONVOLVED = Steps(
    {
        name: (
            Then(Convolution(shape, **options), torch.relu, scale=0.07, zero=-128),
            torch.randn(x_shape, generator=torch.Generator().manual_seed(1)) * 2,
        )
        for name, (shape, x_shape, options) in CONVOLUTIONS.items()
    }
)


@pytest.mark.engine
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_takes_8_bits_and_gives_32(name: str) -> None:
    text = CONVOLVED.check(name)
    assert re.search(r"tosa\.(depthwise_)?conv[23]d .*acc_type = i32", text)
    assert "per_channel = true" in text
    assert "f32" not in integer_part(text)
    # A relu that ends at the zero point is the saturation of the rescale.
    assert "maximum" not in integer_part(text)
    assert "clamp" not in integer_part(text)


@pytest.mark.engine
def test_a_convolution_with_one_scale_and_zero_points_on_both_sides() -> None:
    x = torch.randn(1, 3, 6, 6)
    text = check_step(Then(Convolution((4, 3, 3, 3), per_channel=False, zero=11, padding=1)), x)
    assert "per_channel = false" in text


@pytest.mark.engine
def test_dynamic_sizes_keep_the_integers() -> None:
    model, shapes = Then(Dense(8, 5)), {"x": ({0: torch.export.Dim("n", min=2, max=64)},)}
    text = check_step(model, X, dynamic_shapes=shapes)
    assert "tensor<?x5xi8>" in text
    assert "rescale" in text


@pytest.mark.engine
def test_a_relu_that_does_not_end_at_the_zero_point_is_a_clamp() -> None:
    text = check_step(Then(Dense(8, 5), torch.relu, scale=0.05, zero=-20), X)
    assert re.search(r"tosa\.clamp .*max_val = 127 : i8, min_val = -20 : i8", text)
    text = check_step(Then(Dense(8, 5), nn.ReLU6(), scale=0.06, zero=-20), X)
    assert re.search(r"tosa\.clamp .*max_val = 80 : i8, min_val = -20 : i8", text)


@pytest.mark.engine
def test_unsigned_activations() -> None:
    def model(x: Tensor) -> Tensor:
        y = F.linear(qdq(x, 0.03, 120, UINT8), weight(), weight.bias)
        return F.linear(qdq(y, 0.1, 130, UINT8), square(), None)

    weight, square = Integers((8, 8)), Integers((8, 8), seed=1)
    text = check_step(Then(model, scale=0.3, zero=128, kind=UINT8), X)
    assert text.count("output_unsigned = true") == 1, "only the result is unsigned"
    assert ops_of(text).count("matmul") == 2


@pytest.mark.engine
def test_a_result_that_is_not_quantised_is_a_float_of_the_accumulator() -> None:
    model = Dense(8, 5)
    module = lowered(model, X)
    assert re.search(r"tosa\.matmul .* -> tensor<1x6x5xi32>", str(module))
    torch.testing.assert_close(ran(module, X), model(X), rtol=1e-4, atol=1e-3)


@pytest.mark.engine
def test_a_bias_that_is_quantised_itself_is_used_as_it_is() -> None:
    weight = Integers((5, 8), per_channel=False)
    integers = torch.tensor([100, -2000, 30000, 4, 5], dtype=torch.int32)

    def model(x: Tensor) -> Tensor:
        limits = (-(2**31), 2**31 - 1, torch.int32)
        bias = Q.dequantize_per_tensor.default(integers, 0.02 * 0.01, 0, *limits)
        return F.linear(qdq(x, 0.02, 3), weight(), bias)

    text = check_step(Then(model), X)
    assert "dense<[[100, -2000, 30000, 4, 5]]> : tensor<1x5xi32>" in text


BINARY = {"add": torch.add, "mul": torch.mul}


@pytest.mark.engine
@pytest.mark.parametrize("op", BINARY)
def test_elementwise_ops_on_integers(op: str) -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return BINARY[op](qdq(x, 0.03, 3), qdq(y, 0.011, -20))

    y = torch.randn(8, generator=torch.Generator().manual_seed(2))
    text = check_step(Then(model, scale=0.06), X, y)
    assert ops_of(text).count("rescale") == (3 if op == "add" else 1)
    assert re.search(rf"tosa\.{op} .*xi32>.* -> tensor<6x8xi32>", text)


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "padded max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "mean": lambda x: x.mean([2, 3]),
    "moves": lambda x: x.permute(0, 2, 3, 1).flatten(1)[:, 3:].unsqueeze(0),
    "cat": lambda x: torch.cat([x, x.flatten(2).view(x.shape)], 1),
}


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
POOLED = Steps(
    {
        name: (Then(lambda x, pool=pool: pool(qdq(x, 0.03, 3)), scale=0.03, zero=3), IMAGE)
        for name, pool in POOLS.items()
    }
)


@pytest.mark.engine
@pytest.mark.parametrize("pool", POOLS)
def test_pools_and_moves_stay_in_integers(pool: str) -> None:
    text = POOLED.check(pool)
    assert "f32" not in integer_part(text)
    if "max" in pool:
        assert re.search(r"tosa\.max_pool2d .*xi8>", text)
        assert "rescale" not in text, "the result has the steps of the input"


@pytest.mark.engine
def test_what_has_no_integer_rule_is_computed_in_floats() -> None:
    check_step(Then(lambda x: torch.tanh(qdq(x, 0.03, 3)), scale=1 / 128, zero=0), X)
    # A weight whose channels have different zero points.
    weight = Integers((5, 8))
    weight.zeros += torch.arange(5)
    text = check_step(Then(lambda x: F.linear(qdq(x, 0.03, 3), weight())), X)
    assert "rescale" not in text


@pytest.mark.engine
def test_a_bias_that_32_bits_cannot_hold_is_a_float() -> None:
    model = Dense(8, 5)
    model.integers.weight[2], model.integers.scales[2] = 0, 1e-9
    text = check_step(Then(model), X)
    assert "rescale" not in text


@pytest.mark.engine
def test_weights_alone_in_8_bits() -> None:
    weight = Integers((5, 8))
    for target in TARGETS:
        found = ran(lowered(lambda x: F.linear(x, weight(), weight.bias), X, target=target), X)
        torch.testing.assert_close(found, F.linear(X, weight(), weight.bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1, 1 / 3, 1e-6, 1e-12, 255.9, 0.99999999999, 2.0**-40])
def test_multipliers_are_close_to_the_ratio(ratio: float) -> None:
    found = _multiplier(ratio)
    assert found is not None
    multiplier, shift = found
    assert 2 <= shift <= 62
    assert 0 <= multiplier < 1 << 31
    assert multiplier / 2**shift == pytest.approx(ratio, rel=1e-9 if ratio > 1e-8 else 1e-3)


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("inf"), float("nan"), 2.0**40])
def test_ratios_that_no_multiplier_reaches(ratio: float) -> None:
    assert _multiplier(ratio) is None


# --- Whole models ---


class Block(nn.Module):
    """A convolution, a residual sum, pools and a classifier, quantised after each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Integers((8, 3, 3, 3), seed=4), Integers((8, 8, 3, 3), seed=5)
        self.depthwise, self.head = Integers((8, 1, 3, 3), seed=6), Integers((10, 8), seed=7)

    def forward(self, x: Tensor) -> Tensor:
        x = qdq(x, 0.02, 1)
        x = qdq(torch.relu(F.conv2d(x, self.first(), self.first.bias, padding=1)), 0.05, -128)
        y = qdq(F.conv2d(x, self.second(), self.second.bias, padding=1), 0.4, 7)
        x = qdq(torch.relu(x + y), 0.3, -128)
        x = qdq(F.max_pool2d(x, 2), 0.3, -128)
        x = qdq(F.hardtanh(F.conv2d(x, self.depthwise(), self.depthwise.bias, groups=8), 0.0, 60.0), 0.25, -128)
        x = qdq(F.adaptive_avg_pool2d(x, (1, 1)), 0.12, -128)
        return Q.quantize_per_tensor.default(F.linear(torch.flatten(x, 1), self.head(), self.head.bias), 0.2, 4, *INT8)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Integers((32, 16), seed=8), Integers((16, 32), per_channel=False, seed=9)
        self.third = Integers((5, 16), seed=10)

    def forward(self, x: Tensor) -> Tensor:
        x = qdq(x, 0.02, -3)
        x = qdq(torch.relu(F.linear(x, self.first(), self.first.bias)), 0.05, -128)
        x = qdq(F.linear(x, self.second(), self.second.bias), 0.4, 10)
        return Q.quantize_per_tensor.default(F.linear(x, self.third(), self.third.bias), 0.8, 2, *INT8)


MODELS = {"CNN": (Block, (2, 3, 12, 12)), "MLP": (Layers, (7, 16))}


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_whole_models(model: str, target: str) -> None:
    make, shape = MODELS[model]
    net, x = make(), torch.randn(shape, generator=torch.Generator().manual_seed(11))
    module = lowered(net, x, target=target)
    found, wanted = ran(module, x), net(x)
    assert wanted.unique().numel() > 5, "the test says something"
    distance = (found.int() - wanted.int()).abs()
    if target == "tosa":
        assert distance.max() <= 1
        assert "f32" not in integer_part(str(module))
    else:
        assert torch.equal(found, wanted)


@pytest.mark.peer
@pytest.mark.parametrize("model", MODELS)
def test_torch_mlir_reads_and_verifies_the_generic_form(model: str) -> None:
    from torch_mlir.ir import Context, Module

    make, shape = MODELS[model]
    module = lowered(make(), torch.randn(shape))
    with Context():
        assert Module.parse(generic_text(module.op)).operation.verify()


@pytest.mark.engine
def test_a_model_that_pytorch_quantised() -> None:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx, prepare_fx

    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 5)).eval()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(12))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_fx(copy.deepcopy(net), get_default_qconfig_mapping("x86"), (x,))
        prepared(x)
        quantised = _convert_to_reference_decomposed_fx(prepared)
        wanted = quantised(x)
        for target in TARGETS:
            module = lowered(quantised, x, target=target)
            step = (wanted.unique().diff()).min()
            assert (ran(module, x) - wanted).abs().max() <= step * 1.001
    ops = ops_of(str(module))
    assert {"conv2d", "matmul", "rescale", "max_pool2d"} <= set(ops)
    assert re.search(r"tosa\.max_pool2d .*xi8>", str(module))
