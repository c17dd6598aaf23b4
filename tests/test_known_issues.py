"""What SHARK-Turbine lists as its known issues, with the programs of that list, from export and under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fx_support import one_step, runs_like_eager, under_compile
from torch import Tensor, nn

import flambeau

pytestmark = pytest.mark.engine


def compiled_like_eager(function: Callable[..., Any], *args: Any) -> None:
    """Compare a call under `torch.compile`, in one graph, with eager's."""
    torch._dynamo.reset()
    fast = torch.compile(function, backend="flambeau", fullgraph=True, options={"profile": "quick"})
    torch.testing.assert_close(fast(*args), function(*args), equal_nan=True)


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_functional_pools_have_the_stride_of_their_kernel(pool: Callable[..., Tensor]) -> None:
    """S21, S22, S23: the stride that nobody gives is an empty list, and means the kernel's size."""

    class Pool(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return pool(x, 8)

    runs_like_eager(Pool(), torch.randn(1, 2, 16, 24))
    compiled_like_eager(Pool(), torch.randn(1, 2, 16, 24))


def test_swapped_arguments_are_told_with_the_line() -> None:
    """S25: the list's own program has its arguments the wrong way round, which PyTorch refuses."""

    class Swapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.max_pool2d(8, x)  # type: ignore[arg-type]

    with pytest.raises(
        flambeau.CompileError, match=r"(?s)argument 'input'.*must be Tensor, not int.*F.max_pool2d\(8, x\)"
    ):
        flambeau.compile(Swapped(), (torch.randn(1, 2, 16, 16),))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.complex64, torch.complex128], ids=str)
def test_a_tensor_that_forward_makes(dtype: torch.dtype) -> None:
    """S26, S27, S28: `lift_fresh_copy` of a constant that only the graph's module has."""

    class Constant(nn.Module):
        def forward(self) -> Tensor:
            return torch.tensor([1, 2], dtype=dtype)

    runs_like_eager(Constant())

    def constant(x: Tensor) -> Tensor:
        return torch.tensor([1, 2], dtype=dtype) + x

    compiled_like_eager(constant, torch.zeros(2, dtype=dtype))


def test_lift() -> None:
    """S29."""

    class Lift(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten.lift(x)

    runs_like_eager(Lift(), torch.randn(3))
    compiled_like_eager(Lift(), torch.randn(3))


class LinearModel(nn.Module):
    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_dim, output_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0), -1)
        return self.linear(x)


def test_training_of_the_linear_model() -> None:
    """S30, S31: the backward pass of a cross entropy has `aten.where` with a scalar tensor in it."""
    x, y = torch.randn(64, 1, 7, 7), torch.randint(0, 10, (64,))
    y[::5] = -100  # ignored

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LinearModel(49, 10)

        def forward(self, x: Tensor) -> Tensor:
            return F.cross_entropy(self.model(x), y)

    under_compile(Trained(), x)
    model, reference = LinearModel(49, 10), LinearModel(49, 10)
    reference.load_state_dict(model.state_dict())
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, reference))
    run = flambeau.load(flambeau.export_train_step(model, nn.CrossEntropyLoss(), mine, (x, y)), profile="quick")
    for _ in range(5):
        loss = run(x, y, lr=0.1)
        theirs.zero_grad()
        expected = F.cross_entropy(reference(x), y)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(model.state_dict(), reference.state_dict())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_convolution_that_are_none(bias: bool, stride: int) -> None:
    """S32, S33, S34: without a bias the output mask is [True, True, False], and the third gradient None."""

    class Convolved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(2, 3, 3, stride, 1, bias=bias)
            self.second = nn.Conv2d(3, 2, 3, stride, 1, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).relu())

    x = torch.randn(1, 2, 8, 8)
    one_step(Convolved(), x)
    under_compile(Convolved(), x)


def test_a_gradient_that_is_asked_for_and_is_none() -> None:
    """S32: the op itself, with None in the place of what is not asked for."""

    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Any, ...]:
        settings = ([3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(g, x, w, *settings, [True, True, False])

    args = torch.randn(1, 3, 4, 4), torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)
    module = flambeau.compile(backward, args)
    results = flambeau.load(module, profile="quick")(*args)
    assert results[2] is None
    torch.testing.assert_close(results[:2], backward(*args)[:2])
