"""Products that are summed over several dims, so that they are not taken for a contraction.

WORKAROUND(iree==3.13): the compiler makes one `vector.contract` of a product and its sum. Where an operand of the
product is repeated along one of several dims that are summed, and all of it fits one vector, that op is invalid and the
program does not compile: `(x * w).sum()` with a row `w` is such a program. The product of the opposite of one operand,
negated, is the same to the bit and is not recognised; LLVM takes the signs away again. It can go when
`test_a_product_with_a_row_that_is_summed_over_two_dims` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ComplexType, ModuleOp, i1
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, stablehlo_before
from flambeau.ir import dtypes
from flambeau.lowering.element import Element

_SUMS = frozenset({"arith.addf", "arith.addi", "stablehlo.add"})
_PRODUCTS = frozenset({"arith.mulf", "arith.muli", "stablehlo.multiply"})


def _found(module: ModuleOp) -> Iterator[Operation]:
    """Yield the multiplications, of elements or of StableHLO's tensors, whose results are summed over several dims."""
    for op in module.walk():
        if isinstance(op, GenericOp):
            reduced = _reduced_dims(op)
            sources = [op.inputs[0]] if len(op.inputs) == 1 else []
        elif op.name == "stablehlo.reduce":
            reduced = op.properties["dimensions"].get_values()  # type: ignore[attr-defined]
            sources = [op.operands[0]]
        else:
            continue
        terms = [t for v in _last(op).operands if isinstance(v.owner, Operation) for t in _terms(v.owner)]
        if len(reduced) < 2 or not terms:
            continue
        if isinstance(op, GenericOp) and _repeats(op, reduced):
            sources += terms
        yield from filter(None, map(_product, sources))


def _terms(op: Operation) -> Sequence[SSAValue]:
    """Return the operands of an addition; empty for other ops."""
    return op.operands if op.name in _SUMS else ()


def _reduced_dims(op: GenericOp) -> list[int]:
    return [i for i, kind in enumerate(op.iterator_types) if kind.data is IteratorType.REDUCTION]


def _repeats(op: GenericOp, dims: Sequence[int]) -> bool:
    """Tell whether an input is the same along one of some dims."""
    used = (map_.data.used_dims() for map_ in op.indexing_maps.data[: len(op.inputs)])
    return not all(set(dims) <= set(found) for found in used)


def _product(value: SSAValue) -> Operation | None:
    """Return the multiplication of two different numbers that yields a number, or a tensor's elements; else None."""
    op = value.owner
    if isinstance(op, GenericOp) and not _reduced_dims(op):
        op = _last(op).operands[0].owner
    if not isinstance(op, Operation) or op.name not in _PRODUCTS or op.operands[0] is op.operands[1]:
        return None
    element = getattr(op.results[0].type, "element_type", op.results[0].type)
    return None if element == i1 or isinstance(element, ComplexType) else op


def _last(op: Operation) -> Operation:
    found = op.regions[0].block.last_op
    assert found is not None
    return found


def _negated_element(product: Operation) -> SSAValue:
    b = builder_before(product)
    x, y = (Element(b, v, dtypes.BY_BUILTIN[v.type]) for v in product.operands)
    return (-(-x * y)).value


def _negated(product: Operation) -> SSAValue:
    x, y = product.operands
    opposite = stablehlo_before(product, "negate", [x], x.type)
    negative = stablehlo_before(product, "multiply", [opposite, y], x.type)
    return stablehlo_before(product, "negate", [negative], x.type)


def _negate(product: Operation) -> SSAValue:
    return (_negated if product.name == "stablehlo.multiply" else _negated_element)(product)


REWRITE = Rewrite(_found, _negate)
