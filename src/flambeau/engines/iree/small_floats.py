"""Conversions to 8-bit floats, of numbers that round up to the least normal one.

WORKAROUND(iree==3.13): numbers between the greatest subnormal 8-bit float and the least normal one become 0 where they
should round up. They are made the least normal one before they are converted. It can go when
`test_a_number_that_rounds_to_the_least_normal_8_bit_float` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.ir import Operation

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, element_type
from flambeau.ir.dtypes import BY_BUILTIN
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element

_LEAST = {"float8_e4m3fn": (-6, 3), "float8_e4m3fnuz": (-7, 3), "float8_e5m2": (-14, 2), "float8_e5m2fnuz": (-15, 2)}
"""Of each dtype, the exponent of the least normal number, and how many digits stand behind the point."""
_CONVERSIONS = ("arith.truncf", "stablehlo.convert", "tosa.cast")


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name in _CONVERSIONS and isinstance(source := element_type(op.operands[0].type), AnyFloat):
            wanted = BY_BUILTIN.get(element_type(op.results[0].type))
            if wanted is not None and wanted.name in _LEAST and source.bitwidth > 8:
                yield op


def _round_up(op: Operation) -> None:
    exponent, digits = _LEAST[BY_BUILTIN[element_type(op.results[0].type)].name]
    least = 2.0**exponent
    halfway = least * (1 - 2.0 ** -(digits + 1))

    def rounded(x: Element) -> Element:
        size = abs(x)
        return ((size >= halfway) & (size < least)).select(x.like(least).copysign(x), x)

    b, x = builder_before(op), op.operands[0]
    if isinstance(x.type, AnyFloat):
        op.operands[0] = rounded(Element(b, x, BY_BUILTIN[x.type])).value
    else:
        op.operands[0] = b.elementwise([Tensor(x, dtype_of(x))], rounded, dtype_of(x)).value


REWRITE = Rewrite(_found, _round_up)
