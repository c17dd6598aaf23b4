"""TOSA's elementwise ops on sizes that only the run time knows, as loops.

IREE's own way asks of every such size whether it is 1, and has a branch for each answer. After some ops, IREE 3.13
finds cycles in what is left, loses sizes, or frees memory that is in use. Functions with the attribute STRICT promise
that sizes of which neither is known are the same, and need no branches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.tosa.rules import STRICT
from flambeau.lowering.verbs import Windows
from flambeau.lowering.whole.values import shape_of, sizes_meet


def _twin(op: type[Operation], a: Element, b: Element) -> Element:
    return a.emit(op, (a, b))


BODIES: dict[str, Callable[..., Element]] = {
    "tosa.add": operator.add, "tosa.sub": operator.sub, "tosa.mul": operator.mul,
    "tosa.intdiv": partial(_twin, arith.DivSIOp), "tosa.pow": partial(_twin, math.PowFOp),
    "tosa.maximum": Element.maximum, "tosa.minimum": Element.minimum,
    "tosa.equal": operator.eq, "tosa.greater": operator.gt, "tosa.greater_equal": operator.ge,
    "tosa.logical_and": operator.and_, "tosa.logical_or": operator.or_, "tosa.logical_xor": operator.xor,
    "tosa.bitwise_and": operator.and_, "tosa.bitwise_or": operator.or_, "tosa.bitwise_xor": operator.xor,
    "tosa.logical_left_shift": partial(_twin, arith.ShLIOp), "tosa.logical_right_shift": partial(_twin, arith.ShRUIOp),
    "tosa.arithmetic_right_shift": partial(_twin, arith.ShRSIOp), "tosa.select": Element.select,
}  # fmt: skip
"""What the ops do to elements."""


def _open_ops(module: ModuleOp) -> Iterator[Operation]:
    for function in module.ops:
        if isinstance(function, func.FuncOp) and STRICT in function.attributes:
            yield from (op for op in function.walk() if op.name in BODIES and _has_open_sizes(op))


def _operands(op: Operation) -> list[SSAValue]:
    """Return the tensors that an op is computed on; the shift of a product is none."""
    return list(op.operands[:2] if op.name == "tosa.mul" else op.operands)


def _has_open_sizes(op: Operation) -> bool:
    """Tell whether along some dim a dynamic size meets another that is not 1."""
    return sizes_meet([shape_of(v) for v in _operands(op)])


def _replace(op: Operation) -> None:
    b = builder_before(op)
    operands = [Tensor(v, dtype_of(v)) for v in _operands(op)]
    sizes = [_size(b, operands, i) for i in range(operands[0].rank)]
    result = b.cast(b.elementwise(operands, BODIES[op.name], dtype_of(op.results[0]), sizes), shape_of(op.results[0]))
    op.results[0].replace_all_uses_with(result.value)
    erase(op)


def _size(b: LinalgBuilder, operands: list[Tensor], dim: int) -> Size:
    """Return the size of the result: the static one, or else that of the first operand where it is dynamic."""
    known = [s for t in operands if (s := t.shape[dim]) is not None and s != 1]
    if known:
        return known[0]
    return next((b.size(t, dim) for t in operands if t.shape[dim] is None), 1)


REWRITE = Rewrite(_open_ops, _replace)


# --- Averages and repetitions ---


def _ints(op: Operation, name: str) -> list[int]:
    numbers: Any = op.properties[name]
    return [int(n) for n in numbers.get_values()]


def _repetitions(op: Operation) -> list[int]:
    """Return how often `tosa.tile` repeats each dim."""
    owner = op.operands[1].owner
    assert isinstance(owner, Operation)
    numbers: Any = owner.properties["values"]
    return [int(n) for n in numbers.get_values()]


def _sized_ops(module: ModuleOp) -> Iterator[Operation]:
    """Yield averages of a dynamic plane, and repetitions of several dynamic dims.

    WORKAROUND(iree==3.13): the compiler does not take them. They can go when `test_an_op_of_this_form` in
    tests/engines/test_iree_bugs.py passes for them.
    """
    for op in module.walk():
        if op.name == "tosa.avg_pool2d":
            if None in shape_of(op.operands[0])[1:] and not any(_ints(op, "pad")):
                yield op
        elif op.name == "tosa.tile" and shape_of(op.operands[0]).count(None) > 1:
            if all(size == 1 or n == 1 for size, n in zip(shape_of(op.operands[0]), _repetitions(op), strict=True)):
                yield op


def _average(b: LinalgBuilder, op: Operation) -> Tensor:
    """Compute the mean of each window of `tosa.avg_pool2d`, whose channels come last."""
    kernel, strides = _ints(op, "kernel"), _ints(op, "stride")
    x = b.transpose(Tensor(op.operands[0], dtype_of(op.operands[0])), [0, 3, 1, 2])
    out = [b.add(b.floordiv(b.sub(size, k), s), 1) for size, k, s in zip(b.sizes(x)[2:], kernel, strides, strict=True)]
    wide = x.dtype.compute
    at = Windows(kernel, out, strides, [1, 1])
    (sums,) = b.window_reduce(x, at, [(0, wide)], lambda e, total: total + e.to(wide))
    means = b.elementwise([sums], lambda e: e * (1 / (kernel[0] * kernel[1])), x.dtype)
    return b.transpose(means, [0, 2, 3, 1])


def _repeated(b: LinalgBuilder, op: Operation) -> Tensor:
    x, times = Tensor(op.operands[0], dtype_of(op.operands[0])), _repetitions(op)
    return b.broadcast_to(x, [n if n != 1 else size for n, size in zip(times, b.sizes(x), strict=True)])


def _sized(op: Operation) -> SSAValue:
    b = builder_before(op)
    made = _average(b, op) if op.name == "tosa.avg_pool2d" else _repeated(b, op)
    return b.cast(made, shape_of(op.results[0])).value


OPEN_SIZES = Rewrite(_sized_ops, _sized)
