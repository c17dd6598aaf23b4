"""How large a float can be, told from the ops that made it."""

from __future__ import annotations

import math

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, TensorType, f16
from xdsl.ir import Operation, SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.tosa.constants import Array, array_of, is_splat
from flambeau.lowering.whole.values import shape_of

_DEPTH = 8
"""How far back the ops are asked."""

_KEEP = frozenset(
    {"reshape", "transpose", "tile", "slice", "reverse", "gather", "abs", "negate", "reduce_max", "reduce_min"}
)
_LIMITS = {"tanh": 1.0, "sigmoid": 1.0, "erf": 1.0, "sin": 1.0, "cos": 1.0, "log": 128.0, "rsqrt": 2.0**75}
"""What functions never exceed; the smallest float is 2^-149."""


def magnitude(value: SSAValue, depth: int = _DEPTH) -> float:
    """Bound the magnitude of all finite elements; infinity or NaN where the ops do not tell."""
    array = array_of(value)
    if array is not None:
        return _largest(array.reshape(-1)[:1] if is_splat(array) else array)
    op = value.owner
    if not isinstance(op, Operation) or not op.name.startswith("tosa.") or not depth:
        return _of_type(value)
    name = op.name.removeprefix("tosa.")
    if name in _LIMITS:
        return _LIMITS[name]

    def of(*places: int) -> list[float]:
        return [magnitude(op.operands[i], depth - 1) for i in places]

    if name in _KEEP:
        return of(0)[0]
    if name in ("add", "sub"):
        return sum(of(0, 1))
    if name == "mul":
        return math.prod(of(0, 1))
    if name in ("maximum", "minimum"):
        return max(of(0, 1))
    if name == "select":
        return max(of(1, 2))
    if name in ("floor", "ceil"):
        return of(0)[0] + 1
    if name == "reduce_sum":
        return of(0)[0] * math.prod(1 << 32 if s is None else s for s in shape_of(op.operands[0]))
    if name == "const":
        values = op.properties["values"]
        if isinstance(values, DenseIntOrFPElementsAttr) and values.is_splat():
            return _largest(np.array(values.get_values(), np.float64))
    if name == "cast":
        return _of_type(op.operands[0])
    if name == "exp":
        return 1.0 if _at_most_zero(op.operands[0]) else math.inf
    if name == "reciprocal":
        # The inverse of a reciprocal square root is a square root.
        return 2.0**75 if _made_by(op.operands[0], "rsqrt") else math.inf
    return _of_type(value)


def _largest(array: Array) -> float:
    finite = np.abs(array.astype(np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0


def _of_type(value: SSAValue) -> float:
    """Return the largest number that the type of a value has; infinity for those as wide as f32."""
    assert isinstance(value.type, TensorType)
    element = value.type.element_type
    if isinstance(element, IntegerType):
        return 2.0**element.width.data
    return dtypes.float16.largest if element == f16 else math.inf


def _made_by(value: SSAValue, name: str) -> Operation | None:
    op = value.owner
    return op if isinstance(op, Operation) and op.name == f"tosa.{name}" else None


def _at_most_zero(value: SSAValue) -> bool:
    """Tell whether a value is -|x|, or x minus its maximum, so that no element is above zero."""
    if negated := _made_by(value, "negate"):
        return _made_by(negated.operands[0], "abs") is not None
    if difference := _made_by(value, "sub"):
        x, subtracted = difference.operands
        most = subtracted
        while moved := _made_by(most, "reshape"):
            most = moved.operands[0]
        found = _made_by(most, "reduce_max")
        return found is not None and found.operands[0] is x and shape_of(most) == shape_of(subtracted)
    return False
