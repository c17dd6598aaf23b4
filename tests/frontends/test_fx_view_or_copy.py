"""Ops that give a view or a copy: a program that can tell does not run where they would give the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor

import flambeau
from flambeau.diagnostics import CompileError

AUTO = torch.export.Dim.AUTO
MESSAGE = "has size 1, for which a copy is a view or a view a copy"


def stages(function: Callable[..., Any], *args: Tensor, dims: tuple[int, ...] = (0,)) -> list[Any]:
    """Compile a function with dynamic sizes, as imported and under the backend contract."""
    shapes = ({d: AUTO for d in dims if d < args[0].dim()}, *({0: AUTO} for _ in args[1:]))
    raw = flambeau.compile(function, args, dynamic_shapes=shapes, output_type="raw")
    return [flambeau.load(flambeau.compile(raw, output_type=t), engine="eager") for t in ("raw", "torch")]


def guards(function: Callable[..., Any], *args: Tensor, dims: tuple[int, ...] = (0,)) -> int:
    """Count the checks of sizes that decide if something is a view."""
    shapes = ({d: AUTO for d in dims}, *({0: AUTO} for _ in args[1:]))
    return flambeau.compile(function, args, dynamic_shapes=shapes, output_type="raw").text().count(MESSAGE)


def numbers(*shape: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def reshaped(x: Tensor) -> Tensor:
    y = x.permute(1, 0)
    y.reshape(-1)[0:].fill_(0.5)
    return y + 0


def flattened(x: Tensor) -> Tensor:
    y = x.t()
    y.flatten().mul_(2)
    return y + 0


def ravelled(x: Tensor) -> Tensor:
    y = x * 2
    y.t().ravel().add_(1)
    return y


def in_order(x: Tensor) -> Tensor:
    y = x.t()
    y.contiguous().mul_(3)
    return y + 0


def source_is_written(x: Tensor) -> Tensor:
    copy = x.t().reshape(-1)
    x.add_(1)
    return copy * 2


def every_second(x: Tensor) -> Tensor:
    y = x.clone()
    y[::2].reshape(-1).zero_()
    return y


@pytest.mark.parametrize(
    "function", [reshaped, flattened, ravelled, in_order, source_is_written, every_second], ids=lambda f: f.__name__
)
def test_a_size_that_makes_a_view_of_a_copy_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    for run in stages(function, numbers(4, 3)):
        for rows in (3, 5, 0):
            ours, theirs = numbers(rows, 3), numbers(rows, 3)
            assert_same(run(ours), function(theirs), f"{rows} rows")
            assert_same(ours, theirs, f"{rows} rows, argument")
        with pytest.raises(RuntimeError, match=f"dimension . of the operand of aten.* {MESSAGE}"):
            run(numbers(1, 3))


@pytest.mark.engine
def test_the_check_is_there_on_iree() -> None:
    module = flambeau.compile(reshaped, (numbers(4, 3),), dynamic_shapes=({0: AUTO},))
    run = flambeau.load(module, profile="quick", device="local-sync")
    assert_same(run(numbers(3, 3)), reshaped(numbers(3, 3)))
    with pytest.raises(RuntimeError, match=MESSAGE):
        run(numbers(1, 3))


def turned_around(x: Tensor) -> Tensor:
    x.permute(2, 1, 0).reshape(-1).add_(1)
    return x + 0


def test_of_several_sizes_those_are_refused_that_decide_together() -> None:
    for run in stages(turned_around, numbers(3, 4, 2), dims=(0, 1)):
        for shape in ((1, 4, 2), (3, 1, 2), (5, 5, 2)):
            assert_same(run(numbers(*shape)), turned_around(numbers(*shape)), str(shape))
        with pytest.raises(RuntimeError, match=f"dimension 1 and 2 of the operand .* {MESSAGE}"):
            run(numbers(1, 1, 2))


def only_reads(x: Tensor) -> Tensor:
    return x.t().reshape(-1) * 2


def writes_before(x: Tensor) -> Tensor:
    y = x.clone().mul_(2)
    return y.t().reshape(-1)


def writes_what_nobody_sees_again(x: Tensor) -> Tensor:
    return (x * 2).t().reshape(-1).add_(1)


def is_a_view_of_any_size(x: Tensor) -> Tensor:
    y = x * 2
    y.reshape(-1).add_(1)
    y.contiguous().add_(1)
    return y


@pytest.mark.parametrize(
    "function",
    [only_reads, writes_before, writes_what_nobody_sees_again, is_a_view_of_any_size],
    ids=lambda f: f.__name__,
)
def test_no_size_is_refused_where_it_makes_no_difference(function: Callable[[Tensor], Tensor]) -> None:
    assert guards(function, numbers(4, 3)) == 0
    for run in stages(function, numbers(4, 3)):
        for rows in (1, 2, 5):
            assert_same(run(numbers(rows, 3)), function(numbers(rows, 3)), f"{rows} rows")


def test_sizes_that_must_differ_are_refused_while_compiling() -> None:
    def program(x: Tensor, z: Tensor) -> Tensor:
        y = x[:, : z.shape[0]]
        y.reshape(-1).fill_(0.5)
        return y + 0

    shapes = ({0: AUTO, 1: AUTO}, {0: AUTO})
    with pytest.raises(CompileError, match="sizes that only the run time knows decide if it gives a view"):
        flambeau.compile(program, (numbers(4, 7), numbers(3)), dynamic_shapes=shapes)


def chunked(x: Tensor) -> Tensor:
    y = x * 2
    last = y.chunk(2)[-1]
    last.t().reshape(-1).zero_()
    return y


def test_an_assumption_that_divides_by_a_size_is_one_of_sizes_that_are_not_0() -> None:
    for run in stages(chunked, numbers(6, 3)):
        for rows in (4, 5, 8):
            assert_same(run(numbers(rows, 3)), chunked(numbers(rows, 3)), f"{rows} rows")
        with pytest.raises(RuntimeError, match="a size is not one that the program was compiled for"):
            run(numbers(3, 3))


def writes_before_a_reshape(x: Tensor) -> Tensor:
    x.add_(1)
    return x.reshape(-1) * 2


def through_a_sum(x: Tensor) -> Tensor:
    y = (x.split(2, 0)[0] + 1).relu()
    y.reshape(-1).add_(1)
    return y


def through_a_product(x: Tensor) -> Tensor:
    y = x @ torch.ones(2, 3)
    y.reshape(-1).add_(1)
    return y


@pytest.mark.parametrize(
    ("function", "counts"),
    [(source_is_written, True), (through_a_sum, True), (through_a_product, False), (writes_before_a_reshape, False)],
)
def test_how_an_argument_lies_in_memory_counts_where_it_decides(
    function: Callable[[Tensor], Tensor], counts: bool
) -> None:
    raw = flambeau.compile(function, (numbers(3, 2),), output_type="raw")
    for stage in ("raw", "torch"):
        run = flambeau.load(flambeau.compile(raw, output_type=stage), engine="eager")
        assert_same(run(numbers(3, 2)), function(numbers(3, 2)))
        if counts:
            with pytest.raises(ValueError, match="the program writes through a reshape"):
                run(numbers(2, 3).t())
        else:
            assert_same(run(numbers(2, 3).t()), function(numbers(2, 3).t()))
