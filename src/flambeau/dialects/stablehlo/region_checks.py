"""What must hold for StableHLO's ops with regions, one short function per rule."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import TensorType, i1, i32
from xdsl.ir import Attribute

from flambeau.dialects.declared.ops import DeclaredOp, agree, element, fits, shape, show
from flambeau.dialects.stablehlo.checks import (
    check_positive,
    numbers_of,
    padding_of,
    results_as_operands,
    scalars,
    window,
)


def _scalars_of(types: Iterable[Attribute]) -> list[Attribute]:
    return [TensorType(element(t), []) for t in types]


def scatter(op: DeclaredOp) -> None:
    count = len(op.results)
    if len(op.operands) != 2 * count + 1 or count == 0:
        op.wrong(f"{count} results need as many inputs, the indices, and as many updates")
    window_dims, inserted, batching, index_batching, index_map, vector = numbers_of(op, "scatter_dimension_numbers")
    operand = shape(op.tensor(0)) or ()
    updates = shape(op.tensor(count + 1)) or ()
    indices = shape(op.tensor(count)) or ()
    op.expect_dimensions((*inserted, *batching), len(operand))
    op.expect_dimensions(index_map, len(operand))
    op.expect_dimensions(window_dims, len(updates))
    op.expect_dimensions(index_batching, len(indices))
    got = indices[vector] if vector < len(indices) else 1
    if got is not None and got != len(index_map):
        op.wrong(f"an index has {len(index_map)} numbers, got {op.tensor(count)}")
    if len(window_dims) + len(inserted) + len(batching) != len(operand):
        op.wrong(f"window, inserted and batching dimensions are those of {op.tensor(0)}")
    rest = tuple(s for d, s in enumerate(indices) if d != vector)
    if not fits(rest, tuple(s for d, s in enumerate(updates) if d not in window_dims)):
        op.wrong(f"updates {show(updates)} do not match the indices {show(indices)}")
    for i in range(count):
        if not agree(op.tensor(i), op.result_tensor(i)):
            op.wrong(f"result {i} has the type of its input {op.tensor(i)}, got {op.result_tensor(i)}")
    _body(op, [op.tensor(i) for i in range(count)])


def _body(op: DeclaredOp, types: list[TensorType[Attribute]]) -> None:
    """Check that the region combines two scalars of each of these types."""
    op.expect_arguments(0, _scalars_of([*types, *types]))
    op.expect_terminator(0, _scalars_of(types))


def reduce(op: DeclaredOp) -> None:
    n, odd = divmod(len(op.operands), 2)
    if odd or n == 0 or len(op.results) != n:
        op.wrong(f"takes inputs and as many initial values, and has as many results, got {len(op.operands)} operands")
    dims = op.ints("dimensions") or ()
    sizes = shape(op.tensor(0)) or ()
    op.expect_dimensions(dims, len(sizes))
    for i in range(n):
        if not fits(sizes, shape(op.tensor(i))):
            op.wrong(f"inputs have one shape, got {op.tensor(0)} and {op.tensor(i)}")
        op.expect_shape((s for d, s in enumerate(sizes) if d not in dims), i)
    scalars(*range(n, 2 * n))(op)
    _body(op, [op.tensor(n + i) for i in range(n)])


def reduce_window(op: DeclaredOp) -> None:
    n, odd = divmod(len(op.operands), 2)
    if odd or n == 0 or len(op.results) != n:
        op.wrong(f"takes inputs and as many initial values, and has as many results, got {len(op.operands)} operands")
    sizes = shape(op.tensor(0)) or ()
    rank = len(sizes)
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    for name in names:
        op.expect_length(name, rank)
    kernel, strides, base, dilation = (op.ints(name) or (1,) * rank for name in names)
    check_positive(op, *kernel, *strides, *base, *dilation)
    padding = padding_of(op, rank)
    wanted = [window(s, kernel[i], strides[i], *padding[i], base[i], dilation[i]) for i, s in enumerate(sizes)]
    for i in range(n):
        op.expect_shape(wanted, i)
    scalars(*range(n, 2 * n))(op)
    _body(op, [op.tensor(n + i) for i in range(n)])


def sort(op: DeclaredOp) -> None:
    results_as_operands(op)
    sizes = shape(op.tensor(0))
    if any(not fits(sizes, shape(t)) for t in op.operand_types):
        op.wrong("operands have one shape")
    dim, rank = op.integer("dimension", -1), len(sizes or ())
    op.expect_dimension(dim + rank if dim < 0 else dim, rank)
    op.expect_arguments(0, _scalars_of(t for t in op.operand_types for _ in range(2)))
    op.expect_terminator(0, [TensorType(i1, [])])


def branches(op: DeclaredOp) -> None:
    """Check `if` and `case`: every region takes nothing and yields the results."""
    if not op.regions:
        op.wrong("has at least one branch")
    wanted = i1 if op.name == "stablehlo.if" else i32
    if op.tensor(0).element_type != wanted or shape(op.tensor(0)) not in ((), (None,), (1,)):
        op.wrong(f"chooses by a tensor<{wanted}>, got {op.tensor(0)}")
    for i in range(len(op.regions)):
        op.expect_arguments(i, ())
        op.expect_terminator(i, op.result_types)


def while_(op: DeclaredOp) -> None:
    results_as_operands(op)
    for i in range(2):
        op.expect_arguments(i, op.operand_types)
    op.expect_terminator(0, [TensorType(i1, [])])
    op.expect_terminator(1, op.result_types)
