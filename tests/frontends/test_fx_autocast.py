"""Regions of `torch.autocast`: what is in them is computed in the dtypes in which eager PyTorch computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.frontends.fx.autocast import entered

HALF = torch.bfloat16


def some(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Make numbers that change when they are rounded to bfloat16."""
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


class Region(nn.Module):
    """A function or a module, called in a region."""

    def __init__(self, function: Callable[..., Any], dtype: torch.dtype = HALF) -> None:
        super().__init__()
        self.function = function
        self.dtype = dtype

    def forward(self, *args: Any) -> Any:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.function(*args)


def runs_like_eager(model: nn.Module, *args: Any) -> None:
    """Compare dtypes and values as imported and under the backend contract."""
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*pytree.tree_map(torch.clone, args)))
    module = flambeau.compile(model, pytree.tree_map(torch.clone, args), output_type="raw")
    for stage in ("raw", "torch"):
        run = flambeau.load(flambeau.compile(module, output_type=stage), engine="eager")
        assert_same(pytree.tree_leaves(run(*pytree.tree_map(torch.clone, args))), expected, stage)


COMPOSITES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (some(3, 4), some(4, 5))),
    "einsum of three": (lambda *a: torch.einsum("bij,bjk,k->bi", *a), (some(2, 3, 4), some(2, 4, 5), some(5))),
    "einsum of one": (lambda a: torch.einsum("ij->ji", a), (some(3, 4),)),
    "einsum of two dtypes": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (some(3, 4), some(4, 5, dtype=HALF))),
    "einsum of a product": (lambda a, b: torch.einsum("i,j->ij", a, b), (some(3), some(4))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), (some(2, 3, 4), some(3, 4, 5))),
    "inner": (torch.inner, (some(3, 4), some(5, 4))),
    "inner of vectors": (torch.inner, (some(4), some(4))),
    "dot": (torch.dot, (some(4), some(4))),
    "mv": (torch.mv, (some(3, 4), some(4))),
    "outer": (torch.outer, (some(3), some(4))),
    "kron": (torch.kron, (some(2, 3), some(3, 2))),
    "chain_matmul": (torch.chain_matmul, (some(3, 4), some(4, 5), some(5, 2))),
    "multi_dot": (lambda *a: torch.linalg.multi_dot(a), (some(3, 4), some(4, 5), some(5, 2), some(2, 6))),
    "multi_dot of vectors": (lambda *a: torch.linalg.multi_dot(a), (some(4), some(4, 5), some(5))),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), (some(3, 3),)),
    "matmul by a vector": (torch.matmul, (some(2, 3, 4), some(4))),
    "matmul of doubles": (torch.matmul, (some(3, 4).double(), some(4, 5).double())),
    "matmul of halves": (torch.matmul, (some(3, 4).half(), some(4, 5).half())),
    "baddbmm": (torch.baddbmm, (some(2, 3, 5), some(2, 3, 4), some(2, 4, 5))),
    "bilinear": (F.bilinear, (some(3, 4), some(3, 5), some(2, 4, 5), some(2))),
    "bilinear without a bias": (F.bilinear, (some(6, 3, 4), some(6, 3, 5), some(2, 4, 5))),
    "cdist": (torch.cdist, (some(3, 4, dtype=HALF), some(5, 4, dtype=HALF))),
    "cosine_similarity": (F.cosine_similarity, (some(3, 4), some(3, 4, dtype=HALF))),
    "attention": (F.scaled_dot_product_attention, (some(1, 2, 3, 4),) * 3),
    "multi-head attention": (nn.MultiheadAttention(4, 2, batch_first=True), (some(2, 3, 4),) * 3),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w), (some(3, 4, dtype=HALF), some(4))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), (some(3, 4, dtype=HALF), some(4))),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), (some(3, 4, 5), some(4))),
    "log_softmax in a dtype": (lambda x: F.log_softmax(x, -1, dtype=torch.float32), (some(3, 4, dtype=HALF),)),
    "conv1d that keeps the size": (lambda x, w: F.conv1d(x, w, padding="same"), (some(1, 2, 5), some(3, 2, 3))),
    "conv2d without a batch": (F.conv2d, (some(2, 5, 5), some(3, 2, 3, 3), some(3))),
    "conv_transpose3d": (F.conv_transpose3d, (some(1, 2, 3, 3, 3), some(2, 3, 2, 2, 2))),
    "prelu": (F.prelu, (some(2, 3, 4, dtype=HALF), some(3))),
    "mse_loss": (F.mse_loss, (some(3, 4, dtype=HALF), some(3, 4, dtype=HALF))),
    "cross_entropy": (lambda x: F.cross_entropy(x @ x, torch.arange(3), label_smoothing=0.25), (some(3, 3),)),
    "triplet_margin_loss": (lambda x: F.triplet_margin_loss(x, x + 1, x - 2), (some(3, 4, dtype=HALF),)),
    "cosine_embedding_loss": (
        lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(3)), (some(3, 4, dtype=HALF), some(3, 4, dtype=HALF))
    ),
    "prod in a dtype": (lambda x: torch.prod(x, 0, dtype=HALF), (some(3, dtype=HALF),)),
    "hstack": (lambda a, b: torch.hstack([a, b]), (some(3), some(3, dtype=HALF))),
    "block_diag": (torch.block_diag, (some(3, 3), some(2, 2, dtype=HALF))),
    "cartesian_prod": (torch.cartesian_prod, (some(3), some(2))),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (some(1, 1, 3, 3, dtype=HALF),)),
    "pad": (lambda x: F.pad(x, (1, 1), mode="reflect"), (some(1, 2, 4, dtype=HALF),)),
    "norm": (lambda x: torch.linalg.norm(x @ x), (some(3, 3),)),
    "inv": (lambda x: torch.linalg.inv(x @ x + 9 * torch.eye(3)), (some(3, 3),)),
    "a GRU cell": (nn.GRUCell(3, 4), (some(2, 3), some(2, 4))),
    "an LSTM cell": (nn.LSTMCell(3, 4), (some(2, 3),)),
    "an RNN cell": (nn.RNNCell(3, 4), (some(2, 3), some(2, 4))),
    "a GRU": (nn.GRU(3, 4), (some(5, 2, 3),)),
    "an RNN": (nn.RNN(3, 4, nonlinearity="relu"), (some(5, 2, 3),)),
    "an LSTM with projections": (nn.LSTM(3, 4, proj_size=2), (some(5, 2, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITES)
def test_ops_that_consist_of_others_compute_in_the_dtypes_of_eager(name: str) -> None:
    function, args = COMPOSITES[name]
    runs_like_eager(Region(function).eval(), *args)


def test_the_dtype_of_the_region_counts() -> None:
    runs_like_eager(Region(lambda a, b: torch.einsum("ij,jk->ik", a, b), torch.float16), some(3, 4), some(4, 5))


def test_sizes_in_a_region_may_be_dynamic() -> None:
    model = Region(lambda a, b: torch.einsum("ij,jk->ik", a, b))
    shapes = {"args": ({0: torch.export.Dim.AUTO}, None)}
    module = flambeau.compile(model, (some(3, 4), some(4, 5)), dynamic_shapes=shapes, output_type="torch")
    assert_same(flambeau.load(module, engine="eager")(some(7, 4), some(4, 5)), model(some(7, 4), some(4, 5)))


# Branches, loops and custom ops


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x @ x - 1, (x,))


def loop(x: Tensor) -> Any:
    return torch._higher_order_ops.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, (x @ x).float() / 3), (torch.tensor(0), x)
    )


def branch_outside(x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        outside = branch(x)
    return outside, x @ x


@pytest.mark.parametrize("function", [branch, loop, branch_outside], ids=lambda f: f.__name__)
@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_loops_are_in_the_region_that_they_stand_in(function: Callable[..., Any], sign: int) -> None:
    runs_like_eager(Region(function), sign * some(3, 3).abs())


@torch.library.custom_op("flambeau_tests::add_square_in_region", mutates_args=("x",))
def add_square(x: Tensor) -> None:
    x.add_(x @ x)


def test_a_custom_op_that_writes_is_looked_into_in_its_region() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        add_square(y)
        return y

    runs_like_eager(Region(program), some(3, 3))


# The region of whoever compiles or calls


def outside(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    inside = torch.einsum("ij,jk->ik", a, b)
    with torch.autocast("cpu", enabled=False):
        return inside, torch.einsum("ij,jk->ik", a, b), torch.tensordot(a, b, 1), a @ b


def test_the_region_in_which_a_program_is_compiled_is_its_own() -> None:
    a, b = some(3, 4), some(4, 5)
    for stage in ("raw", "torch"):
        with torch.autocast("cpu", dtype=HALF):
            expected = outside(a, b)
            run = flambeau.load(flambeau.compile(outside, (a, b), output_type=stage), engine="eager")
            assert_same(list(run(a, b)), list(expected), "called inside")
        assert [t.dtype for t in expected] == [HALF, *[torch.float32] * 3]
        assert_same(list(run(a, b)), list(expected), "called outside")


def test_a_region_of_another_device_leaves_that_of_the_cpu_on() -> None:
    outer = ("cpu", HALF, True)
    assert entered(("cuda", torch.float16, True), outer) is outer
    assert entered(("cpu", torch.float16, True, False), outer) == ("cpu", torch.float16, True)
    assert entered(("cpu", None, False), outer) is None


# What cannot be told


MISTOLD: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "lstm": (nn.LSTM(3, 4), (some(5, 2, 3),)),
    "pinv": (torch.linalg.pinv, (some(3, 3),)),
    "affine_grid": (lambda x: F.affine_grid(x, [1, 1, 3, 3], align_corners=False), (some(1, 2, 3),)),
}


@pytest.mark.parametrize("name", MISTOLD)
def test_an_op_of_which_pytorch_tells_the_wrong_dtype_is_refused(name: str) -> None:
    function, args = MISTOLD[name]
    model = Region(function)
    with torch.no_grad():
        try:
            dtype = pytree.tree_leaves(model(*args))[0].dtype
        except RuntimeError as error:
            assert "primitive descriptor" in str(error)  # noqa: PT017 - a CPU for which oneDNN has no such kernel
            dtype = HALF
    if dtype is not HALF:  # A build of PyTorch that computes it as it tells.
        runs_like_eager(model, *args)
        return
    with pytest.raises(CompileError, match="gives another dtype than it tells while it traces"):
        flambeau.compile(model, args)
