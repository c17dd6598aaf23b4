"""Constants and weights of complex numbers with two 64-bit or two 16-bit floats, as pairs of floats.

WORKAROUND(iree==3.13): the compiler divides by zero when it stores a constant whose elements have 128 bits, takes no
parameters with such elements, and has no op that fills memory with them; and it does not legalise constants with parts
of 16 bits. It can go when `test_a_constant_of_complex128`, `test_a_fill_of_complex128` and
`test_a_constant_of_complex32` in tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ModuleOp,
    TensorType,
)
from xdsl.dialects.linalg.ops import FillOp
from xdsl.dialects.tensor import FromElementsOp
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.whole.values import shape_of

_FOUND = {dtype.builtin: dtype for dtype in (dtypes.complex128, dtypes.complex32)}


def _constants(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name in ("arith.constant", "stablehlo.constant"):
            type_, literal = op.results[0].type, op.properties.get("value")
            if isinstance(type_, TensorType) and type_.element_type in _FOUND:
                is_literal = isinstance(literal, DenseIntOrFPElementsAttr) and literal.data.data
                if is_literal or isinstance(literal, DenseResourceAttr):
                    yield op
        elif isinstance(op, FillOp) or (isinstance(op, FromElementsOp) and len(op.operands) == 1):
            if op.operands[0].type in _FOUND:
                yield op


def _filled(b: LinalgBuilder, op: FillOp | FromElementsOp) -> Tensor:
    """Fill a tensor with one complex number."""
    dtype = _FOUND[op.operands[0].type]
    number = Element(b, op.operands[0], dtype)
    pair = b.value(FromElementsOp, (number.real.value, number.imag.value), TensorType(dtype.real.builtin, [2]))
    parts = Tensor(pair, dtype.real)

    def element(*_: SSAValue) -> Element:
        return b.load(parts, [0]).with_imag(b.load(parts, [1]), dtype)

    shape = op.operands[1] if isinstance(op, FillOp) else op.results[0]
    return b.generate(b.sizes(Tensor(shape, dtype)), dtype, element)


def _complex(b: LinalgBuilder, op: Operation) -> Tensor:
    literal = op.properties["value"]
    assert isinstance(literal, DenseIntOrFPElementsAttr | DenseResourceAttr)
    dtype = _FOUND[op.results[0].type.element_type]  # type: ignore[attr-defined]
    shape = [size for size in shape_of(op.results[0]) if size is not None]
    pairs: TensorType[Any] = TensorType(dtype.real.builtin, [*shape, 2])
    same: Attribute
    if isinstance(literal, DenseIntOrFPElementsAttr):
        same = DenseIntOrFPElementsAttr(pairs, literal.data)
    else:
        same = DenseResourceAttr(literal.resource_handle, pairs)
    parts = Tensor(b.dense(same, pairs), dtype.real)

    def element(*at: SSAValue) -> Element:
        return b.load(parts, [*at, 0]).with_imag(b.load(parts, [*at, 1]), dtype)

    return b.generate(shape, dtype, element)


def _pairs(op: Operation) -> SSAValue:
    b = builder_before(op)
    return (_filled(b, op) if isinstance(op, FillOp | FromElementsOp) else _complex(b, op)).value


REWRITE = Rewrite(_constants, _pairs)
