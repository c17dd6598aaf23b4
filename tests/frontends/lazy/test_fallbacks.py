"""Ops that cannot be compiled run in PyTorch: these ops alone, counted, with one warning for each: S51."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from flambeau import CompileError, Diagnostic, lazy
from flambeau.engines.eager import EagerEngine


def test_shapes_that_depend_on_contents(device: torch.device) -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 0.0], device=device)
    with pytest.warns(lazy.LazyFallbackWarning) as caught:
        found = [(x * 2).nonzero() for _ in range(3)]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (found[-1] + 1).tolist() == [[2], [3]]
    assert lazy.report().fallbacks == {"aten.nonzero.default": 3}


def test_writes_through_views_that_have_no_inverse(device: torch.device) -> None:
    x = torch.zeros(6, device=device)
    with pytest.warns(lazy.LazyFallbackWarning, match="writes through a view by aten.unfold"):
        x.unfold(0, 2, 2)[1].add_(1)
    assert x.tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]


def test_a_generator_of_its_own(device: torch.device) -> None:
    with pytest.warns(lazy.LazyFallbackWarning, match="draws from a generator of its own"):
        x = torch.rand(2, device=device, generator=torch.Generator().manual_seed(1))
    assert x.tolist() == torch.rand(2, generator=torch.Generator().manual_seed(1)).tolist()


class NoCosine:
    """An engine that lacks an op, and says so as the compiler does; or cannot say which."""

    name = "no-cosine"
    output_type = "torch"

    def __init__(self, op: str = "aten.cos", numbers: bool = True) -> None:
        self.op = op
        self.numbers = numbers

    def compile(self, module: Any) -> Any:
        text = str(module)
        if "torch.aten.cos" in text:
            raise CompileError([Diagnostic("lower", "there is no cosine here", op=self.op)])
        if not self.numbers and "!torch.float)" in text.splitlines()[1]:
            raise CompileError([Diagnostic("lower", "a number must be known", op="aten.mul.Tensor")])
        return EagerEngine().compile(module)


@pytest.mark.parametrize("op", ["aten.cos", "aten.cos.default", "aten.something_inside", ""])
def test_only_the_op_that_is_refused_runs_in_pytorch(op: str, device: torch.device) -> None:
    lazy.use_engine(NoCosine(op))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            x = torch.ones(2, device=device) * 0.5
            y = x.cos().sin() + x.exp()
            lazy.step()
    expected = torch.full((2,), 0.5)
    torch.testing.assert_close(y.cpu(), expected.cos().sin() + expected.exp())
    report = lazy.report()
    assert report.fallbacks == {"aten.cos.default": 3}
    assert report.graphs[0].fallbacks == 3
    assert report.reasons["aten.cos.default"] == "there is no cosine here"
    assert [str(w.message) for w in caught] == ["aten.cos.default runs in PyTorch: there is no cosine here"]
    assert report.compiles == 2  # what lies before it, and behind


def test_numbers_that_must_be_known_stay_constants(device: torch.device) -> None:
    lazy.use_engine(NoCosine(numbers=False))
    x = torch.ones(2).to(device)
    for number in (1.5, 2.5, 3.5, 1.5):
        assert (x * number).tolist() == [number] * 2
    assert lazy.report().fallbacks == {}


def test_an_engine_with_errors_of_its_own(device: torch.device) -> None:
    class Broken:
        name = "broken"
        output_type = "torch"

        def compile(self, module: Any) -> Any:
            raise OSError("no licence")

    lazy.use_engine(Broken())
    with pytest.warns(lazy.LazyFallbackWarning, match="no licence"):
        assert (torch.ones(2, device=device) + 1).tolist() == [2.0, 2.0]
    assert lazy.report().compiles == 0
