"""Programs in TOSA: equal to eager PyTorch on IREE, legal for torch-mlir and IREE, 64-bit integers by the policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import support
import torch
import torch.nn.functional as F
from support import check, check_all

import flambeau
from flambeau.ir.printing import generic_text
from flambeau.lowering.tosa.lower import lower_to_tosa
from flambeau.lowering.tosa.rules import CANNOT

NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-8, -1e-8, 88.0, -88.0, INF, -INF, NAN])

Case = tuple[Callable[..., Any], tuple[Any, ...]]


@pytest.fixture(autouse=True)
def tosa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "TARGET", "tosa")


def ramp(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that differ and are not in order."""
    count = int(np.prod(sizes))
    return ((torch.arange(count) * 7919) % 1009).reshape(sizes).to(dtype) / (1 if not dtype.is_floating_point else 503)


def compiled(function: Callable[..., Any], *inputs: Any, **options: Any) -> flambeau.Module:
    return flambeau.compile(function, inputs, output_type="tosa", **options)


def op_names(module: flambeau.Module) -> set[str]:
    return {op.name for op in module.op.walk()}


# --- Numbers ---


@pytest.mark.engine
def test_what_tosa_lacks_is_accurate_at_the_edges() -> None:
    functions = [
        torch.sqrt, torch.rsqrt, torch.expm1, torch.log1p, torch.log2, torch.exp2, torch.trunc, torch.round, torch.atan,
        torch.reciprocal, torch.signbit, torch.frac, torch.sigmoid, torch.neg,
    ]  # fmt: skip
    check_all([(f, (EDGES,)) for f in functions])
    near = torch.tensor([0.0, 1e-6, -1e-6, 1e-3, -0.3, 0.7, 0.99, -0.99])
    check_all([(f, (near,)) for f in (torch.expm1, torch.log1p, torch.asin, torch.atanh)], atol=1e-9)
    check(torch.tan, near, atol=1e-6)


@pytest.mark.engine
def test_divisions_and_remainders() -> None:
    x = torch.tensor([6.0, -6.0, 7.5, -7.5, 5.0, 1.0, 0.0, 9.0, INF, 3.0])
    y = torch.tensor([3.0, 3.0, -2.5, 2.0, 5.0, 49.0, 3.0, 0.0, 2.0, INF])
    check_all(
        [
            (torch.div, (x, y)),
            (torch.fmod, (x, y)),
            (torch.remainder, (x, y)),
            (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (x, y)),
            (lambda a, b: torch.div(a, b, rounding_mode="floor"), (x, y)),
            (torch.atan2, (x, y)),
            (torch.copysign, (x, y)),
        ]
    )
    i, j = torch.tensor([7, -7, 7, -7, 6, 0]), torch.tensor([2, 2, -2, -2, 3, 5])
    check_all(
        [
            (lambda a, b: torch.div(a, b, rounding_mode="floor"), (i, j)),
            (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (i, j)),
            (torch.remainder, (i, j)),
            (torch.fmod, (i, j)),
        ]
    )


LARGEST = torch.finfo(torch.float32).max


@pytest.mark.engine
def test_divisors_may_be_the_largest_numbers() -> None:
    x = torch.tensor([INF, -INF, LARGEST, -LARGEST, 1e38, 1.0, -0.0, NAN])
    y = torch.tensor([1.0, LARGEST, -LARGEST, 1.5e38, INF, 1.2e-38])
    check_all(
        [
            (lambda a, b: a[:, None] / b, (x, y)),
            (lambda a, b: torch.atan2(a[:, None], b), (x, y)),
            (lambda a, b: torch.hypot(a[:, None], b), (x, y)),
            (lambda a, b: torch.div(a[:, None], b, rounding_mode="floor"), (x, y[1:5])),
            (F.softsign, (x,)),
            (F.silu, (x,)),
            (torch.logit, (x,)),
            (torch.log1p, (x,)),
        ]
    )


def counted(module: flambeau.Module, name: str) -> int:
    return sum(op.name == f"tosa.{name}" for op in module.op.walk())


def test_divisors_that_cannot_be_large_are_left_alone() -> None:
    x = ramp(4, 4)
    small: list[Callable[..., Any]] = [
        lambda a: a / 3,
        lambda a: 1 / a,
        lambda a: a / (a > 0).sum(),
        lambda a: a / a.half().flip(0).float(),
        lambda a: a.half() / a.half().flip(0),
        lambda a: a / (2 + a.sigmoid() * a.tanh()),
        lambda a: a / (-a.abs()).exp(),
        lambda a: a / a.exp().log().neg(),
        lambda a: a.softmax(-1),
        lambda a: F.normalize(a, dim=-1),
        lambda a: F.layer_norm(a, (4,)),
        F.silu,
    ]
    assert [counted(compiled(f, x), "select") for f in small] == [0] * len(small)
    large: list[Callable[..., Any]] = [
        lambda a: a / a.exp(),
        lambda a: a / (a.flip(0) + 1),
        lambda a: a / (a.flip(0) * 0 + a.exp()),
    ]
    assert [counted(compiled(f, x), "select") for f in large] == [1] * len(large)


@pytest.mark.engine
def test_zeros_keep_their_sign() -> None:
    x = torch.tensor([0.0, -0.0, -0.5, 0.5, -0.4, -1.5, 2.5, 3e9, -3e9, INF, NAN])
    check_all([(lambda v, t=t: torch.signbit(v.to(t).round()), (x,)) for t in (torch.float32, torch.float16)])
    check_all([(torch.round, (x,)), (lambda v: torch.signbit(v.fmod(3)), (x[:-2],))])
    products: list[Callable[..., Any]] = [
        lambda v: v * 0, lambda v: v * torch.zeros(2, 11), lambda v: torch.zeros(11) / v,
        lambda v: torch.ones(2, 11) / v,
    ]  # fmt: skip
    check_all([(f, (x,)) for f in products])
    check_all([(lambda v, f=f: torch.signbit(f(v)), (x[2:9],)) for f in (products[0], lambda v: torch.zeros(7) / v)])
    check_all([(lambda v: torch.signbit(v + 0), (x[:9],)), (lambda v: torch.signbit(v.cumsum(0)), (x[1:2],))])


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nothing_divided_by_nothing_is_nan(dtype: torch.dtype) -> None:
    check(lambda v: torch.nanmean(v, 1), torch.zeros(2, 0, dtype=dtype))


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_of_every_width_wrap_and_compare(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 3, 100, 127, 200 if dtype == torch.uint8 else -100], dtype=dtype)
    y = torch.tensor([1, 1, 2, 100, 3, 7], dtype=dtype)
    check_all(
        [
            (lambda a, b: a + b, (x, y)),
            (lambda a, b: a * b, (x, y)),
            (lambda a, b: a - b, (x, y)),
            (lambda a, b: a // b, (x, y)),
            (lambda a, b: a % b, (x, y)),
            (lambda a, b: (a > b, a == b, a <= b), (x, y)),
            (torch.maximum, (x, y)),
            (lambda a, b: a & b | 1, (x, y)),
            (lambda a: a >> 1, (x,)),
            (lambda a: a.float() / 3, (x,)),
            (lambda a: a.sum(), (x,)),
            (lambda a: a.max(), (x,)),
        ]
    )


@pytest.mark.engine
def test_casts_truncate_and_booleans_are_what_differs_from_zero() -> None:
    x = torch.tensor([0.0, 0.4, -0.6, 1.5, 2.5, -2.5, 100.7])
    targets = (torch.int8, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16)
    check_all([(lambda v, t=t: v.to(t), (x,)) for t in targets])
    check_all([(lambda v, t=t: (v > 0).to(t), (x,)) for t in (torch.float32, torch.float16, torch.int64, torch.uint8)])


@pytest.mark.engine
def test_casts_of_what_no_integer_is() -> None:
    x = torch.tensor([NAN, INF, -INF, LARGEST, -LARGEST, 2.0**31, -(2.0**31), 2147483520.0, 3e9, -3e9, 300.0, -1.0])
    check_all([(lambda v, t=t: v.to(t), (x,)) for t in (torch.uint8, torch.int8, torch.int16, torch.int32)])
    check(lambda v: v.to(torch.int16), x.to(torch.float16))


@pytest.mark.engine
def test_reductions() -> None:
    x = ramp(3, 4, 5)
    some = torch.tensor([[-INF, -INF], [NAN, 1.0], [INF, -INF]])
    check_all(
        [
            (lambda a: a.sum((0, 2)), (x,)),
            (lambda a: a.prod(1), (x,)),
            (lambda a: a.mean(), (x,)),
            (lambda a: a.argmax(1), (x,)),
            (lambda a: (a > 1).all(1), (x,)),
            (lambda a: (a > 1).any(-1, keepdim=True), (x,)),
            (lambda a: torch.softmax(a, 1), (x,)),
            (lambda a: a.var(1), (x,)),
            (lambda a: (a.max(1), a.amin(0), a.argmax(0)), (some,)),
            (lambda a: a.prod(0), (torch.tensor([[2, 3], [4, 5], [6, 7]]),)),
            (lambda a: a.sum(1), (torch.zeros(3, 0),)),
        ]
    )


@pytest.mark.engine
def test_moves() -> None:
    x = ramp(4, 6, 5)
    check_all(
        [
            (lambda a: a.transpose(0, 2).reshape(5, 24), (x,)),
            (lambda a: a[1::2, :, 1:4], (x,)),
            (lambda a: a[:, ::3], (x,)),
            (lambda a: a.flip(0, 2), (x,)),
            (lambda a: torch.cat([a, a[:2]], 0), (x,)),
            (lambda a: F.pad(a, (1, 2, 0, 1), value=3.0), (x,)),
            (lambda a: a.roll(2, 1), (x,)),
            (lambda a: a.expand(2, 4, 6, 5), (x,)),
            (lambda a: a[None, :, 2, None], (x,)),
            (lambda a: a.unfold(1, 3, 2), (x,)),
            (lambda a: torch.cat([a, a[:0]]), (x,)),
        ]
    )


@pytest.mark.engine
def test_reads_and_writes_at_computed_positions() -> None:
    x, rows = ramp(5, 4), torch.tensor([3, 0, 3])
    at = torch.tensor([[0, 1, 2, 0], [4, 4, 4, 4]])
    check_all(
        [
            (lambda a, i: a[i], (x, rows)),
            (lambda a, i: a.index_select(1, i), (x, rows)),
            (lambda a, i: a.gather(0, i), (x, at)),
            (lambda a, i: F.embedding(i, a), (x, at)),
            (lambda a, i: a.scatter(0, i, a[:2] * 10), (x, at)),
            (lambda a, i: a.scatter_add(0, i, a[:2]), (x, at)),
            (lambda a, i: a.scatter_reduce(0, i, a[:2], "amax", include_self=False), (x, at)),
            (lambda a, i: a.index_add(0, i, a[:3]), (x, rows)),
            (lambda a, i: a.index_put((i,), a[:3]), (x, rows)),
            (lambda a: torch.sort(a, 1), (x,)),
            (lambda a: torch.cumsum(a, 0), (x,)),
        ]
    )


# --- Convolutions and windows ---


@pytest.mark.engine
@pytest.mark.parametrize(
    "options",
    [
        {}, {"stride": 2}, {"stride": 2, "padding": 1}, {"stride": 3, "padding": 1, "dilation": 2}, {"padding": (2, 0)},
    ],
)  # fmt: skip
def test_convolutions_end_where_the_input_ends(options: dict[str, Any]) -> None:
    x, w, bias = ramp(2, 3, 9, 10), ramp(4, 3, 3, 3), ramp(4)
    module = check(lambda a, b, c: F.conv2d(a, b, c, **options), x, w, bias)
    assert "tosa.conv2d" in op_names(module)


@pytest.mark.engine
def test_convolutions_of_every_kind() -> None:
    x = ramp(2, 6, 8, 7)
    check_all(
        [
            (lambda a, w: F.conv2d(a, w, groups=6, padding=1), (x, ramp(6, 1, 3, 3))),
            (lambda a, w: F.conv2d(a, w, groups=6, stride=2), (x, ramp(12, 1, 3, 3))),
            (lambda a, w: F.conv2d(a, w, groups=2), (x, ramp(4, 3, 3, 2))),
            (lambda a, w: F.conv1d(a, w, stride=2, padding=1), (ramp(2, 6, 9), ramp(4, 6, 3))),
            (lambda a, w: F.conv3d(a, w, padding=1), (ramp(1, 2, 4, 5, 6), ramp(3, 2, 3, 3, 3))),
            (lambda a, w: F.conv2d(a, w, padding="same"), (x, ramp(4, 6, 2, 3))),
            (lambda a, w: F.conv_transpose2d(a, w, stride=2), (x, ramp(6, 4, 3, 3))),
            (lambda a, w: F.conv_transpose2d(a, w, stride=2, padding=1, output_padding=1), (x, ramp(6, 4, 3, 3))),
            (lambda a, w: F.conv_transpose2d(a, w, groups=2, dilation=2), (x, ramp(6, 2, 3, 3))),
            (lambda a, w: F.conv_transpose1d(a, w, stride=3), (ramp(2, 6, 5), ramp(6, 4, 3))),
        ],
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_depthwise_convolution_is_one_op() -> None:
    names = op_names(compiled(lambda a, w: F.conv2d(a, w, groups=6), ramp(1, 6, 8, 8), ramp(12, 1, 3, 3)))
    assert "tosa.depthwise_conv2d" in names
    assert "tosa.concat" not in names


def test_transposes_that_meet_are_none() -> None:
    """Two convolutions in a row need the channels last once."""
    module = compiled(lambda a, v, w: F.conv2d(F.conv2d(a, v), w), ramp(1, 3, 8, 8), ramp(4, 3, 3, 3), ramp(5, 4, 3, 3))
    transposes = [op for op in module.op.walk() if op.name == "tosa.transpose"]
    # The input, two weights, the result.
    assert len(transposes) == 4


@pytest.mark.engine
def test_poolings() -> None:
    x = ramp(2, 3, 9, 8)
    low = torch.full((1, 1, 2, 3), -INF)
    module = check_all(
        [
            (lambda a: F.max_pool2d(a, 3, 2, 1), (x,)),
            (lambda a: F.max_pool2d(a, 2, ceil_mode=True), (x,)),
            (lambda a: F.max_pool2d(a, 2, dilation=2, stride=1), (x,)),
            (lambda a: F.max_pool2d(a, 2, return_indices=True), (x,)),
            (lambda a: F.avg_pool2d(a, 3, 2, 1), (x,)),
            (lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (x,)),
            (lambda a: F.avg_pool1d(a, 2), (x[0],)),
            (lambda a: F.adaptive_avg_pool2d(a, (3, 4)), (x,)),
            (lambda a: F.max_pool2d(a, 2, 1), (low,)),
        ]
    )
    assert {"tosa.max_pool2d", "tosa.avg_pool2d"} <= op_names(module)


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_accumulate_in_f32(dtype: torch.dtype) -> None:
    x, w = ramp(1, 8, 6, 6, dtype=dtype), ramp(4, 8, 3, 3, dtype=dtype)
    module = check_all([(F.conv2d, (x, w)), (torch.matmul, (x[0, 0], x[0, 1])), (lambda a: a.sum(1), (x,))])
    assert "acc_type = f32" in str(module)


@pytest.mark.engine
def test_products_of_matrices() -> None:
    a, b = ramp(2, 3, 4), ramp(2, 4, 5)
    check_all(
        [
            (torch.matmul, (a, b)),
            (torch.matmul, (a[0], b)),
            (torch.matmul, (a, b[0, :, 0])),
            (F.linear, (a, ramp(6, 4), ramp(6))),
            (F.scaled_dot_product_attention, (ramp(1, 2, 4, 8), ramp(1, 2, 4, 8), ramp(1, 2, 4, 8))),
            (torch.matmul, (torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 8]]))),
        ]
    )


# --- Branches and loops ---


class Branch(torch.nn.Module):
    """Both sides give a float tensor and an integer one, which is 64 bits wide at the border."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x, n: (x + 1, n + 1), lambda x, n: (x * 2, n * 2), (x, n))


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
def test_branches(dynamic: bool) -> None:
    model, n = Branch(), torch.tensor([1, 2])
    check_all([(model, (ramp(3, 4), n)), (model, (-ramp(3, 4), n))], dynamic=dynamic)


@pytest.mark.engine
def test_loops() -> None:
    @torch.jit.script
    def doubled(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        turns = 0
        while bool(x.sum() < 100):
            x, n, turns = x * 2, n + 1, turns + 1
        return x, n, turns

    inputs = torch.ones(3, 4), torch.tensor([1, 2])
    module = compiled(doubled, *inputs)
    assert "scf.while" in op_names(module)
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    support.assert_same(run(*inputs), doubled(*inputs))


# --- Sizes that only the run time knows ---


@pytest.mark.engine
def test_dynamic_sizes() -> None:
    x, w = ramp(3, 4), ramp(5, 4)
    module = check_all(
        [
            (lambda a, v: torch.softmax(F.linear(a, v), -1), (x, w)),
            (lambda a: F.layer_norm(a, (a.shape[-1],)), (x,)),
            (lambda a: (a.transpose(0, 1) * 2).flatten(), (x,)),
            (lambda a, i: F.embedding(i, a), (x, torch.tensor([[2, 0], [1, 1]]))),
            (lambda a: torch.cat([a, a + 1], 1), (x,)),
            (lambda a: a.unsqueeze(1).expand(-1, 3, -1) + 0, (x,)),
        ],
        dynamic=True,
    )
    assert "tensor<?x?xf32>" in str(module)


@pytest.mark.engine
def test_positions_along_dynamic_sizes() -> None:
    """TOSA has no op that counts: they are put together from rows of a constant, and rows of rows."""
    auto = torch.export.Dim.AUTO

    def positions(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(a.shape[0]) * 2 + 1, torch.zeros(a.shape[0] * 2).add(1).cumsum(0)

    module = compiled(positions, torch.zeros(6), dynamic_shapes=({0: auto},))
    run = flambeau.load(module, profile="quick")
    for size in (3, 1023, 1024, 1025, 3000):
        support.assert_same(run(torch.zeros(size)), positions(torch.zeros(size)))
    count = compiled(lambda a: torch.arange(a.shape[0]), torch.zeros(6), dynamic_shapes=({0: auto},))
    assert {name.partition(".")[0] for name in op_names(count)} == {"builtin", "func", "tosa", "tensor", "arith"}
    size = (1 << 20) + 1500
    assert torch.equal(flambeau.load(count, profile="quick")(torch.zeros(size)), torch.arange(size))


@pytest.mark.engine
def test_long_chains_of_ops_on_dynamic_sizes() -> None:
    """Ops whose sizes nobody knows are many branches for IREE, which did not compile or did not run these."""
    x, y = ramp(4, 5) + 0.5, ramp(4, 5) - 3.25
    check_all(
        [
            (lambda a, b: torch.div(a, b, rounding_mode="floor"), (x, y)),
            (F.smooth_l1_loss, (x, y)),
            (lambda a: torch.sort(a, 1)[0], (x,)),
            (lambda a: a.logcumsumexp(0), (x,)),
            (lambda a: torch.special.hermite_polynomial_h(a, 3), (x,)),
        ],
        dynamic=True,
    )


def test_functions_say_that_dynamic_sizes_do_not_broadcast() -> None:
    auto = torch.export.Dim.AUTO
    both = {0: auto}
    module = compiled(torch.add, ramp(4, 5), ramp(4, 5), dynamic_shapes=(both, both))
    assert "torch.assume_strict_symbolic_shapes" in str(module)
    assert "torch.assume_strict_symbolic_shapes" not in str(compiled(torch.add, ramp(4, 5), ramp(4, 5)))
    assert "torch.assume_strict_symbolic_shapes" not in str(compiled(torch.neg, ramp(4, 5), dynamic_shapes=(both,)))


def test_what_needs_a_size_is_refused() -> None:
    auto = torch.export.Dim.AUTO
    with pytest.raises(flambeau.CompileError, match="a convolution whose kernel size is not a constant"):
        compiled(F.conv1d, ramp(2, 3, 9), ramp(4, 3, 2), dynamic_shapes=(None, {2: auto}))


# --- 64-bit integers ---


class Ids(torch.nn.Module):
    """What a language model does with its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(16, 8)
        self.places = torch.nn.Embedding(12, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = (torch.cumsum(mask, 1) * mask).long() + 1
        return self.words(ids) + self.places(places), places


def torch_module(model: Any, *inputs: Any) -> flambeau.Module:
    return flambeau.compile(model, inputs, output_type="torch")


def element_types(module: Any, but: tuple[str, ...] = ()) -> set[str]:
    return {str(r.type.element_type) for op in module.walk() for r in op.results if op.name not in but
            and hasattr(r.type, "element_type")}  # fmt: skip


@pytest.mark.engine
def test_divisors_with_constants_of_many_equal_elements() -> None:
    """How large a divisor can be is told from literals too, also from those that store a number many times."""
    weight = torch.full((10,), 0.5)
    check(lambda x: x / (x.abs() + weight), torch.randn(4, 10))


@pytest.mark.engine
def test_narrow_computes_in_32_bits_and_keeps_the_signature() -> None:
    """S13: 64-bit integers are computed in 32 by default, and the signature keeps them."""
    ids, mask = torch.tensor([[3, 15, 0], [1, 2, 3]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    model = Ids().eval()
    module = check(model, ids, mask)
    text = str(module)
    assert "(%args: tensor<2x3xi64>, %args_1: tensor<2x3xi64>) -> (tensor<2x3x8xf32>, tensor<2x3xi64>)" in text
    casts = [op for op in module.op.walk() if any("i64" in str(t) for t in (*op.operand_types, *op.result_types))]
    assert {op.name for op in casts} <= {"tosa.cast", "func.return", "func.func"}


def test_keep_leaves_64_bits() -> None:
    ids, mask = torch.tensor([[3, 15, 0], [1, 2, 3]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    kept = lower_to_tosa(torch_module(Ids().eval(), ids, mask).op, int64="keep")
    kept.verify()
    sums = [op for op in kept.walk() if op.name == "tosa.add" and "i64" in str(op.results[0].type)]
    assert sums
    gathers = [op for op in kept.walk() if op.name == "tosa.gather"]
    assert all("i32" in str(op.operand_types[1]) for op in gathers)


def test_a_constant_that_does_not_fit_is_refused() -> None:
    x = torch.tensor([1, 2, 3])
    with pytest.raises(flambeau.CompileError, match=r"the constant 5000000000 does not fit 32 bits") as caught:
        compiled(lambda a: a + 5_000_000_000, x)
    assert 'int64="keep"' in str(caught.value)
    kept = lower_to_tosa(torch_module(lambda a: a + 5_000_000_000, x).op, int64="keep")
    assert "5000000000" in str(kept)


@pytest.mark.engine
def test_the_ends_of_64_bits_mean_the_ends_of_32() -> None:
    lowest, highest = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    text = str(compiled(lambda a: torch.where(a > 0, a, highest).minimum(torch.tensor(lowest)), torch.tensor([1, -2])))
    assert "dense<2147483647> : tensor<1xi32>" in text
    assert "dense<-2147483648>" in text
    x = torch.tensor([NAN, INF, -INF, 3e9, -3e9, 7.0])
    ends = flambeau.load(compiled(lambda v: v.long(), x), profile="quick")(x)
    assert ends.tolist() == [-(2**31), -(2**31), -(2**31), 2**31 - 1, -(2**31), 7]
    check(lambda v: v.long().clamp(0, 5), x)


@pytest.mark.engine
def test_integers_that_outgrow_32_bits_need_64() -> None:
    x = torch.tensor([[2**31 - 1, 1], [2, 3]], dtype=torch.int32)
    for function in (torch.sum, lambda v: v.cumsum(1)):
        module = compiled(function, x, options={"int64": "keep"})
        assert torch.equal(flambeau.load(module, profile="quick")(x), function(x))


@pytest.mark.engine
def test_64_bits_are_gathered_and_sorted() -> None:
    x = torch.tensor([5, -(2**40), 2**63 - 1, -(2**63), 2**31, -1])

    def moved(v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return v[torch.tensor([3, 2, -1])], v.sort()[0], v.index_fill(0, torch.tensor([1]), 2**33)

    results = flambeau.load(compiled(moved, x, options={"int64": "keep"}), profile="quick")(x)
    assert all(torch.equal(r, e) for r, e in zip(results, moved(x), strict=True))


@pytest.mark.engine
def test_64_bits_and_floats_are_cast_to_each_other() -> None:
    """TOSA has only casts between 32 and 64 bits, and between 32 bits and floats."""
    random = torch.Generator().manual_seed(0)
    limits = (2**63 - 1, 2**40, 2**33, 2**26)
    whole = torch.cat([torch.randint(-limit, limit, (500,), generator=random) for limit in limits])
    ends = [0, 1, -1, 2**63 - 1, -(2**63), 2**31, 2**30, 2**30 - 1, 2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1]
    whole = torch.cat([whole, torch.tensor(ends)])
    floats = torch.cat([torch.randn(500, generator=random) * 2.0**k for k in (61, 40, 31, 5)])
    floats = torch.cat([floats, torch.tensor([NAN, INF, -INF, 3e9, -3e9, -0.0, 9e18, 1e19, -(2.0**63)])])
    casts: list[tuple[torch.Tensor, list[torch.dtype]]] = [
        (whole, [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool]),
        (floats, [torch.int64, torch.int32]),
        (floats.bfloat16(), [torch.int64]),
    ]
    for x, dtypes in casts:

        def convert(v: torch.Tensor, dtypes: list[torch.dtype] = dtypes) -> tuple[torch.Tensor, ...]:
            return tuple(v.to(d) for d in dtypes)

        results = flambeau.load(compiled(convert, x, options={"int64": "keep"}), profile="quick")(x)
        assert all(torch.equal(r, e) for r, e in zip(results, convert(x), strict=True))


def test_the_policy_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="'narrow' or 'keep'"):
        lower_to_tosa(torch_module(torch.neg, ramp(2)).op, int64="wrap")


# --- Reasons ---

REFUSED: dict[str, Case] = {
    "aten.view_as_complex": (lambda a: torch.view_as_complex(a).real, (ramp(3, 2),)),
    "aten.complex": (lambda a: torch.complex(a, a).real, (ramp(3),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tosa_cannot_express_is_named(name: str) -> None:
    function, inputs = REFUSED[name]
    with pytest.raises(flambeau.CompileError) as caught:
        compiled(function, *inputs)
    found = {d.op: d.reason for d in caught.value.diagnostics}
    assert CANNOT[name] in found[name]


@pytest.mark.parametrize(
    ("function", "dtype", "reason"),
    [
        (lambda a: a * 2 + 1, torch.float64, "TOSA has no 64-bit floats"),
        (lambda a: a * 2 + 1, torch.complex64, "TOSA has no complex numbers"),
        (lambda a: a.view(torch.int32) + 1, torch.float32, "reads the bits of a number as another type"),
    ],
)
def test_types_that_tosa_lacks_are_refused(function: Callable[..., Any], dtype: torch.dtype, reason: str) -> None:
    with pytest.raises(flambeau.CompileError, match=reason):
        compiled(function, torch.ones(3).to(dtype))


# --- Readers ---

PROGRAMS: list[Case] = [
    (lambda a, w, b: F.relu(F.conv2d(a, w, b, padding=1)), (ramp(1, 3, 5, 5), ramp(4, 3, 3, 3), ramp(4))),
    (lambda a, w: F.conv_transpose2d(a, w, stride=2), (ramp(1, 3, 5, 5), ramp(3, 4, 3, 3))),
    (lambda a: F.avg_pool2d(F.max_pool2d(a, 2), 2), (ramp(1, 3, 9, 9),)),
    (lambda a, b: torch.softmax(a @ b, -1), (ramp(2, 3, 4), ramp(2, 4, 5))),
    (lambda a, i: F.embedding(i, a), (ramp(5, 4), torch.tensor([1, 4]))),
    (lambda a: (a // 3 % 2, a > 1, a << 1, a.sum()), (torch.tensor([1, 2, 3], dtype=torch.int16),)),
    (lambda a: (torch.expm1(a), torch.atan(a), a.round(), a.argmax(), torch.erf(a)), (ramp(6),)),
    (lambda a: (a[:, ::2], a.flip(1), F.pad(a, (1, 1)), torch.cat([a, a])), (ramp(4, 5),)),
    (lambda a, i: a.scatter_add(0, i, a), (ramp(4), torch.tensor([0, 0, 1, 2]))),
]


@pytest.mark.peer
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_torch_mlir_reads_and_verifies_the_generic_form(number: int) -> None:
    from torch_mlir.ir import Context, Module

    function, inputs = PROGRAMS[number]
    module = compiled(function, *inputs)
    module.op.verify()
    with Context():
        assert Module.parse(generic_text(module.op)).operation.verify()


@pytest.mark.engine
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_iree_runs_them(number: int) -> None:
    """S92: what TOSA makes of the ops runs on IREE."""
    check(*(PROGRAMS[number][0], *PROGRAMS[number][1]), rtol=1e-4)


@pytest.mark.engine
def test_what_is_padded_loses_against_negative_integers() -> None:
    x = -torch.arange(1, 73).reshape(1, 1, 6, 3, 4)
    check(lambda x: F.max_pool3d(x, (2, 2, 3), padding=1, dilation=(2, 1, 1)), x, dynamic=True)
