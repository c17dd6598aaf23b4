"""A sample of random calls, and what the fuzzer promises of itself."""

from __future__ import annotations

import re

import pytest
import torch
from fuzz.campaign import BAD, run_one
from fuzz.schemas import cases, engine_bugs, exclusions
from fuzz.schemas.check import REFUSALS, Answer, ask, build, check_seed, describe
from fuzz.schemas.tensors import TensorArgument

from flambeau.passes.pipelines import to_backend_contract


def test_a_sample_of_calls_without_an_engine() -> None:
    bad = {seed: o.reason for seed in range(1500) if (o := run_one(check_seed, seed)).status in BAD}
    assert not bad


def test_a_case_is_one_line_of_python() -> None:
    """As it is printed, it can be run."""
    for seed in range(200):
        line = describe(seed)
        assert line.startswith("torch.ops.aten.")
        assert "\n" not in line
        compile(line, "<case>", "eval")


def test_a_seed_stands_for_one_case() -> None:
    for seed in range(50):
        first, second = cases.generate(seed), cases.generate(seed)
        assert str(first) == str(second)
        for a, b in zip(first.values(), second.values(), strict=True):
            assert not isinstance(a, torch.Tensor) or torch.equal(a.nan_to_num(), b.nan_to_num())


X = TensorArgument((4,), torch.float32)
GRID = TensorArgument((2, 3, 4), torch.float32)
REFUSED: list[tuple[str, tuple[object, ...]]] = [
    ("aten.topk", (X, 9, -1, True, True)),
    ("aten.topk", (X, -2, -1, True, True)),
    ("aten.kthvalue", (X, 0, -1, False)),
    ("aten.histc", (X, 0, 0, 0)),
    ("aten.histc", (X, 3, 2, 1)),
    ("aten.isclose", (X, X, -1.0, 0.0, False)),
    ("aten.cosine_similarity", (X, X, 0, -1.0)),
    ("aten.slice.Tensor", (X, 0, None, None, 0)),
    ("aten.diagonal", (GRID, 0, 1, 1)),
    ("aten.diag_embed", (GRID, 0, 1, 1)),
    ("aten.t", (GRID,)),
    ("aten.view_as_complex", (GRID,)),
    ("aten.expand_as", (GRID, X)),
    ("aten.reshape_as", (GRID, X)),
    ("aten.clamp.Tensor", (X, None, None)),
    ("aten.arange.start", (3, -4, None, None, None, None)),
    ("aten.upsample_linear1d", (GRID, [0], False, None)),
    ("aten.scatter.value", (X, 1, TensorArgument((4,), torch.int64, "small"), 0.5)),
]


@pytest.mark.parametrize(("name", "arguments"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_pytorch_refuses_is_refused(name: str, arguments: tuple[object, ...]) -> None:
    case = cases.Case(name, arguments)
    assert ask(case).error
    with pytest.raises(REFUSALS):
        to_backend_contract(build(case, Answer([]))[0])


def test_what_is_not_asked_for_exists() -> None:
    assert set(exclusions.AVOIDED) <= set(cases.overloads())


def test_a_known_bug_is_matched_by_its_reproducer() -> None:
    assert all(re.match(bug.call, bug.reproducer) for bug in engine_bugs.BUGS)
