"""linalg with the option `tm_tensor`: which ops become which, and what they compute by torch-mlir's own lowering."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_mlir_runtime
from support import assert_matches, assert_same
from torch.utils._pytree import tree_leaves

import flambeau
from flambeau.engines.errors import EngineError
from flambeau.testing.cases import Suite
from flambeau.testing.suites import load_suite

Function = Callable[..., Any]
aten = torch.ops.aten


def compiled(function: Function, *inputs: torch.Tensor, dynamic: bool = False) -> flambeau.Module:
    shapes = None
    if dynamic:
        shapes = {"args": tuple({i: torch.export.Dim.AUTO for i in range(x.dim())} for x in inputs)}
    return flambeau.compile(function, inputs, dynamic_shapes=shapes, options={"tm_tensor": True})


def check(op: str | None, function: Function, *inputs: torch.Tensor, dynamic: bool = False) -> flambeau.Module:
    """Check that the program has this op, or none of the dialect, and gives what PyTorch does."""
    module = compiled(function, *inputs, dynamic=dynamic)
    text = str(module)
    assert f"tm_tensor.{op}" in text if op else "tm_tensor." not in text
    expected = function(*(x.clone() for x in inputs))
    assert_same(torch_mlir_runtime.run(module, *inputs), [*expected] if isinstance(expected, tuple) else [expected])
    return module


NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([[1.0, NAN, -0.0, INF, 0.0], [NAN, -INF, 2.0, 2.0, NAN], [0.0, -0.0, 1.0, -1.0, INF]])
INTEGERS = torch.tensor([[3, -1, 3], [0, 7, -9]])


# --- Text ---


def test_a_sort_compares_as_pytorch_does_and_leaves_equal_elements() -> None:
    assert_matches(
        compiled(lambda x: torch.sort(x, 1), torch.ones(3, 5)),
        """
        CHECK:      func.func @main(%[[x:.*]]: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xi64>)
        CHECK:      tm_tensor.sort dimension(1) outs(%[[x]], %{{.*}} : tensor<3x5xf32>, tensor<3x5xi64>) {
        CHECK-NEXT: ^bb0(%[[a:.*]]: f32, %[[b:.*]]: f32, %{{.*}}: i64, %{{.*}}: i64):
        CHECK-NEXT:   %[[ordered:.*]] = arith.cmpf ole, %[[a]], %[[b]] : f32
        CHECK-NEXT:   %[[nan:.*]] = arith.cmpf uno, %[[b]], %[[b]] : f32
        CHECK-NEXT:   %[[stay:.*]] = arith.ori %[[ordered]], %[[nan]] : i1
        CHECK-NEXT:   tm_tensor.yield %[[stay]] : i1
        CHECK-NEXT: } -> tensor<3x5xf32>, tensor<3x5xi64>
        """,
    )


def test_topk_is_the_first_part_of_a_sort() -> None:
    assert_matches(
        compiled(lambda x: torch.topk(x, 1, 0), INTEGERS),
        """
        CHECK:      tm_tensor.sort dimension(0)
        CHECK:        arith.cmpi sle
        CHECK-NEXT:   tm_tensor.yield
        CHECK:      tensor.extract_slice %{{.*}}[0, 0] [1, 3] [1, 1]
        CHECK-NEXT: tensor.extract_slice %{{.*}}[0, 0] [1, 3] [1, 1]
        """,
    )


def test_a_running_product_is_a_scan() -> None:
    assert_matches(
        compiled(lambda x: torch.cumprod(x, 1), torch.ones(3, 5)),
        """
        CHECK:      %[[one:.*]] = arith.constant 1.000000e+00 : f32
        CHECK:      tm_tensor.scan dimension(1) inclusive(true) ins(%{{.*}} : tensor<3x5xf32>) outs(%{{.*}} : tensor<3x5xf32>, tensor<3xf32>) {
        CHECK-NEXT: ^bb0(%[[before:.*]]: f32, %[[here:.*]]: f32):
        CHECK-NEXT:   %[[product:.*]] = arith.mulf %[[before]], %[[here]] : f32
        CHECK-NEXT:   tm_tensor.yield %[[product]] : f32
        """,  # noqa: E501
    )


def test_an_update_is_combined_in_the_region_of_a_scatter() -> None:
    x, i, v = torch.ones(3, 5), torch.tensor([0, 2]), torch.ones(2, 5)
    assert_matches(
        compiled(lambda x, i, v: torch.index_put(x, [i], v, True), x, i, v),
        """
        CHECK:      cf.assert %{{.*}}, "index out of range"
        CHECK:      tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%{{.*}} : tensor<2x5xf32>, tensor<2x1xi64>) outs(%{{.*}} : tensor<3x5xf32>) {
        CHECK-NEXT: ^bb0(%[[new:.*]]: f32, %[[old:.*]]: f32):
        CHECK-NEXT:   %[[sum:.*]] = arith.addf %[[old]], %[[new]] : f32
        CHECK-NEXT:   tm_tensor.yield %[[sum]] : f32
        """,  # noqa: E501
    )


def test_attention_is_one_op_on_a_batch_of_matrices() -> None:
    q, k, v = torch.ones(2, 3, 6, 4), torch.ones(2, 3, 7, 4), torch.ones(2, 3, 7, 5)
    assert_matches(
        compiled(F.scaled_dot_product_attention, q, k, v),
        """
        CHECK:      tm_tensor.attention ins(%{{.*}} : tensor<6x6x4xf32>, tensor<6x7x4xf32>, tensor<6x7x5xf32>)
        CHECK-SAME: outs(%{{.*}} : tensor<6x6x5xf32>) -> tensor<6x6x5xf32>
        """,
    )


def test_without_the_option_there_are_loops() -> None:
    assert "tm_tensor" not in str(flambeau.compile(lambda x: torch.sort(x, 1), (ODD,)))


def test_iree_refuses_the_ops_and_says_what_to_do() -> None:
    module = compiled(lambda x: torch.sort(x, 1), ODD)
    with pytest.raises(EngineError, match="compile without the option tm_tensor"):
        flambeau.load(module, engine="iree")


# --- Values ---

SORTED = [ODD, ODD.half(), ODD.double(), INTEGERS, INTEGERS.to(torch.uint8), INTEGERS > 0, torch.ones(0, 3)]


@pytest.mark.peer
@pytest.mark.parametrize("x", SORTED, ids=lambda x: f"{x.dtype}{list(x.shape)}")
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_stable_and_put_nan_where_pytorch_does(x: torch.Tensor, descending: bool) -> None:
    check("sort", lambda x: torch.sort(x, dim=-1, descending=descending, stable=True), x)
    check("sort", lambda x: torch.sort(x, dim=0, descending=descending, stable=True), x)


@pytest.mark.peer
@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest: bool) -> None:
    x = torch.tensor([[1.0, NAN, 5.0, -INF, 0.0], [4.0, -INF, 2.0, 3.0, NAN]])
    for k in (0, 1, 3, 5):
        check("sort", lambda x, k=k: torch.topk(x, k, largest=largest), x)
    check("sort", lambda x: torch.topk(x, 2, largest=largest), x, dynamic=True)
    check(None, lambda x: torch.topk(x, 1, largest=largest), torch.tensor(3.0))


@pytest.mark.peer
@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod])
def test_scans(scan: Function) -> None:
    for x in (ODD, torch.randn(3, 4, 5), INTEGERS, INTEGERS > 0, torch.randn(9).half(), torch.randn(4).cfloat()):
        for dim in range(x.dim()):
            check("scan", lambda x, dim=dim: scan(x, dim), x)
    check("scan", lambda x: scan(x, 1), torch.randn(3, 4), dynamic=True)
    check("scan", lambda x: scan(x, 0, dtype=torch.float64), INTEGERS)
    check(None, lambda x: scan(x, 0), torch.tensor(3))


@pytest.mark.peer
def test_a_negative_zero_does_not_survive_a_running_sum() -> None:
    found = torch_mlir_runtime.run(
        compiled(lambda x: x.cumsum(0), torch.tensor([-0.0, -0.0])), torch.tensor([-0.0, -0.0])
    )
    assert not torch.signbit(found[0]).any()


X, ROWS, SRC = torch.randn(4, 5, 3), torch.tensor([2, 0, 2, 3]), torch.randn(4, 5, 3)
INDEX = torch.randint(0, 4, (4, 2, 3))
SCATTERS: list[tuple[Function, tuple[torch.Tensor, ...]]] = [
    (lambda x, i, v: torch.index_put(x, [i], v), (X, ROWS, SRC)),
    (lambda x, i, v: torch.index_put(x, [i], v, True), (X, ROWS - 4, SRC)),
    (lambda x, i, v: aten.index_put(x, [None, i, i], v, True), (X, torch.tensor([0, 2, 0]), torch.randn(4, 3))),
    (lambda x, i, v: aten.index_put(x, [i, None, i], v, True), (X, torch.tensor([0, 2, 0]), torch.randn(5))),
    (lambda x, i, v: torch.scatter(x, 0, i, v), (X, INDEX, SRC)),
    (lambda x, i: torch.scatter(x, 1, i, 7.0), (X, INDEX)),
    (lambda x, i, v: torch.scatter_add(x, 0, i, v), (X, INDEX, SRC)),
    (lambda x, i, v: torch.scatter_add(x, 1, i, v), (X.half(), INDEX, SRC.half())),
    (lambda x, i, v: torch.scatter_add(x, 0, i, v), (X.long(), INDEX, SRC.long())),
    (lambda x, i, v: torch.index_add(x, 0, i, v, alpha=2), (X, ROWS, SRC)),
    (lambda x, i, v: torch.index_add(x, 1, i, v), (X, torch.tensor([4, 4]), SRC[:, :2])),
    (lambda x, i, v: torch.index_copy(x, 2, i, v), (X, torch.tensor([1]), SRC[:, :, :1])),
    (lambda x, i: torch.index_fill(x, 1, i, -1.0), (X, torch.tensor([1, -1]))),
    (lambda x, i, v: torch.index_put(x, [i], v), (X > 0, ROWS, SRC > 0)),
    (lambda x, i, v: torch.scatter_add(x, 0, i, v), (X.cfloat(), INDEX, SRC.cfloat())),
]  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("number", range(len(SCATTERS)))
@pytest.mark.parametrize("dynamic", [False, True])
def test_scatters(number: int, dynamic: bool) -> None:
    function, inputs = SCATTERS[number]
    check("scatter", function, *inputs, dynamic=dynamic)


@pytest.mark.peer
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_reductions_of_updates(reduce: str, include_self: bool) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.scatter_reduce(x, 0, i, v, reduce, include_self=include_self)

    check("scatter", function, X, INDEX, SRC)


@pytest.mark.peer
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, dynamic: bool) -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    for batch in [(2, 3), (2,), ()]:
        q, k, v = (torch.randn(*batch, *sizes) for sizes in ((6, 4), (7, 4), (7, 5)))
        check("attention", function, q, k, v, dynamic=dynamic)


MASK = torch.tensor([[True, False], [False, False]])
ATTENTIONS: list[tuple[str | None, Function, tuple[torch.Tensor, ...]]] = [
    ("attention", lambda q: F.scaled_dot_product_attention(q, q, q, scale=0.5), (torch.randn(2, 2, 4),)),
    (None, lambda q: F.scaled_dot_product_attention(q, q, q, scale=0.7), (torch.randn(2, 2, 4),)),
    (None, lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (torch.randn(2, 2, 4), MASK)),
    (None, lambda q: F.scaled_dot_product_attention(q, q, q), (torch.randn(2, 2, 4).half(),)),
    (None, lambda q, k: F.scaled_dot_product_attention(q, k, k), (torch.randn(2, 2, 4), torch.randn(1, 3, 4))),
    (
        None,
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (torch.randn(1, 4, 3, 4), torch.randn(1, 2, 3, 4)),
    ),
]


@pytest.mark.peer
@pytest.mark.parametrize("number", range(len(ATTENTIONS)))
def test_attention_is_an_op_only_where_that_means_the_same(number: int) -> None:
    op, function, inputs = ATTENTIONS[number]
    check(op, function, *inputs)


# --- The op database ---

ENTRIES = (
    "_segment_reduce@lengths", "_unsafe_masked_index_put_accumulate", "argsort", "as_strided_scatter", "cumprod",
    "cumsum", "cumulative_trapezoid", "histc", "histogram", "index_add", "index_copy", "index_fill", "index_put",
    "index_reduce@amax", "index_reduce@amin", "index_reduce@mean", "index_reduce@prod", "isin", "kthvalue",
    "linalg.vander", "max_pool2d_with_indices_backward", "median", "msort", "nanmedian", "nanquantile",
    "nn.functional.max_unpool1d", "nn.functional.max_unpool1d@grad",
    "nn.functional.max_unpool2d", "nn.functional.max_unpool2d@grad", "nn.functional.max_unpool3d",
    "nn.functional.max_unpool3d@grad", "nn.functional.pdist", "nn.functional.scaled_dot_product_attention",
    "nonzero_static", "put", "quantile", "repeat_interleave", "scatter", "scatter_add", "scatter_reduce@amax",
    "scatter_reduce@amin", "scatter_reduce@mean", "scatter_reduce@prod", "scatter_reduce@sum", "sort", "topk",
    "unique",
)  # fmt: skip
"""The entries of PyTorch's op database that have a sample with an op of the dialect, in f32."""
ENOUGH = 3
"""So many samples of an entry are enough for each run."""


@pytest.fixture(scope="module")
def database() -> Suite:
    return load_suite("ops", ["float32"])


@pytest.mark.peer
@pytest.mark.long(sample=5)
@pytest.mark.parametrize("entry", ENTRIES)
def test_samples_of_the_op_database(database: Suite, entry: str, request: pytest.FixtureRequest) -> None:
    """Every sample that linalg takes is lowered and verified by real MLIR, and gives what PyTorch does.

    Up to the first few with an op of the dialect; `--full-models` has all of them.
    """
    found, enough = 0, sys.maxsize if request.config.getoption("--full-models") else ENOUGH
    for sample in next(case for case in database if case.name == entry).samples():
        if found == enough:
            break
        inputs = sample.calls[0].args
        try:
            flambeau.compile(sample.module, inputs)
        except flambeau.CompileError:
            continue
        module = compiled(sample.module, *inputs)
        torch_mlir_runtime.parse(str(module))
        if "tm_tensor." in str(module):
            found += 1
            expected = [leaf for leaf in tree_leaves(sample.module(*inputs)) if isinstance(leaf, torch.Tensor)]
            # MLIR's bufferization refuses its own slices of nothing.
            if all(map(torch.numel, expected)):
                assert_same(torch_mlir_runtime.run(module, *inputs), expected, sample.label)
    assert found
