"""Conversions from f32 to bfloat16 by their bits, for CPUs that have no instruction for it.

WORKAROUND(iree==3.13): the compiler writes them so itself, but first it makes one conversion of those from an integer
to f32 and from f32 to bfloat16, and that becomes a call of a function which no library has: the program cannot be
loaded. It can go when `test_integers_to_bfloat16` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from xdsl.dialects.builtin import BFloat16Type, Float32Type, ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.host import host_cpu
from flambeau.engines.iree.host_target import TARGET
from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, element_type
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element

_CONVERSIONS = ("arith.truncf", "stablehlo.convert", "tosa.cast")
_QUIET_NAN = 0x7FC0


def has_instruction() -> bool:
    """Tell whether programs are for a CPU that converts to bfloat16 itself; one that somebody names may be any."""
    return TARGET not in os.environ.get("FLAMBEAU_IREE_FLAGS", "") and not {"avx512_bf16", "bf16"}.isdisjoint(
        host_cpu()[1]
    )


def _found(module: ModuleOp) -> Iterator[Operation]:
    if has_instruction():
        return
    for op in module.walk():
        if op.name in _CONVERSIONS and isinstance(element_type(op.results[0].type), BFloat16Type):
            if isinstance(element_type(op.operands[0].type), Float32Type):
                yield op


def _by_bits(op: Operation) -> SSAValue:
    """Round to the nearest number of which the lower 16 bits are zero, and to the even one of two."""
    b, x = builder_before(op), op.operands[0]

    def rounded(e: Element) -> Element:
        bits = e.bits(dtypes.int32)
        upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return e.isnan().select(upper.like(_QUIET_NAN), upper).to(dtypes.int16).bits(dtypes.bfloat16)

    if isinstance(x.type, Float32Type):
        return rounded(Element(b, x, dtypes.float32)).value
    return b.elementwise([Tensor(x, dtype_of(x))], rounded, dtypes.bfloat16).value


REWRITE = Rewrite(_found, _by_bits)
