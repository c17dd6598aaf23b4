"""Pads of complex numbers, as pads of their real and imaginary parts.

WORKAROUND(iree==3.13): the compiler crashes on a pad whose value is a complex constant, and has no op that fills memory
with elements of 128 bits. It can go when `test_a_pad_with_a_complex_constant` and `test_a_fill_of_complex128` in
tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ComplexType, ModuleOp, TensorType
from xdsl.dialects.tensor import PadOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, mixed, stablehlo_before
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element

_PADS = frozenset({"stablehlo.pad", "stablehlo.dynamic_pad"})


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if isinstance(op, PadOp):
            if isinstance(_value(op).type, ComplexType):
                yield op
        elif op.name in _PADS and isinstance(op.operands[0].type.element_type, ComplexType):  # type: ignore[attr-defined]
            yield op


def _value(op: PadOp) -> SSAValue:
    """Return the value that a pad fills with."""
    last = op.regions[0].block.last_op
    assert last is not None
    return last.operands[0]


def _replace(op: Operation) -> SSAValue:
    return _tensor_pad_of_parts(op) if isinstance(op, PadOp) else _pad_of_parts(op)


def _tensor_pad_of_parts(op: PadOp) -> SSAValue:
    b, dtype = builder_before(op), dtype_of(op.result)
    x, fill = Tensor(op.source, dtype), Element(b, _value(op), dtype)
    low, high = mixed(op.static_low, op.low), mixed(op.static_high, op.high)
    real = b.pad(b.elementwise([x], lambda e: e.real, dtype.real), low, high, fill.real)
    imag = b.pad(b.elementwise([x], lambda e: e.imag, dtype.real), low, high, fill.imag)
    return b.elementwise([real, imag], lambda re, im: re.with_imag(im, dtype), dtype).value


def _pad_of_parts(op: Operation) -> SSAValue:
    x, fill, *amounts = op.operands
    name, result, parts = op.name.removeprefix("stablehlo."), op.results[0], []
    for part in ("real", "imag"):
        inputs = [stablehlo_before(op, part, [v], _real(v)) for v in (x, fill)]
        parts.append(stablehlo_before(op, name, [*inputs, *amounts], _real(result), op.properties))
    return stablehlo_before(op, "complex", parts, result.type)


def _real(value: SSAValue) -> TensorType:
    """Return the type of the real parts of a tensor of complex numbers."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    assert isinstance(type_.element_type, ComplexType)
    return TensorType(type_.element_type.element_type, type_.get_shape())


REWRITE = Rewrite(_found, _replace)
