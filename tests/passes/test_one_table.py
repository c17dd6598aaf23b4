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
]
"""Calls of ops that are taken apart; several of one op where its arguments choose between forms."""


def name(call: Call) -> str:
    return f"{call.schema.name}-{'-'.join(str(a) for a in call.args if not isinstance(a, (torch.Tensor, list)))}"


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_frontends_give_one_program(call: Call, tmp_path: Path) -> None:
    for output in ("torch", "linalg-on-tensors"):
        fx = plain_text(from_fx(call, output))
        assert plain_text(from_nn(call, output)) == fx, "flambeau.nn"
        assert plain_text(from_text(call, output, tmp_path / "call.mlir")) == fx, "MLIR text"


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_values_are_those_of_eager(call: Call, tmp_path: Path) -> None:
    run = flambeau.load(from_fx(call, "torch"), engine="eager")
    assert_same(_listed(run(*call.tensors)), _listed(call.eager(call.tensors)))


@pytest.mark.parametrize("call", [c for c in CALLS if any(d > 1 for x in c.tensors for d in x.shape)], ids=name)
def test_sizes_may_be_dynamic(call: Call) -> None:
    run = flambeau.load(from_fx(call, "torch", dynamic=True), engine="eager")
    assert_same(_listed(run(*call.tensors)), _listed(call.eager(call.tensors)))
    from_fx(call, "linalg-on-tensors", dynamic=True)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
