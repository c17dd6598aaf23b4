"""Rules of users that do not work: the error names the op, its line in the model, and the line of the rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.lowering.linalg.rules import LINALG_RULES, pointwise
from flambeau.passes.decompose.rules import DECOMPOSITIONS


@pytest.fixture(scope="module", autouse=True)
def ops() -> Iterator[Any]:
    library = torch.library.Library("flambeau_rules", "DEF")
    library.define("one(Tensor x) -> Tensor")
    library.define("two(Tensor x) -> (Tensor, Tensor)")
    for key in ("CPU", "Meta"):
        library.impl("one", lambda x: x * 1, key)
        library.impl("two", lambda x: (x * 1, x * 2), key)
    yield torch.ops.flambeau_rules
    library._destroy()


def one(x: Tensor) -> Tensor:
    return torch.ops.flambeau_rules.one(x)


def two(x: Tensor) -> Tensor:
    return torch.ops.flambeau_rules.two(x)[0]


def failure_of(program: Callable[[Tensor], Tensor]) -> tuple[Diagnostic, CompileError]:
    """Return the one problem that compiling a program ends with, and the error."""
    with pytest.raises(CompileError) as caught:
        flambeau.compile(program, (torch.ones(3),))
    (problem,) = caught.value.diagnostics
    assert problem.op == f"flambeau_rules.{program.__name__}"
    assert problem.file == __file__
    assert "  help: " not in str(caught.value)
    return problem, caught.value


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return next(start + i for i, line in enumerate(lines) if text in line)


def raises(b: Any, x: Any) -> Any:
    return b.no_such_verb(x)


def none(b: Any, x: Any) -> Any:
    return None


def too_many_arguments(b: Any, x: Any, y: Any) -> Any:
    return x


def one_result(b: Any, x: Any) -> Any:
    return x


def other_shape(b: Any, x: Any) -> Any:
    return b.reshape(x, [1, 3])


def bad_element(x: Any) -> Any:
    return x + {}


@pytest.mark.parametrize(
    "rule, program, message",
    [
        (raises, one, "AttributeError"),
        (none, one, "gives None where the program has a !torch.vtensor<[3],f32>"),
        (too_many_arguments, one, "TypeError: too_many_arguments() missing 1 required positional argument"),
        (one_result, two, "must give 2 results"),
        (other_shape, one, "gives a tensor [1,3] of float32, and the program says !torch.vtensor<[3],f32>"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_lowering_rule(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[..., Any], program: Callable[..., Any], message: str
) -> None:
    monkeypatch.setitem(LINALG_RULES.rules, f"flambeau_rules.{program.__name__}", rule)
    problem, _ = failure_of(program)
    assert message in problem.reason
    assert f"{__file__}:" in problem.reason
    assert f"in {rule.__name__}" in problem.reason


def test_the_line_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LINALG_RULES.rules, "flambeau_rules.one", raises)
    problem, error = failure_of(one)
    assert f"{__file__}:{line_of(raises, 'no_such_verb')} in raises" in problem.reason
    assert isinstance(error.__cause__, AttributeError)
    assert problem.line == line_of(one, "flambeau_rules.one")


def test_a_pointwise_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LINALG_RULES, "rules", dict(LINALG_RULES.rules))
    pointwise("flambeau_rules.one")(bad_element)
    problem, _ = failure_of(one)
    assert f"{__file__}:{line_of(bad_element, 'x + {}')} in bad_element" in problem.reason


def returns_number(t: Any, x: Any) -> Any:
    return 3


def returns_one(t: Any, x: Any) -> Any:
    return t.relu(x)


def no_overload(t: Any, x: Any) -> Any:
    return t.add(x, "three")


@pytest.mark.parametrize(
    "rule, program, message",
    [
        (returns_number, one, "must give 1 value, and gives 3"),
        (returns_one, two, "must give 2 values"),
        (no_overload, one, "has no overload"),
        (too_many_arguments, one, "missing 1 required positional argument"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_decomposition(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[..., Any], program: Callable[..., Any], message: str
) -> None:
    monkeypatch.setitem(DECOMPOSITIONS.rules, f"flambeau_rules.{program.__name__}", rule)
    problem, _ = failure_of(program)
    assert problem.stage == "decompose"
    assert message in problem.reason
    assert f"{__file__}:" in problem.reason
