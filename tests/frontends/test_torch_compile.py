"""`torch.compile(model, backend="flambeau")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau.diagnostics import CompileError
from flambeau.engines import RunError
from flambeau.engines.eager import EagerEngine
from flambeau.frontends.fx.captured import work_of
from flambeau.frontends.fx.dynamo import FallbackWarning
from flambeau.torch_compile import _chosen, counters


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


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
        ({"fallback": "no"}, "'fallback' is 'error' or 'eager', not 'no'"),
        ({"target": "linalg"}, "unknown output type 'linalg'"),
    ]:
        with pytest.raises(Exception, match=message):
            torch.compile(lambda x: x + 1, backend="flambeau", options=options)(x)


def counts(**expected: int) -> None:
    """Check what was counted since the test began; all other counts are to be zero."""
    assert {name: n for name, n in counters().items() if n} == expected


def test_modes_are_options_or_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(Exception, match="no mode 'max-autotune': it has 'default' and 'reduce-overhead'"):
        torch.compile(lambda x: x + 1, backend="flambeau", mode="max-autotune")(x)
    assert _chosen({"mode": "reduce-overhead"}) == {"weights": "tracked"}
    assert _chosen({"mode": "default"}) == _chosen({"options": {}}) == {}


def test_graphs_and_recompiles_are_counted() -> None:
    fast = eager_engine(lambda x, n: x * n)
    for n in (2, 3, 4, 5):
        assert torch.equal(fast(torch.ones(3), n), torch.full((3,), float(n)))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # the second takes any number
    counts(graphs=2, compiled=2, cache_bypasses=2)
    assert torch._dynamo.utils.counters["flambeau"]["graphs"] == 2


def test_a_marked_size_is_compiled_once() -> None:
    fast = eager_engine(lambda x: (x * 2).sum(0))
    for n in (2, 3, 4):
        x = torch.ones(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(fast(x), torch.full((3,), 2.0 * n))
    counts(graphs=1, compiled=1, cache_bypasses=1)


def test_graphs_without_anything_to_compute_are_left_to_pytorch() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    viewed = eager_engine(lambda x: (x.view(-1), x[0]))(x)
    assert [v.data_ptr() for v in viewed] == [x.data_ptr()] * 2
    assert torch.compile(lambda x: x.shape[0] + 1, backend="flambeau", dynamic=True)(x) == 3
    assert torch.compile(lambda x: x + 1, backend="flambeau")(torch.ones(3, device="meta")).device.type == "meta"
    assert counters()["graphs"] == 0
    assert counters()["left_to_pytorch"] >= 2


def test_a_graph_that_cannot_be_compiled_says_so_or_is_left_to_pytorch() -> None:
    @torch.library.custom_op("flambeau_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)

    def program(x: Tensor) -> Tensor:
        return twice(x) + 1

    reason = r"flambeau_test\.twice: no lowering rule"
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=reason) as error:
        torch.compile(program, backend="flambeau")(torch.ones(2))
    assert isinstance(error.value.inner_exception, CompileError)
    assert "options={'fallback': 'eager'}" in str(error.value)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fast = torch.compile(program, backend="flambeau", options={"fallback": "eager"})
    with pytest.warns(FallbackWarning, match=reason):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 3.0))
    assert counters()["fallbacks"] == counters()["graphs"] == 1


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
def test_sizes_that_contents_decide() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.nonzero() * 2, x[x > 0].t()

    x = torch.tensor([1.0, 0.0, 2.0])
    fast = torch.compile(program, backend="flambeau", options={"engine": "eager"}, fullgraph=True)
    torch.testing.assert_close(fast(x), program(x))


def test_arguments_that_are_results_and_results_that_are_one() -> None:
    def program(x: Tensor, y: Tensor) -> dict[str, Any]:
        z = x + y
        return {"z": z, "x": x, "both": [z, None], "n": 3}

    x, y = torch.ones(3), torch.ones(3)
    result = eager_engine(program)(x, y=y)
    assert result["x"] is x
    assert result["both"][0] is result["z"]
    assert result["both"][1] is None
    torch.testing.assert_close(result, program(x, y))


def test_what_is_kept_for_the_backward_pass_is_not_copied() -> None:
    seen: list[Any] = []

    class Watched(EagerEngine):
        def compile(self, module: Any) -> Any:
            seen.append(module.signature)
            return super().compile(module)

    weight = torch.randn(4, 4, requires_grad=True)
    fast = torch.compile(lambda x: x @ weight, backend="flambeau", options={"engine": Watched()})
    fast(torch.randn(2, 4)).sum().backward()
    assert [len(signature.results) for signature in seen] == [1, 1]


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_targets(target: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU()).eval(), torch.randn(2, 4)
    fast = torch.compile(model, backend="flambeau", options={"target": target, "profile": "quick"})
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))


def test_an_engine_says_which_targets_it_takes() -> None:
    with pytest.raises(Exception, match="the engine 'xla' runs stablehlo, not 'tosa'"):
        torch.compile(torch.neg, backend="flambeau", options={"engine": "xla", "target": "tosa"})(torch.ones(2))


@pytest.mark.engine
def test_sizes_as_arguments_on_an_engine_that_compiles_for_each() -> None:
    def program(x: Tensor, n: int) -> tuple[Tensor, int]:
        return x.reshape(-1) + x.new_zeros(n).sum(), n + 1

    fast = torch.compile(program, backend="flambeau", options={"engine": "xla"}, dynamic=True)
    for x, n in [(torch.ones(2, 3), 2), (torch.ones(3, 2).t(), 5), (torch.ones(4, 6)[:, ::2], 5)]:
        actual, expected = fast(x, n), program(x, n)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]


def test_little_work_is_told_from_much() -> None:
    def work(function: Callable[..., Any], *shapes: tuple[int, ...]) -> int | None:
        return work_of(make_fx(function)(*(torch.ones(shape) for shape in shapes)).graph)

    assert work(torch.mm, (10, 20), (20, 30)) == 10 * 20 * 30
    assert work(torch.sin, (1000,)) == 4000
    assert work(torch.sum, (1000,)) == 4000
    with torch.no_grad():
        assert (work(nn.Conv2d(3, 8, 3), (1, 3, 32, 32)) or 0) > 30 * 30 * 8


def test_an_op_with_an_effect_still_has_it() -> None:
    fast = eager_engine(lambda x: torch.linalg.cholesky(x).sum())
    for trains in (False, True):
        x = torch.eye(3).requires_grad_(trains)
        assert fast(x).item() == 3.0
        with pytest.raises(RunError, match="not positive-definite"):
            fast(-torch.eye(3).requires_grad_(trains))


def test_a_gradient_that_is_zero_everywhere() -> None:
    x = torch.randn(3, requires_grad=True)
    torch.compile(torch.sgn, backend="flambeau", options={"engine": "eager"})(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0] * 3


MATRIX = torch.randn(2, 4, 4) + 2 * torch.eye(4)
WITH_FACTORS: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
    (torch.linalg.det, (MATRIX,)), (lambda x: torch.linalg.det(x.mT), (MATRIX,)),
    (lambda x: torch.linalg.det(x).abs(), (torch.complex(MATRIX, MATRIX.mT),)),
    (lambda x: torch.linalg.slogdet(x)[1], (MATRIX,)), (lambda x: torch.logdet(x @ x.mT), (MATRIX,)),
    (torch.linalg.solve, (MATRIX, torch.randn(2, 4, 3))), (torch.linalg.solve, (MATRIX, torch.randn(2, 4))),
    (lambda a, b: torch.linalg.solve(a, b, left=False), (MATRIX, torch.randn(2, 3, 4))),
    (torch.linalg.inv, (MATRIX,)),
]  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("program, inputs", WITH_FACTORS, ids=range(len(WITH_FACTORS)))
def test_gradients_that_use_the_factors_of_a_matrix(program: Any, inputs: tuple[Tensor, ...]) -> None:
    wanted, given = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    program(*wanted).square().sum().backward()
    torch.compile(program, backend="flambeau", options={"profile": "quick"})(*given).square().sum().backward()
    for x, y in zip(given, wanted, strict=True):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)
