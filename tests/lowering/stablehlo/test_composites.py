"""Ops named in `keep` are composites in StableHLO: an op with its name and arguments, and a function that says it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts
from support import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import flambeau
from flambeau.dialects.context import parse_module
from flambeau.files import read_module
from flambeau.lowering.stablehlo.lower import rules
from flambeau.passes.decompose import decompositions

KEPT = {"aten.scaled_dot_product_attention", "aten.layer_norm"}


class Block(nn.Module):
    """Two norms of one type, one of another, and attention."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.LayerNorm(8)
        self.second = nn.LayerNorm(8, eps=eps)
        self.heads = nn.LayerNorm(4, elementwise_affine=False)
        for norm in (self.first, self.second):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(torch.relu(self.first(x)))
        q = self.heads(x.unflatten(-1, (2, 4))).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


X = torch.linspace(-2, 3, 48).sin().reshape(2, 3, 8)


def stablehlo(
    model: object, *args: object, keep: Sequence[str] | set[str] = KEPT, **options: object
) -> flambeau.Module:
    return flambeau.compile(model, args, output_type="stablehlo", keep=keep, verify=True, **options)


def function(body: object) -> nn.Module:
    module = nn.Module()
    module.forward = body  # type: ignore[method-assign,assignment]
    return module


def decompositions_in(module: flambeau.Module) -> list[str]:
    return re.findall(r"func\.func private @(\S+)\(", str(module))


def expect(text: str, checks: str) -> None:
    """`CHECK` lines against a text."""
    options = Options(match_filename="<checks>")
    parsed = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
    assert Matcher(options, FInput("<text>", text), parsed).run() == 0, text


def upstream(text: str) -> str:
    """Parse and verify a text by the C++ implementation, and print it."""
    pytest.importorskip("torch_mlir")
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.ir import Context, Module
    from torch_mlir.passmanager import PassManager

    with Context() as context:
        torch_dialect.register_dialect(context)
        # A pass that makes stablehlo ops loads their dialect, which nothing public in Python registers.
        PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))").run(Module.parse("").operation)
        module = Module.parse(text)
        assert module.operation.verify()
        return str(module)


def test_kept_ops_carry_their_arguments_and_have_a_decomposition() -> None:
    module = stablehlo(Block(), X)
    expect(
        str(module),
        """
        // CHECK: func.func @main(%x: tensor<2x3x8xf32>) -> tensor<2x2x3x4xf32>
        // CHECK: %[[A:.*]] = stablehlo.composite "aten.layer_norm" %x, %{{.*}}, %{{.*}} {composite_attributes = {normalized_shape = [8 : i64], eps = 1.000000e-05 : f64, cudnn_enable = false}, decomposition = @aten.layer_norm.impl_0} : (tensor<2x3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
        // CHECK: stablehlo.maximum %[[A]]
        // CHECK: stablehlo.composite "aten.layer_norm" %{{.*}} {composite_attributes = {normalized_shape = [4 : i64], eps = 1.000000e-05 : f64, cudnn_enable = false}, decomposition = @aten.layer_norm.impl_1} : (tensor<2x3x2x4xf32>) -> tensor<2x3x2x4xf32>
        // CHECK: stablehlo.composite "aten.scaled_dot_product_attention" %[[Q:.*]], %[[Q]], %[[Q]] {composite_attributes = {dropout_p = 0.000000e+00 : f64, is_causal = true, enable_gqa = false}, decomposition = @aten.scaled_dot_product_attention.impl_0}
        // CHECK: func.func private @aten.layer_norm.impl_0(%input: tensor<2x3x8xf32>, %weight: tensor<8xf32>, %bias: tensor<8xf32>) -> tensor<2x3x8xf32>
        // CHECK: stablehlo.sqrt
        // CHECK: func.func private @aten.scaled_dot_product_attention.impl_0(%query: tensor<2x2x3x4xf32>, %key: tensor<2x2x3x4xf32>, %value: tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
        // CHECK: stablehlo.dot_general
        """,  # noqa: E501
    )


def test_equal_ops_share_a_decomposition() -> None:
    assert decompositions_in(stablehlo(Block(), X)) == [
        "aten.layer_norm.impl_0",
        "aten.layer_norm.impl_1",
        "aten.scaled_dot_product_attention.impl_0",
    ]
    other = stablehlo(Block(eps=0.5), X, keep={"aten.layer_norm"})
    assert decompositions_in(other) == [f"aten.layer_norm.impl_{i}" for i in range(3)]


@pytest.mark.engine
def test_numbers_are_those_of_eager() -> None:
    model = Block()
    assert_same(flambeau.load(stablehlo(model, X))(X), model(X))


@pytest.mark.engine
def test_sizes_may_be_dynamic() -> None:
    model, batch = Block(), torch.export.Dim("batch")
    module = stablehlo(model, X, dynamic_shapes=({0: batch},))
    assert "(tensor<?x3x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x3x8xf32>" in str(module)
    run = flambeau.load(module)
    for x in (X, X[:1], torch.cat([X, X + 1])):
        assert_same(run(x), model(x))


def test_an_argument_that_only_the_run_time_knows_is_refused_by_name() -> None:
    def flat(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] * x.shape[1], 8)

    with pytest.raises(flambeau.CompileError) as caught:
        stablehlo(function(flat), X, keep={"aten.reshape", "aten.view"}, dynamic_shapes=({0: torch.export.Dim("n")},))
    assert re.search(r"aten\.(reshape|view)", str(caught.value))
    assert re.search("only the run time knows the argument '(size|shape)'", str(caught.value))


def test_what_is_no_composite_is_refused_by_name() -> None:
    with pytest.raises(flambeau.CompileError, match="a composite takes lists only of tensors") as caught:
        stablehlo(function(lambda x, i: x[:, i]), X, torch.tensor([0, 2]), keep={"aten.index"})
    assert "aten.index.Tensor" in str(caught.value)


def test_attention_that_drops_weights_is_no_composite() -> None:
    dropping = function(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    assert "scaled_dot_product_attention" not in str(stablehlo(dropping, X))


def test_names_may_leave_the_overload_out() -> None:
    body = lambda x: F.gelu(x) + x * 2  # noqa: E731
    for keep, found in (
        ({"aten.add"}, ["aten.add.Tensor"]),
        ({"aten.add.Tensor"}, ["aten.add.Tensor"]),
        ({"aten.add.Scalar"}, []),
        ({"aten.gelu.default"}, ["aten.gelu"]),
        (["aten.gelu", "aten.mul"], ["aten.mul.Scalar", "aten.gelu"]),
    ):
        module = stablehlo(function(body), X, keep=keep)
        assert sorted(re.findall(r'composite "(\S+)"', str(module))) == sorted(found)


@pytest.mark.engine
def test_lists_dtypes_and_several_results() -> None:
    def body(x: Tensor) -> tuple[Tensor, ...]:
        a, b = torch.cat([x, x + 1], 1).split(3, 1)
        values, places = torch.max(b, 1)
        return a, values, places, torch.softmax(x, -1, dtype=torch.float64)

    module = stablehlo(function(body), X, keep={"aten.cat", "aten.split", "aten.max", "aten.softmax"})
    expect(
        str(module),
        """
        // CHECK: stablehlo.composite "aten.cat" %x, %{{.*}} {composite_attributes = {dim = 1 : i64}
        // CHECK: %[[A:.*]], %[[B:.*]] = stablehlo.composite "aten.split.Tensor" %{{.*}} {composite_attributes = {split_size = 3 : i64, dim = 1 : i64}
        // CHECK: stablehlo.composite "aten.max.dim" %[[B]] {composite_attributes = {dim = 1 : i64, keepdim = false}
        // CHECK: stablehlo.composite "aten.softmax.int" %x {composite_attributes = {dim = -1 : i64, dtype = "float64"}
        """,  # noqa: E501
    )
    assert_same(list(flambeau.load(module)(X)), list(body(X)))


@pytest.mark.engine
def test_an_op_that_has_only_a_decomposition_is_kept_whole() -> None:
    assert "aten.mse_loss" in decompositions()
    assert "aten.mse_loss" not in rules()
    module = stablehlo(function(F.mse_loss), X, X + 1, keep={"aten.mse_loss"})
    assert 'composite "aten.mse_loss" %' in str(module)
    assert_same(flambeau.load(module)(X, X + 2), F.mse_loss(X, X + 2))
    kept = flambeau.compile(function(F.mse_loss), (X, X), output_type="torch", keep={"aten.mse_loss"})
    assert "torch.aten.mse_loss" in str(kept)
    again = flambeau.compile(kept, output_type="stablehlo", keep={"aten.mse_loss"})
    assert decompositions_in(again) == ["aten.mse_loss.impl_0"]


def test_other_targets_lower_what_is_kept() -> None:
    for target in ("linalg-on-tensors", "tosa"):
        text = str(flambeau.compile(function(F.mse_loss), (X, X), output_type=target, keep={"aten.mse_loss"}))
        assert "composite" not in text
        assert "mse_loss" not in text


@pytest.mark.engine
def test_torchscript_programs_have_composites_too() -> None:
    module = stablehlo(Block(), X, frontend="script")
    assert decompositions_in(module).count("aten.layer_norm.impl_0") == 1
    assert_same(flambeau.load(module)(X), Block()(X))


@pytest.mark.engine
def test_a_composite_inside_a_branch() -> None:
    def body(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: F.layer_norm(y, [8]), lambda y: F.layer_norm(y + 1, [8]), (x,))

    module = stablehlo(function(body), X)
    assert decompositions_in(module) == ["aten.layer_norm.impl_0"]
    for x in (X, -X):
        assert_same(flambeau.load(module)(x), body(x))


@pytest.mark.engine
def test_a_saved_program_is_called_by_its_public_function(tmp_path: Path) -> None:
    model = Block()
    stablehlo(model, X).save(tmp_path / "block.mlir")
    again = read_module(tmp_path / "block.mlir")
    assert list(again.signatures) == ["main"]
    assert_same(flambeau.load(again)(X), model(X))


def test_the_text_is_read_upstream_and_by_us() -> None:
    module = stablehlo(Block(), X)
    printed = upstream(str(module))
    assert printed == upstream(module.text(generic=True))
    assert printed.count("stablehlo.composite") == 4
    again = parse_module(printed)
    again.verify()
    assert upstream(str(again)) == printed
