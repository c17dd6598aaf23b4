"""The overload that a call means is the one that PyTorch records for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.nn.parity import specs_of
from xdsl.ir import Block

import flambeau
from flambeau import nn, ops
from flambeau.frontends.nn.core import context
from flambeau.frontends.nn.core.program import Traced, add_argument
from flambeau.frontends.nn.core.tracer import Tracer
from flambeau.ir.module import Weights

INPUTS = {
    "x": torch.randn(3, 4),
    "n": torch.arange(12).reshape(3, 4),
    "m": torch.randn(3, 4) > 0,
    "i": torch.tensor([0, 2, 1]),
}

CALLS = """
t.add(x, x) | t.add(x, 2) | x.sub(2, alpha=3) | x * 2.5 | x.mul(True) | t.div(x, 2, rounding_mode="floor") | t.div(n, 2)
x // 2 | x % 2 | x**2 | 2**x | t.pow(x, x) | 2 - x | t.rsub(x, x) | t.fmod(x, 2) | t.remainder(x, x)
x == 1 | x < x | t.eq(x, x) | t.clamp(x, 0, 1) | x.clamp(min=x) | x.clamp_min(0.0) | t.floor_divide(n, 2)
x.sum() | x.sum(0) | x.sum((0, 1)) | x.sum(dim=0, keepdim=True) | x.mean() | x.mean(1) | t.nansum(x)
x.std() | x.std(0) | x.std(False) | x.std(0, False) | t.var(x, dim=0, correction=0) | x.var(unbiased=False)
t.std_mean(x, 0) | t.var_mean(x) | t.count_nonzero(x) | t.count_nonzero(x, 0) | t.aminmax(x)
x.max() | x.max(1) | t.max(x, x) | x.max(dim=0, keepdim=True) | x.amax(0) | x.argmax() | x.prod() | x.prod(1)
x.any() | m.any(1) | m.all(dim=0) | t.all(m) | x.softmax(-1) | t.log_softmax(x, dim=0)
t.softmax(x, 1, dtype=t.float64)
x.cumsum(0) | t.cumprod(x, 0) | t.sort(x) | t.sort(x, dim=0, stable=True) | x.topk(2) | x.median() | x.kthvalue(1)
x.transpose(0, 1) | x.flatten() | x.view(-1, 2) | x.view(t.int32) | x.squeeze() | x.squeeze(0) | x.squeeze((0, 1))
x.unbind() | t.split(x, 2) | x.tensor_split(2) | x.flip(0) | x.roll(1, 0) | x.repeat(2, 2) | x.permute(1, 0)
t.movedim(x, 0, 1) | t.movedim(x, (0, 1), (1, 0)) | x.expand(2, 3, 4) | x.unflatten(1, (2, 2)) | x.diagonal(0, 0, 1)
t.where(m, x, x) | t.where(m, x, 0.0) | t.where(m, 1.0, x) | t.where(m, 1.0, 0.0) | x.masked_fill(m, 1.0)
x.scatter(0, n % 3, 1.0) | x.scatter(0, n % 3, x) | x.scatter(0, n % 3, x, reduce="add") | x.index_fill(0, i, 1.0)
x.index_select(0, i) | x.gather(0, n % 3) | t.bitwise_and(n, n) | t.bitwise_and(n, 1)
t.isin(n, i) | t.bucketize(x, x[0])
t.lerp(x, x, 0.5) | t.lerp(x, x, x) | t.xlogy(x, x) | t.xlogy(x, 2.0) | t.round(x, decimals=2) | x.round()
t.arange(5) | t.arange(1, 5) | t.arange(0, 5, 2) | t.zeros(2, 3) | t.full((2,), 1.0) | t.eye(3) | t.eye(3, 4)
x.new_zeros(2, 3) | t.linspace(0, 1, 3) | t.cat([x, x]) | t.stack([x, x], 1) | t.norm(x) | t.linalg.vector_norm(x)
t.linalg.norm(x) | t.logsumexp(x, 0) | x.half() | x.repeat_interleave(2, 1) | t.dropout(x, 0.5, False)
t.conv2d(x[None, None], x[None, None], padding=1) | t.conv2d(x[None, None], x[None, None], padding="same")
x.clone().add_(1) | x.clone().mul_(x) | x.clone().fill_(1.0) | x.clone().masked_fill_(m, 1.0) | x.clone().clamp_(0, 1)
t.sum(input=x, axis=1, keepdims=True) | t.max(input=x, other=x) | x.sum(axis=0)
"""
TABLE = [call.strip() for line in CALLS.strip().splitlines() for call in line.split(" | ")]
UNSEEN = ("aten._assert_tensor_metadata", "aten.lift_fresh_copy")


def recorded_by_torch(call: str) -> list[str]:
    class Call(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return eval(call, {"t": torch, **dict(zip(INPUTS, tensors, strict=True))})

    graph = torch.export.export(Call(), tuple(INPUTS.values())).graph
    names = [str(n.target).removesuffix(".default") for n in graph.nodes if hasattr(n.target, "_schema")]
    return [name for name in names if name not in UNSEEN]


def chosen_here(call: str) -> list[str]:
    block = Block()
    tracer = Tracer(block, Weights())
    traced = Traced(tracer, block, [])
    specs = specs_of(list(INPUTS.values()))
    values = {name: add_argument(traced, spec, name) for name, spec in zip(INPUTS, specs, strict=True)}
    with context.building(tracer):
        eval(call, {"t": ops, **values})
    return tracer.chosen


def test_the_table_is_long() -> None:
    assert len(TABLE) >= 120


@pytest.mark.parametrize("call", TABLE)
def test_choice(call: str) -> None:
    assert chosen_here(call) == recorded_by_torch(call)


def test_an_overload_by_name() -> None:
    module = flambeau.trace(lambda x: ops.add.Scalar(x, 1, alpha=2), nn.TensorSpec([2]))
    assert "torch.aten.add.Scalar" in str(module)
    with pytest.raises(AttributeError, match="add has no overload 'Nothing'; it has"):
        ops.add.Nothing  # noqa: B018
