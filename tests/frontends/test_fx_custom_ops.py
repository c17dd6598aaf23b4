"""Custom ops that write, and PyTorch's function transforms: looked into while a model is exported."""

from __future__ import annotations

import warnings

import pytest
import torch
from fx_support import THREE, steps_like_eager
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

import flambeau
from flambeau.diagnostics import CompileError, Unsupported
from flambeau.frontends.fx import expansion


@torch.library.custom_op("flambeau_tests::bump", mutates_args={"x", "z"})
def bump(x: Tensor, y: Tensor, z: Tensor, n: int = 3) -> Tensor:
    x.add_(y)
    z[1:].mul_(n)
    return x * 2


@bump.register_fake
def _(x: Tensor, y: Tensor, z: Tensor, n: int = 3) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("flambeau_tests::opaque", mutates_args={"x"})
def opaque(x: Tensor) -> None:
    x.copy_(torch.from_numpy(x.numpy() + 1))


class CustomOps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("z", torch.ones(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return bump(x, x + 1, self.z[0]) + self.z


def test_custom_ops_that_write_their_arguments() -> None:
    steps_like_eager(CustomOps, *THREE)


def test_a_custom_op_that_cannot_be_looked_into_is_named() -> None:
    def program(x: Tensor) -> Tensor:
        opaque(x)
        return x * 2

    with pytest.raises(CompileError, match=r"flambeau_tests\.opaque"):
        flambeau.compile(program, THREE[0])


class Transformed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.calls.add_(1)
        gradient = torch.func.grad(lambda v: (self.weight * v**3).sum())(x)
        rows = torch.vmap(lambda v: v.sum() * torch.ones(3))(x[None].repeat(2, 1))
        _, tangent = torch.func.jvp(lambda v: v**2, (x,), (x,))
        return gradient + self.calls, rows, tangent, torch.func.jacrev(lambda v: v.sin())(x)


@pytest.mark.engine
def test_function_transforms_are_done_while_tracing() -> None:
    steps_like_eager(Transformed, *THREE[:2], on_iree=True)


def test_an_exported_program_with_transforms_in_it_is_refused() -> None:
    program = torch.export.export(Transformed(), THREE[0], strict=False)
    with pytest.raises(CompileError, match=r"steps of torch\.func or torch\.vmap"):
        flambeau.compile(program)


def test_what_goes_wrong_in_a_decomposition_is_told() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    with FakeTensorMode():
        x.meta["val"] = torch.empty(2)
    node = graph.call_function(torch.ops.aten.relu.default, (x,))
    with pytest.raises(Unsupported, match=r"decomposition of it failed: KeyError: 'nothing'"):
        expansion.trace(node, lambda x: {}["nothing"])

    def warns(x: Tensor) -> Tensor:
        warnings.warn("of PyTorch's own", stacklevel=1)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert expansion.trace(node, warns) is not None


@pytest.mark.engine
def test_ops_that_pytorch_writes_in_python() -> None:
    options = LinearCrossEntropyOptions()

    def loss(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return nn.functional.linear_cross_entropy(x, weight, target, options=options)

    x, weight, target = torch.randn(4, 6), torch.randn(5, 6), torch.tensor([0, 4, 2, 1])
    run = flambeau.load(flambeau.compile(loss, (x, weight, target)), profile="quick")
    torch.testing.assert_close(run(x, weight, target), loss(x, weight, target))
