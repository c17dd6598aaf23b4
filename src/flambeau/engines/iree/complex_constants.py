"""Constants and weights of complex numbers with two 64-bit floats, as pairs of floats.

WORKAROUND(iree==3.13): the compiler divides by zero when it stores a constant whose elements have 128 bits, takes no
parameters with such elements, and has no op that fills memory with them. It can go when
`test_a_constant_of_complex128` and `test_a_fill_of_complex128` in tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import (
    ComplexType,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ModuleOp,
    TensorType,
    f64,
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

_WIDE = ComplexType(f64)


def _wide_constants(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name in ("arith.constant", "stablehlo.constant"):
            type_, literal = op.results[0].type, op.properties.get("value")
            if isinstance(type_, TensorType) and type_.element_type == _WIDE:
                is_literal = isinstance(literal, DenseIntOrFPElementsAttr) and literal.data.data
                if is_literal or isinstance(literal, DenseResourceAttr):
                    yield op
        elif isinstance(op, FillOp) or (isinstance(op, FromElementsOp) and len(op.operands) == 1):
            if op.operands[0].type == _WIDE:
                yield op


def _filled(b: LinalgBuilder, op: FillOp | FromElementsOp) -> Tensor:
    """Fill a tensor with one complex number."""
    number = Element(b, op.operands[0], dtypes.complex128)
    pair = b.value(FromElementsOp, (number.real.value, number.imag.value), TensorType(f64, [2]))
    parts = Tensor(pair, dtypes.float64)

    def element(*_: SSAValue) -> Element:
        return b.load(parts, [0]).with_imag(b.load(parts, [1]), dtypes.complex128)

    shape = op.operands[1] if isinstance(op, FillOp) else op.results[0]
    return b.generate(b.sizes(Tensor(shape, dtypes.complex128)), dtypes.complex128, element)


def _complex(b: LinalgBuilder, op: Operation) -> Tensor:
    literal = op.properties["value"]
    assert isinstance(literal, DenseIntOrFPElementsAttr | DenseResourceAttr)
    shape = [size for size in shape_of(op.results[0]) if size is not None]
    pairs = TensorType(f64, [*shape, 2])
    same: Attribute
    if isinstance(literal, DenseIntOrFPElementsAttr):
        same = DenseIntOrFPElementsAttr(pairs, literal.data)
    else:
        same = DenseResourceAttr(literal.resource_handle, pairs)
    parts = Tensor(b.dense(same, pairs), dtypes.float64)

    def element(*at: SSAValue) -> Element:
        return b.load(parts, [*at, 0]).with_imag(b.load(parts, [*at, 1]), dtypes.complex128)

    return b.generate(shape, dtypes.complex128, element)


def _pairs(op: Operation) -> SSAValue:
    b = builder_before(op)
    return (_filled(b, op) if isinstance(op, FillOp | FromElementsOp) else _complex(b, op)).value


REWRITE = Rewrite(_wide_constants, _pairs)
