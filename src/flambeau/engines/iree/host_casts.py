"""Casts of Python's floats outside of loops, as loops over one element.

WORKAROUND(iree==3.13): the virtual machine that runs what is between loops has no cast from f64 to a narrower float
("failed to legalize operation 'arith.truncf'"). It can go when `test_a_cast_between_loops` in
tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, func, tensor
from xdsl.dialects.builtin import ModuleOp, TensorType, f64
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Tensor


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if isinstance(op, arith.TruncFOp) and isinstance(op.parent_op(), func.FuncOp):
            yield op


def _in_a_loop(op: arith.TruncFOp) -> SSAValue | None:
    b = builder_before(op)
    source, result = (dtypes.BY_BUILTIN[t] for t in (op.input.type, op.result.type))
    # Without the barrier, IREE takes the loop for what it is and computes it on the host again.
    held = computed_once(b, Tensor(b.value(tensor.FromElementsOp, (op.input,), TensorType(source.builtin, [])), source))
    for use in list(op.result.uses):
        if isinstance(splat := use.operation, tensor.SplatOp):
            inner = builder_before(splat)
            shape = splat.result.type.get_shape()
            dynamic = iter(splat.dynamicSizes)
            sizes = [n if n >= 0 else next(dynamic) for n in shape]
            filled = inner.elementwise([held], lambda e: e.to(result), result, sizes)
            splat.result.replace_all_uses_with(filled.value)
            erase(splat)
    narrow = b.elementwise([held], lambda e: e.to(result), result)
    return b.value(tensor.ExtractOp, (narrow.value,), result.builtin)


REWRITE = Rewrite(_found, _in_a_loop)


def _converted(module: ModuleOp) -> Iterator[Operation]:
    """Find the casts of numbers that StableHLO has as tensors of one element."""
    for op in module.walk():
        if op.name == "stablehlo.convert" and isinstance(op.parent_op(), func.FuncOp):
            source = op.operands[0]
            if isinstance(source.owner, tensor.FromElementsOp) and source.type.element_type == f64:  # type: ignore[attr-defined]
                yield op


def _kept_apart(op: Operation) -> None:
    source = op.operands[0]
    op.operands[0] = computed_once(builder_before(op), Tensor(source, dtypes.float64)).value


CONVERTED = Rewrite(_converted, _kept_apart)
