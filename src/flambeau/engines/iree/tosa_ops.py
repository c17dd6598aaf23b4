"""TOSA's elementwise ops on sizes that only the run time knows, as loops.

IREE's own way asks of every such size whether it is 1, and has a branch for each answer. After some ops, IREE 3.13
finds cycles in what is left, loses sizes, or frees memory that is in use. Functions with the attribute STRICT promise
that sizes of which neither is known are the same, and need no branches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.tosa.rules import STRICT
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
    """The tensors that an op is computed on; the shift of a product is none."""
    return list(op.operands[:2] if op.name == "tosa.mul" else op.operands)


def _has_open_sizes(op: Operation) -> bool:
    """Whether along some dim a size is not known, and another is not 1."""
    return sizes_meet([shape_of(v) for v in _operands(op)])


def _replace(op: Operation) -> None:
    b = builder_before(op)
    operands = [Tensor(v, dtype_of(v)) for v in _operands(op)]
    sizes = [_size(b, operands, i) for i in range(operands[0].rank)]
    result = b.cast(b.elementwise(operands, BODIES[op.name], dtype_of(op.results[0]), sizes), shape_of(op.results[0]))
    op.results[0].replace_all_uses_with(result.value)
    erase(op)


def _size(b: LinalgBuilder, operands: list[Tensor], dim: int) -> Size:
    """The size of the result: what is known, or else that of the first operand that has more than 1."""
    known = [s for t in operands if (s := t.shape[dim]) is not None and s != 1]
    if known:
        return known[0]
    return next((b.size(t, dim) for t in operands if t.shape[dim] is None), 1)


REWRITE = Rewrite(_open_ops, _replace)
