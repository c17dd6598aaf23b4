"""WORKAROUND(jax==0.10.2): arithmetic that XLA simplifies to what is not the same, kept as the program has it.

| in the program | XLA computes | which is not the same for |
|-|-|-|
| `x / broadcast(y)` | `x * broadcast(1 / y)` | a large y: `1 / y` is 0; and half of all numbers in the last digit |
| `x + 0.0` | `x` | -0.0, of which it makes 0.0 |
| a float as an i64 | the nearest i64, 0 for NaN | large ones and NaN: PyTorch gives the smallest i64 on CPUs |

An `optimization_barrier` hides from the simplifier where an operand comes from; it is gone before XLA fuses ops. To go
when `tests/engines/test_xla_numbers.py` says so.
"""

from __future__ import annotations

from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, ModuleOp, TensorType, i1, i64
from xdsl.ir import Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.xla.values import before, constant, element_of
from flambeau.ir.builder import erase
from flambeau.lowering.builder import tensor_type


def keep_arithmetic(module: ModuleOp, is_cpu: bool) -> None:
    """Rewrite the ops of a module that would be simplified to others, in place."""
    for op in list(module.walk()):
        if op.name == "stablehlo.divide" and _is_float(op.operands[1]) and _is_broadcast(op.operands[1]):
            _hide(op, 1)
        elif op.name == "stablehlo.add" and _is_float(op.operands[0]):
            for i, operand in enumerate(op.operands):
                if _is_zero(operand):
                    _hide(op, i)
        elif (
            is_cpu and op.name == "stablehlo.convert" and _is_float(op.operands[0]) and element_of(op.results[0]) == i64
        ):
            _convert(op)


def _is_float(value: SSAValue) -> bool:
    return isinstance(element_of(value), AnyFloat)


def _is_broadcast(value: SSAValue) -> bool:
    """Tell whether a value is one of the program's numbers, or some of them, many times; constants do not count."""
    owner = value.owner
    is_broadcast = isinstance(owner, Operation) and owner.name == "stablehlo.broadcast_in_dim"
    return is_broadcast and _constant_of(value) is None


def _constant_of(value: SSAValue) -> DenseIntOrFPElementsAttr | None:
    """Return what a value is, or is a broadcast of, if that is a constant."""
    owner = value.owner
    while isinstance(owner, Operation) and owner.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        owner = owner.operands[0].owner
    found = owner.properties.get("value") if isinstance(owner, Operation) else None
    return found if isinstance(found, DenseIntOrFPElementsAttr) else None


def _is_zero(value: SSAValue) -> bool:
    constant = _constant_of(value)
    if constant is None or 0 in constant.type.get_shape() or not constant.is_splat():
        return False
    return str(constant.get_values()[0]) == "0.0"


def _hide(op: Operation, index: int) -> None:
    operand = op.operands[index]
    op.operands[index] = before(op).value(stablehlo.op("optimization_barrier"), (operand,), operand.type)


def _convert(op: Operation) -> None:
    """Give the smallest i64 for what has no place in one: XLA gives that already for small numbers."""
    x, type_ = op.operands[0], op.results[0].type
    assert isinstance(x.type, TensorType)
    assert isinstance(type_, TensorType)
    b = before(op)

    fits = b.value(
        stablehlo.op("compare"),
        (x, constant(b, 2.0**63, x.type)),
        tensor_type(tuple(type_.get_shape()), i1),
        stablehlo.comparison("LT", "FLOAT"),
    )
    found = b.value(stablehlo.op("convert"), (x,), type_)
    chosen = b.value(stablehlo.op("select"), (fits, found, constant(b, -(2**63), type_)), type_)
    op.results[0].replace_all_uses_with(chosen)
    erase(op)
