"""What was rounded to bfloat16 and is computed with, so that the rounding takes place.

WORKAROUND(iree==3.13): where the compiler puts the ops of two loops into one, it drops the conversion to bfloat16 at
the end of the first and the one back at the start of the second, and the number between them keeps the digits that
PyTorch rounds off. So the conversion back is written as what it is on bits. It can go when
`test_a_sum_that_is_rounded_before_it_is_used` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, ModuleOp
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, element_type, origin
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_BUILTIN
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element

_CONVERSIONS = ("arith.extf", "stablehlo.convert", "tosa.cast")
_STORED = ("arith.constant", "stablehlo.constant", "tosa.const", "util.global.load", "ml_program.global_load_const")


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name not in _CONVERSIONS or not isinstance(element_type(op.operands[0].type), BFloat16Type):
            continue
        wanted = BY_BUILTIN.get(element_type(op.results[0].type))
        if wanted in (dtypes.float32, dtypes.float64) and _is_computed(op.operands[0]) and not _is_of_product(op):
            yield op


def _is_computed(value: SSAValue) -> bool:
    """Tell whether an op of the program has rounded the value: not one that comes from memory as it is."""
    owner = origin(value).owner
    return isinstance(owner, Operation) and owner.name not in _STORED


def _is_of_product(op: Operation) -> bool:
    """Tell whether the op stands in a loop nest that IREE knows as a product of matrices or a convolution."""
    body = op.parent_block()
    return body is not None and any(
        isinstance(user, arith.MulfOp) and any(isinstance(use.operation, arith.AddfOp) for use in user.result.uses)
        for user in (use.operation for use in op.results[0].uses)
        if isinstance(user.parent_op(), GenericOp)
        and any(kind.data == "reduction" for kind in user.parent_op().iterator_types)
    )


def _by_bits(op: Operation) -> SSAValue:
    b, x, wanted = builder_before(op), op.operands[0], BY_BUILTIN[element_type(op.results[0].type)]

    def widened(e: Element) -> Element:
        return (e.bits(dtypes.int16).to(dtypes.int32) << 16).bits(dtypes.float32).to(wanted)

    if isinstance(x.type, BFloat16Type):
        return widened(Element(b, x, dtypes.bfloat16)).value
    return b.elementwise([Tensor(x, dtype_of(x))], widened, wanted).value


REWRITE = Rewrite(_found, _by_bits)
