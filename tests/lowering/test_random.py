"""Random numbers: one stream for all targets and engines, a state that programs read and write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import flambeau
from flambeau import CompileError
from flambeau.engines.eager.random import encrypted

ENGINES = [
    ("torch", "eager"), ("linalg-on-tensors", "iree"), ("stablehlo", "iree"), ("tosa", "iree"), ("stablehlo", "xla"),
]  # fmt: skip


LONG = [("stablehlo", "iree"), ("tosa", "iree")]


def loaded(
    function: Callable[..., Any], *args: Any, target: str = "torch", engine: str = "eager", **options: Any
) -> Any:
    module = flambeau.compile(function, args, output_type=target, **options)
    return flambeau.load(module, engine=engine, **({"profile": "quick"} if engine == "iree" else {}))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_the_generator_gives_its_authors_answers(counter: str, key: str, words: str) -> None:
    """The known answers that come with Random123, for `philox 4x32 10`."""
    given, keys, expected = ([int(word, 16) for word in text.split()] for text in (counter, key, words))
    assert [int(w) for w in encrypted([torch.tensor([w]) for w in given], keys)] == expected


def test_numbers_are_those_of_pytorch_on_cuda() -> None:
    """What `torch.manual_seed(42)` and then `torch.rand(5, device="cuda")`, or `randn`, print."""
    uniform, normal = loaded(lambda: torch.rand(5)), loaded(lambda: torch.randn(4))
    uniform.seed(42)
    normal.seed(42)
    torch.testing.assert_close(uniform(), torch.tensor([0.6130, 0.0101, 0.3984, 0.0403, 0.1563]), atol=5e-5, rtol=0)
    torch.testing.assert_close(normal(), torch.tensor([0.1940, 2.1614, -0.1721, 0.8491]), atol=5e-5, rtol=0)


X = torch.linspace(-1, 1, 24).reshape(4, 6)
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "uniform": lambda x: (torch.rand(3, 5), torch.rand_like(x), torch.rand(4, 1)),
    "narrow": lambda x: (torch.rand(9, dtype=torch.float16), torch.rand(9, dtype=torch.bfloat16)),
    "integers": lambda x: (torch.randint(0, 10, (6,)), torch.randint(-5, 200_000, (3, 2)), torch.randint_like(x, 7)),
    "bernoulli": lambda x: (torch.bernoulli(x.abs()), torch.empty(9).bernoulli_(0.3), torch.bernoulli(x, p=0.9)),
    "dropout": lambda x: (nn.functional.dropout(x, 0.25), nn.functional.dropout1d(x[None], 0.5)),
    "permutation": lambda x: (torch.randperm(17), torch.randperm(5)),
    "two calls": lambda x: torch.rand(4) - torch.rand(4),
    "in a branch": lambda x: torch.cond(
        x.amax() > 0, lambda x: x * torch.rand(4, 6), lambda x: x - torch.rand(4, 6), (x,)
    ),
    "whole range": lambda x: (torch.empty(5, dtype=torch.int16).random_(), torch.empty(5).random_()),
    "many dims": lambda x: torch.rand(2, 3, 1, 4).permute(3, 0, 2, 1),
}


@pytest.mark.engine
@pytest.mark.parametrize("name", PROGRAMS)
def test_streams_are_the_same_to_the_bit_everywhere(name: str, request: pytest.FixtureRequest) -> None:
    found = []
    # The long ways are for a few programs; `pytest --all-targets` takes them for all.
    every = request.config.getoption("--all-targets") or name in ("dropout", "two calls")
    engines = ENGINES if every else [e for e in ENGINES if e not in LONG]
    for target, engine in engines:
        run = loaded(PROGRAMS[name], X, target=target, engine=engine)
        run.seed(7, stream=3)
        found.append(torch.utils._pytree.tree_leaves([run(X), run(X)]))
    for (target, engine), results in zip(engines[1:], found[1:], strict=True):
        for ours, first in zip(results, found[0], strict=True):
            assert torch.equal(ours, first), f"{target} on {engine}"
    assert not all(torch.equal(a, b) for a, b in zip(found[0], found[0][len(found[0]) // 2 :], strict=False))


@pytest.mark.engine
def test_distributions_by_functions_are_the_same_to_rounding() -> None:
    def function(x: Tensor) -> Any:
        return (
            torch.randn(50), torch.randn(4, dtype=torch.complex64), torch.empty(20).exponential_(2.0),
            torch.empty(20).log_normal_(), torch.empty(20).uniform_(-2.0, 3.0),
            torch.empty(20).cauchy_(), torch.empty(20).geometric_(0.3),
            torch.normal(x, 2.0), torch.normal(0.0, x.abs() + 1),
        )  # fmt: skip

    found = []
    for target, engine in [e for e in ENGINES if e[0] != "tosa"]:
        run = loaded(function, X, target=target, engine=engine)
        run.seed(1)
        found.append(run(X))
    for results in found[1:]:
        torch.testing.assert_close(results, found[0], rtol=2e-5, atol=2e-5)


COUNT = 1_000_000
SAMPLERS: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "rand": (lambda: torch.rand(COUNT), stats.uniform()),
    "rand of f64": (lambda: torch.rand(COUNT, dtype=torch.float64), stats.uniform()),
    "uniform": (lambda: torch.empty(COUNT).uniform_(-1.0, 3.0), stats.uniform(-1, 4)),
    "randn": (lambda: torch.randn(COUNT), stats.norm()),
    "randn of f64": (lambda: torch.randn(COUNT, dtype=torch.float64), stats.norm()),
    "normal": (lambda: torch.normal(2.0, 0.5, (COUNT,)), stats.norm(2, 0.5)),
    "exponential": (lambda: torch.empty(COUNT).exponential_(1.5), stats.expon(scale=1 / 1.5)),
    "log_normal": (lambda: torch.empty(COUNT).log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=math.exp(0.5))),
    "cauchy": (lambda: torch.empty(COUNT).cauchy_(1.0, 2.0), stats.cauchy(1, 2)),
    "randint": (lambda: torch.randint(3, 20, (COUNT,)), stats.randint(3, 20)),
    "large randint": (lambda: torch.randint(0, 3 << 30, (COUNT,)), stats.uniform(0, 3 << 30)),
    "bernoulli": (lambda: torch.empty(COUNT).bernoulli_(0.3), stats.bernoulli(0.3)),
    "geometric": (lambda: torch.empty(COUNT).geometric_(0.2), stats.geom(0.2)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(COUNT, 4), 1)[:, 0],
        stats.rv_discrete(values=(range(4), [0.1, 0.2, 0.3, 0.4]))(),
    ),
    "multinomial with replacement": (
        lambda: torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0]), COUNT, replacement=True),
        stats.rv_discrete(values=(range(4), [0.1, 0.2, 0.3, 0.4]))(),
    ),
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_million_draws_have_the_distribution(name: str) -> None:
    """Kolmogorov and Smirnov's test, or Pearson's, the moments, and the correlation with the next call and element."""
    function, distribution = SAMPLERS[name]
    run = loaded(function, target="linalg-on-tensors", engine="iree")
    run.seed(2026)
    first, second = (run().double().numpy() for _ in range(2))
    if isinstance(distribution.dist, stats.rv_continuous):
        assert stats.kstest(first[:100_000], distribution.cdf).pvalue > 1e-3
    else:
        values = sorted(set(first.astype(int)))[:40]
        counts = [int((first == v).sum()) for v in values]
        expected = [float(distribution.pmf(v)) * COUNT for v in values]
        counts, expected = [*counts, COUNT - sum(counts)], [*expected, COUNT - sum(expected)]
        kept = [(c, e) for c, e in zip(counts, expected, strict=True) if e > 5]
        total, wanted = sum(c for c, _ in kept), sum(e for _, e in kept)
        assert stats.chisquare([c for c, _ in kept], [e * total / wanted for _, e in kept]).pvalue > 1e-3
    if name != "cauchy":  # which has no mean
        mean, variance = distribution.stats(moments="mv")
        error = math.sqrt(float(variance) / COUNT)
        assert abs(first.mean() - float(mean)) < 4.5 * error
        assert abs(first.var() / float(variance) - 1) < 0.02
        for other in (second, torch.from_numpy(first).roll(1).numpy()):
            assert abs(stats.pearsonr(first, other).statistic) < 4.5 / math.sqrt(COUNT)


def test_the_state_counts_draws_and_carries() -> None:
    run = loaded(lambda: (torch.rand(3), torch.randn(2)))
    run.seed(5, offset=4 * ((1 << 32) - 1))
    assert run.weights["random_state"].tolist() == [5, 0, -1, 0, 0]
    first = run()
    assert run.weights["random_state"].tolist() == [5, 0, 1, 1, 0]
    run.seed(5, offset=4 << 32)
    assert torch.equal(run()[0], loaded_at(5, 4 << 32))
    run.seed(5, offset=4 * ((1 << 32) - 1))
    assert all(torch.equal(a, b) for a, b in zip(run(), first, strict=True))


def loaded_at(seed: int, offset: int) -> Tensor:
    run = loaded(lambda: torch.rand(3))
    run.seed(seed, offset=offset)
    return run()


def test_seeds_streams_and_mistakes() -> None:
    run = loaded(lambda: torch.rand(100))
    draws = []
    for seed, stream in ((0, 0), (1, 0), (1 << 40, 0), (-1, 0), (0, 1), (0, 2)):
        run.seed(seed, stream=stream)
        draws.append(run())
    assert len({tuple(d.tolist()) for d in draws}) == len(draws)
    torch.manual_seed(11)
    assert torch.equal(loaded(lambda: torch.rand(3))(), loaded_at(11, 0))
    with pytest.raises(ValueError, match="integer of 64 bits"):
        run.seed(1 << 64)
    with pytest.raises(TypeError, match="seed is an integer"):
        run.seed(1.5)
    with pytest.raises(ValueError, match="multiple of 4"):
        run.seed(0, offset=2)
    with pytest.raises(ValueError, match="draws no random numbers"):
        loaded(torch.sin, torch.ones(2)).seed(0)


def test_models_outside_of_training_have_no_state() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.RReLU(), nn.AlphaDropout(0.1)).eval()
    module = flambeau.compile(model, (torch.ones(2, 3),))
    assert [a.name for a in module.signatures["main"].arguments] == ["input"]


@pytest.mark.engine
def test_dropouts_keep_the_mean_and_drop_what_they_say() -> None:
    def function(x: Tensor) -> Any:
        return (
            nn.functional.dropout(x, 0.3), nn.functional.dropout2d(x.view(100, 100, 10, 10), 0.4),
            nn.functional.alpha_dropout(x, 0.2, training=True),
            nn.functional.feature_alpha_dropout(x.view(100, 100, 10, 10), 0.2, training=True),
            nn.functional.dropout(x, 1.0), nn.functional.dropout(x, 0.0), nn.functional.rrelu(-x, training=True),
        )  # fmt: skip

    x = torch.ones(1_000_000)
    plain, channels, alpha, features, none, whole, relu = loaded(
        function, x, target="linalg-on-tensors", engine="iree"
    )(x)
    torch.testing.assert_close(plain.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert abs((plain == 0).float().mean() - 0.3) < 0.003
    kept = channels.flatten(2)
    assert torch.equal(kept.amax(2), kept.amin(2))
    assert abs((kept[..., 0] == 0).float().mean() - 0.4) < 0.02
    assert len(alpha.unique()) == len(features.unique()) == 2
    assert not none.any()
    assert torch.equal(whole, x)
    assert relu.min() >= -1 / 3
    assert relu.max() <= -1 / 8
    assert abs(relu.mean() + 11 / 48) < 0.001


def test_attention_drops_weights() -> None:
    """Of values that are all 1 attention gives the sum of the weights that stay, scaled so that its mean is 1."""
    q, k, v = torch.randn(2, 4, 50, 8), torch.randn(2, 2, 60, 8), torch.ones(2, 2, 60, 8)

    def function(q: Tensor, k: Tensor, v: Tensor, causal: bool, p: float) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=causal, enable_gqa=True)

    for causal in (False, True):
        found = loaded(lambda q, k, v: function(q, k, v, causal, 0.25), q, k, v)(q, k, v)  # noqa: B023
        assert abs(found.mean() - 1) < 0.05
        assert found.std() > 0.05
    first = found[..., 0, :]  # The first query sees one key alone, which stays or does not.
    torch.testing.assert_close(first.unique(), torch.tensor([0.0, 1 / 0.75]))
    torch.testing.assert_close(loaded(lambda *x: function(*x, True, 0.0), q, k, v)(q, k, v), torch.ones(2, 4, 50, 8))


def test_dynamic_sizes_and_loops() -> None:
    dynamic = loaded(lambda x: torch.rand_like(x), X, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    dynamic.seed(3)
    static = loaded(lambda x: torch.rand_like(x), torch.ones(9, 6))
    static.seed(3)
    assert torch.equal(dynamic(torch.ones(9, 6)), static(torch.ones(9, 6)))

    @torch.jit.script
    def drawn(x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x + torch.rand(3)
        return x + torch.rand(3)

    module = flambeau.compile(drawn, (torch.zeros(3), 4), output_type="torch")
    run = flambeau.load(module, engine="eager")
    run.seed(9)
    found = run(torch.zeros(3), 4)
    torch.testing.assert_close(found, sum(loaded_at(9, 4 * i) for i in range(5)))


def test_what_is_refused() -> None:
    def unknown(x: Tensor) -> Tensor:
        return torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + torch.rand(3),), (x,))[0]

    with pytest.raises(CompileError, match="how often it runs is not known"):
        flambeau.compile(unknown, (torch.zeros(3),))
    with pytest.raises(CompileError, match=r"aten\.poisson"):
        flambeau.compile(torch.poisson, (torch.ones(3),))
    with pytest.raises(CompileError, match="the range is empty"):
        flambeau.compile(lambda x: x.random_(3, 3) if False else torch.ops.aten.randint_like.low_dtype(x, 3, 3), (X,))


@pytest.mark.engine
def test_weights_of_multinomial_are_checked() -> None:
    run = loaded(lambda w: torch.multinomial(w, 2), torch.ones(5), target="linalg-on-tensors", engine="iree")
    assert len(set(run(torch.ones(5)).tolist())) == 2
    for weights, message in (([1.0, -1.0, 1, 1, 1], "negative"), ([0.0] * 5, "zero"), ([1, math.nan, 1, 1, 1], "NaN")):
        with pytest.raises(RuntimeError, match=message):
            run(torch.tensor(weights))


@pytest.mark.engine
def test_calls_are_checked_with_the_same_numbers() -> None:
    module = flambeau.compile(lambda x: nn.functional.dropout(x, 0.5), (X,))
    run = flambeau.load(module, profile="quick", check=1)
    assert not torch.equal(run(X), run(X))


@pytest.mark.engine
def test_torch_compile_draws_from_the_seed_of_pytorch() -> None:
    torch._dynamo.reset()
    fast = torch.compile(nn.Dropout(0.5), backend="flambeau", options={"profile": "quick"})
    x, draws = torch.ones(64, requires_grad=True), []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append([fast(x) for _ in range(2)])
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[0][1])
    draws[0][0].sum().backward()
    assert torch.equal(x.grad, draws[0][0].detach())  # the same elements are dropped in the backward pass
