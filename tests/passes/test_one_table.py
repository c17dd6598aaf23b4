"""All frontends leave an op to one decomposition: the IR from text, `torch.export` and `flambeau.nn` is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from passes.one_table import Call, from_fx, from_nn, from_text, plain_text
from support import assert_same

import flambeau

torch.manual_seed(0)
V, X, Y, B = torch.randn(4), torch.randn(3, 4), torch.randn(3, 4), torch.randn(2, 3, 4)
T, IMAGE = torch.tensor([1, 3, 2]), torch.randn(2, 3, 5, 6)
GRID, COLUMNS = torch.randn(2, 4, 3, 2), torch.randn(2, 18, 6)
PLACES = torch.stack([torch.randperm(56)[:30] for _ in range(6)]).reshape(2, 3, 5, 6)
N = torch.arange(12).reshape(3, 4) % 5 + 1

CALLS = [
    # Views, joins and splits.
    Call("aten.atleast_1d", torch.tensor(2.0)),
    Call("aten.atleast_2d", V),
    Call("aten.atleast_3d", X),
    Call("aten.atleast_1d.Sequence", [torch.tensor(2.0), V]),
    Call("aten.atleast_2d.Sequence", [torch.tensor(2.0), V, X]),
    Call("aten.atleast_3d.Sequence", [torch.tensor(2.0), V, X, B]),
    Call("aten.fliplr", X),
    Call("aten.flipud", V),
    Call("aten.rot90", X, 1, [0, 1]),
    Call("aten.rot90", B, -2, [0, -1]),
    Call("aten.rot90", B, 7, [2, 1]),
    Call("aten.rot90", X, 4, [0, 1]),
    Call("aten.meshgrid", [V, torch.tensor(1.0), X[0]]),
    Call("aten.meshgrid.indexing", [V, X[:, 0], X[0]], "xy"),
    Call("aten.linalg_diagonal", B),
    Call("aten.linalg_diagonal", B, 1, 0, 2),
    Call("aten.diag", V),
    Call("aten.diag", V, -2),
    Call("aten.diag", X, 1),
    Call("aten.diag_embed", X),
    Call("aten.diag_embed", X, 2, 0, -1),
    Call("aten.diag_embed", X, 1, -1, 0),
    Call("aten.diag_embed", X > 0, -1, 1, 0),
    Call("aten.hstack", [V, torch.tensor(1.0)]),
    Call("aten.hstack", [X, Y.half()]),
    Call("aten.vstack", [V, X]),
    Call("aten.row_stack", [V, X]),
    Call("aten.dstack", [X, Y]),
    Call("aten.column_stack", [X[:, 0], X]),
    Call("aten.repeat_interleave.self_int", X, 2),
    Call("aten.repeat_interleave.self_int", X, 3, -1, 12),
    Call("aten.repeat_interleave.self_int", X, 0, 0),
    Call("aten.tensor_split.indices", X, [1, 3], 1),
    Call("aten.tensor_split.indices", X, [2, -1], -1),
    Call("aten.hsplit.int", X, 2),
    Call("aten.hsplit.array", V, [1, 2]),
    Call("aten.vsplit.int", X, 3),
    Call("aten.vsplit.array", X, [1]),
    Call("aten.dsplit.int", B, 2),
    Call("aten.dsplit.array", B, [3, 5]),
    Call("aten.diff", X),
    Call("aten.diff", X, 2, 0, Y, V[None]),
    Call("aten.diff", X > 0, 1),
    Call("aten.diff", X, 9),
    # Other names.
    *(Call(f"aten.{name}", X.abs() / 4) for name in ("arccos", "arcsin", "arcsinh", "arctan", "arctanh", "fix")),
    *(Call(f"aten.{name}", X.abs() + 1) for name in ("absolute", "arccosh", "special_expm1", "ravel")),
    *(
        Call(f"aten.{name}.{kind}", X, 2.5 if kind == "Scalar" else Y)
        for name in ("divide", "greater", "greater_equal", "less", "less_equal", "multiply", "not_equal", "subtract")
        for kind in ("Scalar", "Tensor")
    ),
    Call("aten.arctan2", X, Y),
    Call("aten.divide.Tensor_mode", X, Y, "floor"),
    Call("aten.divide.Scalar_mode", X, 0.5, "trunc"),
    Call("aten.true_divide.Tensor", N, N),
    Call("aten.true_divide.Scalar", N, 2),
    Call("aten.linalg_matmul", B, V),
    Call("aten.moveaxis.int", B, 0, -1),
    Call("aten.moveaxis.intlist", B, [0, 1], [2, 0]),
    Call("aten.unsafe_chunk", X, 2, 1),
    Call("aten.unsafe_split.Tensor", X, 2),
    Call("aten.unsafe_split_with_sizes", X, [1, 3], 1),
    # Pointwise.
    Call("aten.max.other", X, V.double()),
    Call("aten.min.other", X, V),
    Call("aten.positive", X),
    Call("aten.float_power.Tensor_Scalar", X, 3),
    Call("aten.float_power.Tensor_Tensor", X.abs(), V),
    Call("aten.float_power.Scalar", 3, X),
    Call("aten.ldexp.Tensor", X, N),
    Call("aten.ldexp.Tensor", N, N),
    Call("aten.remainder.Scalar_Tensor", 7, X),
    Call("aten.remainder.Scalar_Tensor", 7.5, N),
    Call("aten.prelu", X, torch.tensor([0.25])),
    Call("aten.prelu", B, X[:, 0]),
    Call("aten.prelu", V, torch.tensor([0.25])),
    Call("aten.prelu", torch.tensor(-1.0), torch.tensor([0.25])),
    # Reductions, products and reads.
    *(Call("aten.dist", X, V, p) for p in (0, 1.0, 2, 3, float("inf"))),
    Call("aten.linalg_vecdot", B, X),
    Call("aten.linalg_vecdot", X, V[:, None].T, 0),
    Call("aten.trace", X),
    Call("aten.trace", N),
    Call("aten.nanmean", torch.where(X > 1, float("nan"), X)),
    Call("aten.nanmean", torch.where(X > 1, float("nan"), X), [1], True),
    Call("aten.nanmean", X.half(), [0], False, torch.float32),
    Call("aten.vdot", V, X[0]),
    Call("aten.addr", X, X[:, 0], V),
    Call("aten.addr", torch.full((4,), float("nan")), X[:, 0], V, 0, 2),
    Call("aten.addr", N, N[:, 0], N[0].int(), 2, -1),
    Call("aten.addr", X > 0, X[:, 0] > 0, V > 0, 1, 1),
    Call("aten.bilinear", X, X[:, :2], torch.randn(5, 4, 2)),
    Call("aten.bilinear", B, B[..., :3], torch.randn(5, 4, 3), torch.randn(5)),
    Call("aten.tensordot", B, X, [1, 2], [0, -1]),
    Call("aten.tensordot", X, B, [-1], [2]),
    Call("aten.tensordot", X, V, [], []),
    Call("aten.tensordot", X[:, :1], X, [1], [1]),
    Call("aten.einsum", "ij,kj->ik", [X, Y]),
    Call("aten.einsum", "bij, jk", [B, torch.randn(4, 2)]),
    Call("aten.einsum", "...ij,...jk->...ik", [B, torch.randn(4, 2)]),
    Call("aten.einsum", "b...,b...->...", [B, B]),
    Call("aten.einsum", "ii->i", [torch.randn(3, 3)]),
    Call("aten.einsum", "iji,j", [torch.randn(3, 4, 3), V]),
    Call("aten.einsum", "i,j->ji", [V, X[0]]),
    Call("aten.einsum", "ij->", [X]),
    Call("aten.einsum", "bij,bjk->bik", [B[:1], B.transpose(1, 2)]),
    Call("aten.einsum", "ij,jk->ik", [X[:, :1], torch.randn(4, 2)]),
    Call("aten.einsum", "ij,jk,kl->il", [X, torch.randn(4, 5), torch.randn(5, 2)]),
    Call("aten.einsum", "ij,jk,kl->il", [X, torch.randn(4, 5), torch.randn(5, 2)], [1, 2, 0, 1]),
    Call("aten.take_along_dim", X, torch.tensor([[0, 2, 1, 0]]), 0),
    Call("aten.take_along_dim", X[:, :1], torch.tensor([[0, -1, 2, 0]]), -2),
    Call("aten.take_along_dim", X, torch.tensor([[3, 11], [2, 0]])),
    Call("aten.msort", X),
    Call("aten.argsort.stable", N % 3, True, 0, True),
    Call("aten.argsort.stable", X, False),
    # Losses.
    *(
        Call(name, *args, reduction)
        for reduction in (0, 1, 2)
        for name, *args in (
            ("aten.nll_loss_nd", X, T, None),
            ("aten.nll_loss_nd", B, B[:, 0].abs().long() % 3, V[:3]),
            ("aten.nll_loss", X, T, V),
            ("aten.nll_loss", V, T[0], V),
            ("aten.nll_loss2d", IMAGE, IMAGE[:, 0].abs().long() % 3, V[:3]),
            ("aten.cross_entropy_loss", X, T, None),
            ("aten.cross_entropy_loss", B, X.softmax(0)[None].expand(2, -1, -1), V[:3]),
            ("aten.cross_entropy_loss", V, T[0], V),
            ("aten.binary_cross_entropy_with_logits", X, Y.sigmoid(), Y, V),
            ("aten.binary_cross_entropy_with_logits", X.half(), Y.sigmoid().half(), None, None),
            ("aten.kl_div", X, Y.sigmoid()),
        )
    ),
    *(
        Call("aten.cross_entropy_loss", X, T, weight, reduction, 1, 0.25)
        for weight in (None, V)
        for reduction in (0, 1, 2)
    ),
    *(Call("aten.cross_entropy_loss", X, Y.softmax(1), V, reduction, -100, 0.25) for reduction in (0, 1, 2)),
    Call("aten.cross_entropy_loss", X.bfloat16(), T),
    Call("aten.nll_loss_nd", X, T, V, 1, 2),
    Call("aten.nll_loss_forward", X, T, V, 1, 2),
    Call("aten.nll_loss_forward", X, T, None, 0, 2),
    Call("aten.nll_loss2d_forward", IMAGE, IMAGE[:, 0].abs().long() % 3, None, 2, 0),
    Call("aten.kl_div", X, Y, 1, True),
    *(
        Call("aten.poisson_nll_loss", X.abs(), N.float(), log_input, full, 1e-8, reduction)
        for log_input, full, reduction in ((True, True, 0), (True, False, 1), (False, True, 2))
    ),
    *(Call("aten.cosine_embedding_loss", X, Y, torch.tensor([1, -1, 1]), 0.1, reduction) for reduction in (0, 1, 2)),
    Call("aten.cosine_embedding_loss", X[0], V, torch.tensor(-1.0)),
    # Images.
    *(
        Call("aten.grid_sampler", IMAGE, GRID, mode, padding, align_corners)
        for mode in (0, 1, 2)
        for padding in (0, 1, 2)
        for align_corners in (False, True)
    ),
    Call("aten.grid_sampler_2d", IMAGE[..., :1], GRID, 0, 2, True),
    Call("aten.grid_sampler_2d", IMAGE.double(), GRID.double(), 2, 0, False),
    Call("aten.grid_sampler_3d", IMAGE[:, :, None], GRID[:, None, :, :, [0, 1, 1]], 0, 2, True),
    *(Call("aten.upsample_bicubic2d", IMAGE, [7, 4], align_corners) for align_corners in (False, True)),
    Call("aten.upsample_bicubic2d", IMAGE.bfloat16(), [10, 1], True, 2.0, 0.3),
    Call("aten.upsample_bicubic2d", (IMAGE * 50 + 100).byte(), [7, 4], False),
    Call("aten.upsample_bicubic2d.vec", IMAGE, None, False, [1.5, 0.7]),
    Call("aten.upsample_bicubic2d.vec", IMAGE, [3, 9], True, None),
    *(
        Call(f"aten._upsample_{kind}2d_aa", IMAGE, [3, 9], align_corners)
        for kind in ("bilinear", "bicubic")
        for align_corners in (False, True)
    ),
    *(Call(f"aten._upsample_{kind}2d_aa.vec", IMAGE, None, False, [0.5, 1.7]) for kind in ("bilinear", "bicubic")),
    Call("aten.im2col", IMAGE, [2, 3], [1, 2], [1, 0], [2, 1]),
    Call("aten.im2col", IMAGE[0], [2, 2], [1, 1], [0, 0], [1, 1]),
    Call("aten.col2im", COLUMNS, [5, 6], [2, 3], [1, 2], [1, 0], [2, 1]),
    Call("aten.col2im", COLUMNS[0], [5, 6], [2, 3], [1, 2], [1, 0], [2, 1]),
    Call("aten.unfold_backward", IMAGE.unfold(2, 3, 1), list(IMAGE.shape), 2, 3, 1),
    Call("aten.unfold_backward", IMAGE.unfold(3, 3, 2), list(IMAGE.shape), -1, 3, 2),
    Call("aten.unfold_backward", X.unfold(1, 1, 3), list(X.shape), 1, 1, 3),
    Call("aten.unfold_backward", X[:1].unfold(1, 2, 1), list(X.shape), 1, 2, 1),
    Call("aten.max_unpool2d", IMAGE, PLACES, [7, 8]),
    Call("aten.max_unpool3d", IMAGE, PLACES, [3, 7, 8], [1, 1, 1], [0, 0, 0]),
]
"""Calls of ops that are taken apart; several of one op where its arguments choose between forms."""


def name(call: Call) -> str:
    return f"{call.schema.name}-{'-'.join(str(a) for a in call.args if not isinstance(a, (torch.Tensor, list)))}"


@pytest.mark.long(sample=10)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_frontends_give_one_program(call: Call, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In the torch dialect; and so in linalg, which is made of that: `--all-targets` looks at every program there."""
    every = request.config.getoption("--all-targets") or CALLS.index(call) % 8 == 0
    for output in ("torch", "linalg-on-tensors") if every else ("torch",):
        fx = plain_text(from_fx(call, output))
        assert plain_text(from_nn(call, output)) == fx, "flambeau.nn"
        assert plain_text(from_text(call, output, tmp_path / "call.mlir")) == fx, "MLIR text"


@pytest.mark.long(sample=10)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_values_are_those_of_eager(call: Call, tmp_path: Path) -> None:
    run = flambeau.load(from_fx(call, "torch"), engine="eager")
    assert_same(_listed(run(*call.tensors)), _listed(call.eager(call.tensors)))


DYNAMIC = [
    call
    for call in CALLS
    if any(d > 1 for x in call.tensors for d in x.shape) and "_aa" not in call.schema.name  # Which needs the sizes.
]


@pytest.mark.long(sample=10)
@pytest.mark.parametrize("call", DYNAMIC, ids=name)
def test_sizes_may_be_dynamic(call: Call) -> None:
    module = from_fx(call, "torch", dynamic=True)
    module.verify()
    run = flambeau.load(module, engine="eager")
    assert_same(_listed(run(*call.tensors)), _listed(call.eager(call.tensors)))
    from_fx(call, "linalg-on-tensors", dynamic=True)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
