"""Numbers of the program that are made integers, by their bits.

WORKAROUND(iree==3.13): the virtual machine, which computes with sizes and other scalars, does not convert 64-bit floats
to integers. Next to 1.5 * 2**52 the last bit of a float stands for 1, so that bits are subtracted instead: right below
2**51, as sizes are. It can go when `test_a_float_that_is_made_an_integer` in tests/engines/test_iree_bugs.py passes.
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

_OFFSET = 1.5 * 2**52


def _found(module: ModuleOp) -> Iterator[FPToSIOp]:
    """The conversions between the ops of a function, and not in their bodies, which become machine code."""
    for op in module.walk():
        if isinstance(op, FPToSIOp) and op.operands[0].type == f64 and op.results[0].type == i64:
            if isinstance(op.parent_op(), func.FuncOp | scf.IfOp | scf.ForOp | scf.WhileOp):
                yield op


def _by_bits(op: FPToSIOp) -> SSAValue:
    x = Element(builder_before(op), op.operands[0], dtypes.float64)
    whole = (x < 0).select(-(-x).floor(), x.floor())
    return ((whole + _OFFSET).bits(dtypes.int64) - x.like(_OFFSET).bits(dtypes.int64)).value


REWRITE = Rewrite(_found, _by_bits)
