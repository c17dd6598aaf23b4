"""Numbers of the program that are made integers, by their bits.

WORKAROUND(iree==3.13): the virtual machine, which computes with sizes and other scalars, does not convert 64-bit floats
to integers, but shows their bits. It can go when `test_a_float_that_is_made_an_integer` in
tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import func, scf
from xdsl.dialects.arith import FPToSIOp
from xdsl.dialects.builtin import ModuleOp, f64, i64
from xdsl.ir import SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.ir import dtypes
from flambeau.lowering.element import Element

_POINT = 1023 + 52
"""The exponent of a float whose last bit stands for 1, as it is stored."""
_FRACTION = (1 << 52) - 1


def _found(module: ModuleOp) -> Iterator[FPToSIOp]:
    """Yield the conversions between the ops of a function, and not in their bodies, which become machine code."""
    for op in module.walk():
        if isinstance(op, FPToSIOp) and op.operands[0].type == f64 and op.results[0].type == i64:
            if isinstance(op.parent_op(), func.FuncOp | scf.IfOp | scf.ForOp | scf.WhileOp):
                yield op


def _by_bits(op: FPToSIOp) -> SSAValue:
    """Shift the number's digits to where its exponent says: exact below 2**63, and an error beyond."""
    b = builder_before(op)
    x = Element(b, op.operands[0], dtypes.float64)
    bits = x.bits(dtypes.int64)
    digits, behind = (bits & _FRACTION) | (_FRACTION + 1), bits.like(_POINT) - ((bits >> 52) & 0x7FF)
    b.guard((behind >= -10).value, "a float that is too large, infinite or NaN is made an integer")
    cut, filled = digits >> behind.maximum(0).minimum(63), digits << (-behind).maximum(0).minimum(10)
    size = (behind > 0).select(cut, filled)
    return (x < 0).select(-size, size).value


REWRITE = Rewrite(_found, _by_bits)
