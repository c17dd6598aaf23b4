"""Higher-order ops, from export to a number out of IREE: branches, loops, scans, maps, attention with functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fx_support import one_step, under_compile
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops.map import map as map_rows
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import flambeau

TARGETS = ["linalg-on-tensors", "stablehlo", "tosa"]


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


def counted(x: Tensor) -> Any:
    return torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))


def nested(x: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i > 1, lambda x: x * 3, lambda x: x + 1, (x,))

    return torch.while_loop(lambda i, x: x.sum() < 100, body, (torch.tensor(0), x))


def running(x: Tensor) -> Any:
    """Scan with a body that sees a tensor from outside, and gives two results for each row."""
    scale = x.sum(0)
    return scan(lambda c, row: (c * 0.5 + row, (c * row, (row * scale).sin())), x[0] * 2, x, dim=0)


def backwards(x: Tensor) -> Any:
    """Scan over the second dim, from its end, and carry two tensors of different shapes."""

    def combine(carried: tuple[Tensor, Tensor], column: Tensor) -> Any:
        total, count = carried
        return (total + column, count + 1), column / count

    return scan(combine, (x[:, 0] * 0, torch.tensor(1.0)), x, dim=1, reverse=True)


def mapped(x: Tensor) -> Any:
    return map_rows(lambda row, other: (row.sin() * other, row.sum()), x, x * 2 + 1)


def chosen(x: Tensor) -> Any:
    """Branch inside of a map."""
    return map_rows(lambda row: torch.cond(row.sum() > 0, lambda r: r.sin(), lambda r: r - 1, (row,)), x)


def scanned_map(x: Tensor) -> Any:
    """Map inside of a scan."""
    return scan(lambda c, row: (c + row, map_rows(lambda e: e * 2, row + c)), x[0] * 0, x, dim=0)


def associative(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x, dim=1, combine_mode="generic")


def called_twice(x: Tensor) -> Any:
    region = torch.compiler.nested_compile_region(lambda y: y.sin() + 1)
    return region(x) + region(x * 2)


def checkpointed(x: Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda y: y.sin() * y, x, use_reentrant=False)


def autocast(x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.t()


HIGHER_ORDER = [running, backwards, mapped, chosen, scanned_map, associative, called_twice, checkpointed, autocast]


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_higher_order_ops_are_those_of_eager(target: str) -> None:
    x = torch.randn(3, 4)
    module = flambeau.compile({f.__name__: (f, (x,)) for f in HIGHER_ORDER}, output_type=target)
    run = flambeau.load(module, profile="quick")
    for function in HIGHER_ORDER:
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if function is autocast else {}
        for example in (x, -x, x.abs()):
            torch.testing.assert_close(run.function(function.__name__)(example), function(example), **tolerance)


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo"])
def test_loops_over_rows_whose_number_the_run_time_knows(target: str) -> None:
    names = [running, mapped, scanned_map]
    shapes = {f.__name__: ({0: torch.export.Dim("rows"), 1: torch.export.Dim.AUTO},) for f in (mapped,)}
    shapes |= {f.__name__: ({0: torch.export.Dim("rows")},) for f in (running, scanned_map)}
    entries = {f.__name__: (f, (torch.randn(3, 4),)) for f in names}
    run = flambeau.load(flambeau.compile(entries, dynamic_shapes=shapes, output_type=target), profile="quick")
    for function in names:
        for rows in (1, 2, 7):
            x = torch.randn(rows, 6 if function is mapped else 4)
            torch.testing.assert_close(run.function(function.__name__)(x), function(x))


def test_a_scan_over_a_tensor_that_nobody_registered_is_refused_with_a_hint() -> None:
    plain = torch.ones(4)

    def program(x: Tensor) -> Any:
        return scan(lambda c, row: (c + row, row * plain), x[0] * 0, x, dim=0)

    with pytest.raises(flambeau.CompileError, match="register it as a buffer"):
        flambeau.compile(program, (torch.ones(3, 4),))


def test_a_turn_reads_and_writes_one_row_without_a_check() -> None:
    text = str(flambeau.compile(running, (torch.ones(3, 4),)))
    assert "scf.for" in text
    assert text.count("tensor.insert_slice") == 2
    assert "cf.assert" not in text


# --- Attention with functions of scores ---

DISTANCE = torch.randn(5, 5)


def relative(x: Tensor) -> Any:
    return flex_attention(x, x * 2, x + 1, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)


def biased(x: Tensor) -> Any:
    return flex_attention(x, x * 2, x + 1, score_mod=lambda score, b, h, i, j: score + DISTANCE[i, j])


def causal(x: Tensor) -> Any:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, x.shape[2], x.shape[2], device="cpu")
    return flex_attention(x, x * 2, x + 1, block_mask=mask)


def grouped(x: Tensor) -> Any:
    return flex_attention(x, x[:, :1] * 2, x[:, :1] + 1, enable_gqa=True, return_lse=True)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_attention_with_functions_of_scores(target: str) -> None:
    x = torch.randn(1, 2, 5, 4)
    functions = [relative, biased, causal, grouped]
    module = flambeau.compile({f.__name__: (f, (x,)) for f in functions}, output_type=target)
    run = flambeau.load(module, profile="quick")
    for function in functions:
        torch.testing.assert_close(run.function(function.__name__)(x), function(x))


# --- Gradients ---


def last_of_scan(x: Tensor) -> Tensor:
    return scan(lambda c, row: (c * 0.5 + row.sin(), (c * row).clone()), x[0] * 2, x, dim=0)[1]


def mapped_product(x: Tensor) -> Tensor:
    return map_rows(lambda row, other: row.sin() * other, x, x.cos())


def curved_branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x * 2).sin(), lambda x: x * x, (x,))


@pytest.mark.engine
@pytest.mark.parametrize("function", [curved_branch, mapped_product, last_of_scan, associative, checkpointed, chosen])
def test_gradients_go_through(function: Callable[[Tensor], Tensor]) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 12).reshape(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            return function(x * self.weight)

    x = torch.linspace(-1, 2, 12).reshape(3, 4)
    one_step(Weighted(), x)
    under_compile(Weighted(), x)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [branch, counted, nested], ids=lambda f: f.__name__)
def test_runs_equal_to_eager(function: Callable[[Tensor], Any], target: str) -> None:
    module = flambeau.compile(function, (torch.ones(4),), output_type=target)
    run = flambeau.load(module, profile="quick")
    for x in (torch.rand(4), -torch.rand(4), torch.full((4,), 30.0)):
        if function is nested and x.sum() < 0:
            continue
        torch.testing.assert_close(run(x), function(x))


def test_the_torch_dialect_has_a_branch_and_a_loop() -> None:
    text = str(flambeau.compile(nested, (torch.ones(4),), output_type="torch"))
    assert "torch.prim.Loop" in text
    assert "torch.prim.If" in text


@pytest.mark.engine
def test_dynamic_sizes() -> None:
    dim = torch.export.Dim("n", min=2)
    module = flambeau.compile(branch, (torch.ones(4),), dynamic_shapes=({0: dim},))
    run = flambeau.load(module, profile="quick")
    for n in (2, 7):
        x = torch.rand(n) - 0.5
        torch.testing.assert_close(run(x), branch(x))
