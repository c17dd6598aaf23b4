"""`torch.compile(model, backend="flambeau")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.mark.engine
def test_a_model_runs_and_recompiles_for_other_sizes() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    fast = torch.compile(model, backend="flambeau")
    with torch.no_grad():
        for batch in (3, 5, 6):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(fast(x), model(x))


@pytest.mark.engine
def test_writes_constants_and_python_results() -> None:
    def program(x: Tensor) -> tuple[Tensor, int]:
        y = x * torch.tensor([1.0, 2.0, 3.0, 4.0])
        y[0] = 1
        return y, x.shape[0]

    fast = torch.compile(program, backend="flambeau")
    for x in (torch.randn(3, 4), torch.randn(5, 4)):
        expected = program(x)
        actual = fast(x)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]


@pytest.mark.engine
def test_an_edited_weight_is_seen() -> None:
    model = nn.Linear(4, 2).eval()
    fast = torch.compile(model, backend="flambeau")
    x = torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        model.weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x))


def eager_engine(function: Any) -> Any:
    return torch.compile(function, backend="flambeau", options={"engine": "eager"})


def test_a_result_that_requires_a_gradient_has_it() -> None:
    part, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast = eager_engine(part)
    fast(x).sum().backward()
    expected = torch.autograd.grad(part(x).sum(), [part.weight, part.bias])
    torch.testing.assert_close([part.weight.grad, part.bias.grad], list(expected))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), part(x))
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), part(x))


def test_an_argument_that_requires_a_gradient_has_it() -> None:
    x = torch.randn(2, 4).requires_grad_()
    eager_engine(lambda x: x * 2)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2, 4), 2.0))


def test_a_model_that_takes_no_gradient_itself_runs_in_grad_mode() -> None:
    linear = nn.Linear(4, 4)

    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = linear(x)
        return y.argmax(-1)

    x = torch.randn(3, 4)
    assert torch.equal(eager_engine(program)(x), program(x))


LAYOUTS: list[Callable[[Tensor], Any]] = [
    lambda x: (x + 1).t(),
    lambda x: torch.empty_strided((3, 4), (1, 3)).copy_(x) * 2,
    lambda x: (x + 1)[1:, ::2],
    lambda x: (x + 1)[:1].expand(3, 4),
    lambda x: (x + 1).reshape(-1).unfold(0, 5, 2),
    lambda x: x.repeat(2, 1).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last) * 2,
    lambda x: x.to(torch.complex64).t(),
]


@pytest.mark.parametrize("program", LAYOUTS, ids=range(len(LAYOUTS)))
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_have_the_strides_that_pytorch_promises(program: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    fast = torch.compile(program, backend="flambeau", options={"engine": "eager"}, dynamic=dynamic)
    x = torch.arange(12.0).reshape(3, 4)
    actual, expected = fast(x), program(x)
    assert actual.stride() == expected.stride()
    assert actual.storage_offset() == expected.storage_offset()
    torch.testing.assert_close(actual, expected)


def test_a_view_after_a_graph_break() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x + 1).t()
        torch._dynamo.graph_break()
        return y.t().view(-1), y.as_strided((2,), (5,))

    x = torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(eager_engine(program)(x), program(x))


def test_results_that_share_memory_do_so_again() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return y, y.t(), y.view(-1)[1:], x.t(), y.view(torch.int32)

    ours, theirs = torch.ones(3, 4), torch.ones(3, 4)
    actual, expected = eager_engine(program)(ours), program(theirs)
    for results, x in ((actual, ours), (expected, theirs)):
        results[0][1].zero_()
        x[0] = 5
        results[3][1].fill_(9)
    for a, e in zip((*actual, ours), (*expected, theirs), strict=True):
        torch.testing.assert_close(a, e)


def test_options_with_typing_errors_are_named() -> None:
    x = torch.ones(2)
    for options, message in [
        ({"engin": "eager"}, "'engin', which is no option here; did you mean 'engine'"),
        ({"engine": "iree", "profil": "quick"}, "did you mean 'profile'"),
        ({"engine": "gcc"}, "there is no engine 'gcc'"),
    ]:
        with pytest.raises(Exception, match=message):
            torch.compile(lambda x: x + 1, backend="flambeau", options=options)(x)
    with pytest.raises(Exception, match="has no modes"):
        torch.compile(lambda x: x + 1, backend="flambeau", mode="max-autotune")(x)
