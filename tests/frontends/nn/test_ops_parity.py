"""Ops written once, for torch and for flambeau: the same IR after the pipeline, the same numbers on IREE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frontends.nn.parity import as_torch, same_ir, specs_of
from support import assert_same

import flambeau
from flambeau import nn, ops

torch.manual_seed(0)
X, Y, P = torch.randn(3, 4), torch.randn(3, 4), torch.rand(3, 4) * 0.8 + 0.1
V, B, C = torch.randn(4), torch.randn(2, 3, 4), torch.randn(2, 3, 8, 8)
K, J = torch.tensor([[0, 2, 1, 3], [1, 1, 0, 2], [3, 0, 2, 1]]), torch.tensor([2, 0, 1])
M = X > 0
W, W2, S = torch.randn(5, 4), torch.randn(6, 3, 3, 3), torch.randn(4, 4)
N = torch.arange(12).reshape(3, 4) + 1

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

CASES: dict[str, Case] = {
    # One line each: `t` is torch or flambeau.ops.
    "add": (lambda t, x, y: t.add(x, y), (X, Y)),
    "add alpha": (lambda t, x, y: t.add(x, y, alpha=2), (X, Y)),
    "add number": (lambda t, x: x + 2, (X,)),
    "radd": (lambda t, x: 2.5 + x, (X,)),
    "sub": (lambda t, x, y: x - y, (X, Y)),
    "rsub": (lambda t, x: 2 - x, (X,)),
    "mul": (lambda t, x, y: x * y, (X, V)),
    "div": (lambda t, x, y: x / y, (X, P)),
    "rdiv": (lambda t, x: 2 / x, (P,)),
    "div floor": (lambda t, x, y: t.div(x, y, rounding_mode="floor"), (X, P)),
    "floor_divide": (lambda t, x: x // 2, (X,)),
    "remainder": (lambda t, x: x % 2, (X,)),
    "fmod": (lambda t, x: t.fmod(x, 2), (X,)),
    "pow": (lambda t, x: x**2, (X,)),
    "pow tensor": (lambda t, x, y: t.pow(x, y), (P, Y)),
    "rpow": (lambda t, x: 2**x, (X,)),
    "neg": (lambda t, x: -x, (X,)),
    "abs": (lambda t, x: abs(x), (X,)),
    "sqrt": (lambda t, x: t.sqrt(x), (P,)),
    "rsqrt": (lambda t, x: x.rsqrt(), (P,)),
    "exp": (lambda t, x: x.exp(), (X,)),
    "exp2": (lambda t, x: t.exp2(x), (X,)),
    "expm1": (lambda t, x: t.expm1(x), (X,)),
    "log": (lambda t, x: t.log(x), (P,)),
    "log2": (lambda t, x: t.log2(x), (P,)),
    "log10": (lambda t, x: t.log10(x), (P,)),
    "log1p": (lambda t, x: t.log1p(x), (P,)),
    "sin": (lambda t, x: t.sin(x), (X,)),
    "cos": (lambda t, x: t.cos(x), (X,)),
    "tan": (lambda t, x: t.tan(x), (P,)),
    "asin": (lambda t, x: t.asin(x), (P,)),
    "acos": (lambda t, x: t.acos(x), (P,)),
    "atan": (lambda t, x: t.atan(x), (X,)),
    "atan2": (lambda t, x, y: t.atan2(x, y), (X, Y)),
    "sinh": (lambda t, x: t.sinh(x), (X,)),
    "cosh": (lambda t, x: t.cosh(x), (X,)),
    "tanh": (lambda t, x: t.tanh(x), (X,)),
    "asinh": (lambda t, x: t.asinh(x), (X,)),
    "acosh": (lambda t, x: t.acosh(x + 1), (P,)),
    "atanh": (lambda t, x: t.atanh(x), (P,)),
    "erf": (lambda t, x: t.erf(x), (X,)),
    "erfc": (lambda t, x: t.erfc(x), (X,)),
    "sigmoid": (lambda t, x: x.sigmoid(), (X,)),
    "ceil": (lambda t, x: x.ceil(), (X,)),
    "floor": (lambda t, x: x.floor(), (X,)),
    "round": (lambda t, x: x.round(), (X,)),
    "trunc": (lambda t, x: x.trunc(), (X,)),
    "frac": (lambda t, x: x.frac(), (X,)),
    "sign": (lambda t, x: x.sign(), (X,)),
    "reciprocal": (lambda t, x: x.reciprocal(), (P,)),
    "square": (lambda t, x: x.square(), (X,)),
    "maximum": (lambda t, x, y: t.maximum(x, y), (X, Y)),
    "minimum": (lambda t, x, y: t.minimum(x, y), (X, Y)),
    "clamp": (lambda t, x: x.clamp(-0.5, 0.5), (X,)),
    "clamp min": (lambda t, x: t.clamp(x, min=0.0), (X,)),
    "clamp tensor": (lambda t, x, y: t.clamp(x, max=y), (X, Y)),
    "lerp": (lambda t, x, y: t.lerp(x, y, 0.3), (X, Y)),
    "where": (lambda t, x, y: t.where(x > 0, x, y), (X, Y)),
    "where number": (lambda t, x: t.where(x > 0, x, 0.0), (X,)),
    "masked_fill": (lambda t, x, m: x.masked_fill(m, -1.0), (X, M)),
    "eq": (lambda t, x, y: x == y, (X, Y)),
    "ne": (lambda t, x: x != 1, (N,)),
    "lt": (lambda t, x, y: x < y, (X, Y)),
    "le": (lambda t, x: x <= 0.5, (X,)),
    "gt": (lambda t, x: t.gt(x, 0), (X,)),
    "ge": (lambda t, x, y: x >= y, (X, Y)),
    "logical_and": (lambda t, m: t.logical_and(m, ~m), (M,)),
    "logical_or": (lambda t, m: t.logical_or(m, ~m), (M,)),
    "logical_not": (lambda t, m: t.logical_not(m), (M,)),
    "bitwise_and": (lambda t, n: t.bitwise_and(n, 3), (N,)),
    "bitwise_or": (lambda t, n: t.bitwise_or(n, 3), (N,)),
    "bitwise_xor": (lambda t, n: t.bitwise_xor(n, n + 1), (N,)),
    "invert": (lambda t, m: ~m, (M,)),
    "isnan": (lambda t, x: t.isnan(x), (X,)),
    "relu": (lambda t, x: t.relu(x), (X,)),
    "selu": (lambda t, x: t.selu(x), (X,)),
    "celu": (lambda t, x: t.celu(x), (X,)),
    "threshold": (lambda t, x: t.threshold(x, 0.1, 20.0), (X,)),
    "prelu": (lambda t, x, w: t.prelu(x, w), (X, V)),
    "softmax": (lambda t, x: x.softmax(-1), (X,)),
    "softmax dtype": (lambda t, x: t.softmax(x, dim=0), (X,)),
    "log_softmax": (lambda t, x: t.log_softmax(x, 1), (X,)),
    "sum": (lambda t, x: x.sum(), (X,)),
    "sum dim": (lambda t, x: x.sum(0), (X,)),
    "sum dims": (lambda t, x: t.sum(x, (0, 1), keepdim=True), (X,)),
    "sum of ints": (lambda t, n: n.sum(), (N,)),
    "mean": (lambda t, x: x.mean(), (X,)),
    "mean dim": (lambda t, x: x.mean(dim=-1, keepdim=True), (X,)),
    "prod": (lambda t, x: x.prod(1), (X,)),
    "amax": (lambda t, x: x.amax(1), (X,)),
    "amin": (lambda t, x: x.amin((0, 1)), (X,)),
    "max": (lambda t, x: x.max(), (X,)),
    "max dim": (lambda t, x: list(x.max(1)), (X,)),
    "max other": (lambda t, x, y: t.max(x, y), (X, Y)),
    "min dim": (lambda t, x: t.min(x, 1)[0], (X,)),
    "argmax": (lambda t, x: x.argmax(1), (X,)),
    "argmin": (lambda t, x: t.argmin(x), (X,)),
    "any": (lambda t, m: m.any(), (M,)),
    "all dim": (lambda t, m: m.all(1), (M,)),
    "var": (lambda t, x: x.var(1), (X,)),
    "var correction": (lambda t, x: t.var(x, dim=0, correction=0), (X,)),
    "std": (lambda t, x: x.std(dim=1, unbiased=False), (X,)),
    "norm": (lambda t, x: x.norm(dim=1), (X,)),
    "vector_norm": (lambda t, x: t.linalg.vector_norm(x, 1, 0), (X,)),
    "logsumexp": (lambda t, x: t.logsumexp(x, 1), (X,)),
    "cumsum": (lambda t, x: x.cumsum(0), (X,)),
    "cumprod": (lambda t, x: x.cumprod(1), (X,)),
    "sort": (lambda t, x: list(t.sort(x, dim=1)), (X,)),
    "topk": (lambda t, x: list(x.topk(2)), (X,)),
    "matmul": (lambda t, x, w: x @ w.t(), (X, W)),
    "matmul batched": (lambda t, b, s: t.matmul(b, s), (B, S)),
    "mm": (lambda t, x, s: t.mm(x, s), (X, S)),
    "bmm": (lambda t, b: t.bmm(b, b.transpose(1, 2)), (B,)),
    "mv": (lambda t, x, v: t.mv(x, v), (X, V)),
    "dot": (lambda t, v: t.dot(v, v), (V,)),
    "addmm": (lambda t, x, s: t.addmm(x, x, s, beta=0.5), (X, S)),
    "baddbmm": (lambda t, b, s: t.baddbmm(b, b, s.expand(2, 4, 4)), (B, S)),
    "outer": (lambda t, v: t.outer(v, v), (V,)),
    "einsum": (lambda t, x, w: t.einsum("ij,kj->ik", x, w), (X, W)),
    "einsum batched": (lambda t, b: t.einsum("bij,bkj->bik", b, b), (B,)),
    "reshape": (lambda t, x: x.reshape(4, 3), (X,)),
    "view": (lambda t, x: x.view(-1, 2), (X,)),
    "flatten": (lambda t, b: b.flatten(1), (B,)),
    "unflatten": (lambda t, x: x.unflatten(1, (2, 2)), (X,)),
    "transpose": (lambda t, x: x.transpose(0, 1), (X,)),
    "T": (lambda t, x: x.T, (X,)),
    "permute": (lambda t, b: b.permute(2, 0, 1), (B,)),
    "movedim": (lambda t, b: t.movedim(b, 0, 2), (B,)),
    "squeeze": (lambda t, x: x.unsqueeze(0).squeeze(0), (X,)),
    "unsqueeze": (lambda t, x: t.unsqueeze(x, -1), (X,)),
    "expand": (lambda t, v: v.expand(3, -1), (V,)),
    "repeat": (lambda t, x: x.repeat(2, 1), (X,)),
    "tile": (lambda t, x: t.tile(x, (2, 2)), (X,)),
    "broadcast_to": (lambda t, v: t.broadcast_to(v, (3, 4)), (V,)),
    "cat": (lambda t, x, y: t.cat([x, y], 1), (X, Y)),
    "stack": (lambda t, x, y: t.stack((x, y), dim=1), (X, Y)),
    "split": (lambda t, x: list(t.split(x, 2, dim=1)), (X,)),
    "split uneven": (lambda t, x: list(x.split([1, 3], 1)), (X,)),
    "chunk": (lambda t, x: list(x.chunk(2, 1)), (X,)),
    "unbind": (lambda t, x: list(t.unbind(x, 1)), (X,)),
    "flip": (lambda t, x: x.flip(0), (X,)),
    "roll": (lambda t, x: t.roll(x, 1, 0), (X,)),
    "tril": (lambda t, s: s.tril(), (S,)),
    "triu": (lambda t, s: t.triu(s, diagonal=1), (S,)),
    "diagonal": (lambda t, s: s.diagonal(), (S,)),
    "select": (lambda t, x: x.select(1, 2), (X,)),
    "narrow": (lambda t, x: x.narrow(1, 1, 2), (X,)),
    "gather": (lambda t, x, i: x.gather(1, i), (X, K)),
    "index_select": (lambda t, x, j: t.index_select(x, 1, j), (X, J)),
    "scatter": (lambda t, x, i, y: x.scatter(1, i, y), (X, K, Y)),
    "scatter_add": (lambda t, x, i, y: t.scatter_add(x, 1, i, y), (X, K, Y)),
    "index_add": (lambda t, x, j, y: x.index_add(0, j, y), (X, J, Y)),
    "take_along_dim": (lambda t, x, i: t.take_along_dim(x, i, 1), (X, K)),
    "embedding": (lambda t, w, i: t.embedding(w, i), (W, K)),
    "to": (lambda t, x: x.double(), (X,)),
    "long": (lambda t, x: x.long(), (X,)),
    "type_as": (lambda t, n, x: n.type_as(x), (N, X)),
    "clone": (lambda t, x: x.clone() + 1, (X,)),
    "contiguous": (lambda t, x: x.t().contiguous() + 1, (X,)),
    "ones": (lambda t, x: x + t.ones(3, 4), (X,)),
    "zeros": (lambda t, x: x + t.zeros((3, 4)), (X,)),
    "full": (lambda t, x: x + t.full((3, 4), 2.0), (X,)),
    "arange": (lambda t, x: x + t.arange(4), (X,)),
    "arange step": (lambda t, x: x + t.arange(0, 8, 2), (X,)),
    "eye": (lambda t, s: s + t.eye(4), (S,)),
    "linspace": (lambda t, x: x + t.linspace(0, 1, 4), (X,)),
    "zeros_like": (lambda t, x: t.zeros_like(x) + x, (X,)),
    "ones_like": (lambda t, x: x + t.ones_like(x), (X,)),
    "full_like": (lambda t, x: x + t.full_like(x, 3.0), (X,)),
    "new_zeros": (lambda t, x: x + x.new_zeros(3, 4), (X,)),
    "conv2d": (lambda t, c, w: t.conv2d(c, w, stride=2, padding=1), (C, W2)),
    "conv1d": (lambda t, b, w: t.conv1d(b, w), (B, torch.randn(2, 3, 2))),
    "conv_transpose2d": (lambda t, c, w: t.conv_transpose2d(c, w), (C, torch.randn(3, 2, 3, 3))),
    "max_pool2d": (lambda t, c: t.max_pool2d(c, 2), (C,)),
    "layer_norm": (lambda t, x, v: t.layer_norm(x, (4,), v, v), (X, V)),
    "group_norm": (lambda t, c: t.group_norm(c, 3), (C,)),
    "batch_norm": (lambda t, c, v: t.batch_norm(c, v, v, v, v.exp(), False, 0.1, 1e-5, True), (C, V[:3].clone())),
    "pixel_shuffle": (lambda t, c: t.pixel_shuffle(c.reshape(2, 12, 4, 4), 2), (C,)),
    "addcmul": (lambda t, x, y: t.addcmul(x, x, y, value=0.5), (X, Y)),
    "addcdiv": (lambda t, x, y: t.addcdiv(x, x, y), (X, P)),
    "hypot": (lambda t, x, y: t.hypot(x, y), (X, Y)),
    "meshgrid": (lambda t, v: list(t.meshgrid(v, v, indexing="ij")), (V,)),
    "repeat_interleave": (lambda t, x: x.repeat_interleave(2, dim=0), (X,)),
    "nan_to_num": (lambda t, x: t.nan_to_num(x), (X,)),
    "logaddexp": (lambda t, x, y: t.logaddexp(x, y), (X, Y)),
    "heaviside": (lambda t, x, y: t.heaviside(x, y), (X, Y)),
    "max tensors": (lambda t, x, y: t.min(x, y), (X, Y)),
    "vstack": (lambda t, x, y: t.vstack([x, y]), (X, Y)),
    "multiply": (lambda t, x, y: t.multiply(x, y).subtract(1), (X, Y)),
    "fliplr": (lambda t, x: t.fliplr(x), (X,)),
    "meshgrid xy": (lambda t, v, j: list(t.meshgrid(v, j.float(), indexing="xy")), (V, J)),
    "diff": (lambda t, x: t.diff(x, dim=0), (X,)),
    "tensor_split": (lambda t, x: list(t.tensor_split(x, [1, 3], 1)), (X,)),
    "argsort": (lambda t, x: t.argsort(x, 1), (X,)),
    "nanmean": (lambda t, x: t.nanmean(x, 1), (X,)),
    "dstack": (lambda t, x, y: t.dstack([x, y]), (X, Y)),
    "rot90": (lambda t, x: t.rot90(x), (X,)),
    "one hot": (lambda t, k: t.nn.functional.one_hot(k, 4) if t is torch else t.one_hot(k, 4), (K,)),
    "diag": (lambda t, v: [t.diag(v), t.diag(v, 1), t.diag(v, -2), t.diag_embed(v, 1)], (V,)),
    "trace": (lambda t, s: t.trace(s), (S,)),
    "column_stack": (lambda t, v: t.column_stack([v, v * 2]), (V,)),
    "tensordot": (lambda t, b, x: t.tensordot(b, x, dims=([1, 2], [0, 1])), (B, X)),
    "rfloordiv": (lambda t, n: 7 // n, (N,)),
    "rmod": (lambda t, n: 7 % n, (N,)),
    "in place": (lambda t, x: x.clone().add_(1).mul_(2), (X,)),
    "write through a view": (lambda t, x: _write(x), (X,)),
}


def _write(x: Any) -> Any:
    y = x.clone()
    y[0] = 1.0
    y[:, 1] = x[:, 0]
    y += 1
    y[1:, 2] += 3
    y.t()[3].zero_()
    return y


def test_the_table_is_long() -> None:
    assert len(CASES.keys() - WITH_OTHER_OPS) >= 190


WITH_OTHER_OPS = {
    "einsum", "einsum batched", "diff", "tensor_split", "nanmean", "one hot", "diag", "tensordot", "trace",
    "column_stack", "rmod",
}  # fmt: skip
"""What we write with other ops than PyTorch's decomposition: only the numbers are compared."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITH_OTHER_OPS])
def test_same_ir(name: str) -> None:
    case, inputs = CASES[name]
    same_ir(lambda *xs: case(torch, *xs), lambda *xs: case(ops, *xs), *inputs)


@pytest.mark.engine
@pytest.mark.parametrize("part", range(4))
def test_same_numbers(part: int) -> None:
    cases = list(CASES.values())[part::4]

    def everything(*xs: Any) -> list[Any]:
        results, at = [], 0
        for case, inputs in cases:
            results.append(case(ops, *xs[at : at + len(inputs)]))
            at += len(inputs)
        return results

    arguments = [x for _, inputs in cases for x in inputs]
    module = flambeau.compile(flambeau.trace(everything, *specs_of(arguments)))
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    actual = run(*(x.clone().numpy() for x in arguments))
    for (case, inputs), found in zip(cases, actual, strict=True):
        assert_same(as_torch(found), as_torch(case(torch, *inputs)), rtol=1e-4, atol=1e-5)


@pytest.mark.engine
def test_dynamic_sizes_are_computed_in_the_program() -> None:
    def f(x: Any) -> Any:
        n, d = x.shape
        return x.reshape(n * d) * n, x.view(n, 1, d).expand(n, n, d).sum(), x.mean(0) / (n + 1)

    module = flambeau.compile(flambeau.trace(f, nn.TensorSpec([None, None], "f32")))
    run = flambeau.load(module, profile="quick")
    for shape in ((3, 4), (1, 7)):
        x = np.random.default_rng(0).standard_normal(shape).astype("f")
        for got, want in zip(run(x), f(torch.from_numpy(x)), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5)
