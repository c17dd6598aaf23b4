"""Programs that are lowered in part: `torch_c` between torch types and builtin ones, and ops on the latter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects import arith
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import TensorType
from flambeau.dialects.torch_c import FromBuiltinTensorOp, ScalarConversionOp, ToBuiltinTensorOp
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_TORCH_TYPE
from flambeau.lowering.builder import INDEX, LoweringBuilder, Tensor
from flambeau.lowering.scalars import as_float, as_int

CONVERSIONS = (FromBuiltinTensorOp, ScalarConversionOp, ToBuiltinTensorOp)


def is_builtin(type_: Attribute) -> bool:
    """Tell whether a type is no type of the torch dialect."""
    return not type_.name.startswith("torch.")


def lower_mixed(b: LoweringBuilder, op: Operation, values: Mapping[SSAValue, Any]) -> list[Any]:
    """Lower a conversion of `torch_c`, or copy an op on builtin types; Unsupported for any other op.

    `values` has what each value of the old program is in the new one; so has the result, for the results of the op.
    """
    if isinstance(op, ToBuiltinTensorOp):
        type_ = op.operands[0].type
        assert isinstance(type_, TensorType)
        assert type_.shape is not None
        return [b.cast(values[op.operands[0]], type_.shape).value]
    if isinstance(op, FromBuiltinTensorOp):
        type_ = op.results[0].type
        assert isinstance(type_, TensorType)
        assert type_.element_type is not None
        return [Tensor(values[op.operands[0]], BY_TORCH_TYPE[type_.element_type])]
    if isinstance(op, ScalarConversionOp) and op.name in _SCALARS:
        return [_SCALARS[op.name](b, values[op.operands[0]])]
    if not all(is_builtin(v.type) for inner in op.walk() for v in (*inner.operands, *inner.results)):
        raise Unsupported(f"{op.name} is not part of the backend contract")
    copy = op.clone({old: new for old, new in values.items() if isinstance(new, SSAValue)})
    b.insert(copy)
    return list(copy.results)


_SCALARS: Mapping[str, Any] = {
    "torch_c.to_i1": lambda b, x: b.constant(x, dtypes.bool_) if isinstance(x, bool) else x,
    "torch_c.from_i1": lambda b, x: x,
    "torch_c.to_i64": lambda b, x: as_int(b, x).value,
    "torch_c.from_i64": lambda b, x: b.value(arith.IndexCastOp, (x,), INDEX),
    "torch_c.to_f64": lambda b, x: as_float(b, x).value,
    "torch_c.from_f64": lambda b, x: x,
}
"""Conversions of numbers: what Python's int is in a program under way is an index."""
