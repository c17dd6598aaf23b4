"""Numbers that a program holds in tensors without dims.

A traced program computes sizes on tensors: `x.size(0) * 2` is a size, made a tensor, multiplied, made a number again.
The twin of such a tensor is the number in it; where there is one, the way back to a number costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, NUMBER, TensorType
from flambeau.ir.dtypes import DType
from flambeau.passes.evaluate.inference import inferred
from flambeau.passes.evaluate.operands import materialize
from flambeau.passes.evaluate.state import Evaluation, NotKnown, rule
from flambeau.passes.evaluate.values import Known, View

_SAME = frozenset(
    {
        "prim.NumToTensor.Scalar", "aten.scalar_tensor", "aten.clone", "aten.detach", "aten.contiguous", "aten.alias",
        "aten.lift_fresh", "aten.to.dtype", "aten.to.device", "aten.to.dtype_layout", "aten.tensor.int",
        "aten.tensor.float", "aten.tensor.bool", "aten.view", "aten.reshape", "aten.squeeze",
    }
)  # fmt: skip
"""Ops that give a tensor with the number of their first operand."""

_ARITHMETIC = {
    "aten.add.Tensor": "add", "aten.add.Scalar": "add", "aten.sub.Tensor": "sub", "aten.sub.Scalar": "sub",
    "aten.mul.Tensor": "mul", "aten.mul.Scalar": "mul", "aten.floor_divide": "floordiv",
    "aten.floor_divide.Scalar": "floordiv", "aten.remainder.Tensor": "remainder", "aten.remainder.Scalar": "remainder",
    "aten.neg": "neg",
}  # fmt: skip
"""Ops on whole numbers and their names among the ops on numbers."""

_DIVISIONS = ("aten.div.Tensor_mode", "aten.div.Scalar_mode")


def scalar_twin(e: Evaluation, name: str, type_: Attribute, operands: Sequence[SSAValue], args: Sequence[Any]) -> Any:
    """Find the number in the 0-d tensor that an op gives, if the numbers that it is made of are known."""
    if not isinstance(type_, TensorType) or type_.shape != () or type_.dtype is None:
        return None
    if name in _SAME and operands:
        number = _number(e, operands[0], args[0])
        kind = FLOAT if type_.dtype.is_float else BOOL if type_.dtype.name == "bool" else INT
        return number if number is not None and number.type == kind else None
    if name in _DIVISIONS and args[-1] == Known("floor"):
        base = "floordiv"
    elif name in _ARITHMETIC:
        base = _ARITHMETIC[name]
    else:
        return None
    count = 1 if base == "neg" else 2
    if name.startswith(("aten.add", "aten.sub")) and args[2] != Known(1):
        return None
    numbers = [_number(e, o, a) for o, a in zip(operands[:count], args[:count], strict=True)]
    if any(n is None or n.type != INT for n in numbers):
        return None
    schema = registry.schema(f"aten.{base}.int")
    assert schema is not None
    answer = inferred(e, schema, numbers)
    if answer is not None and isinstance(answer[0], int):
        return Known(answer[0])
    return e.t.op(schema.name, [materialize(e, n) for n in numbers], (INT,))[0]


def _number(e: Evaluation, operand: SSAValue, value: Any) -> Any:
    """Take an operand as a number; None where it is none."""
    if isinstance(value, Known):
        return value if isinstance(value.value, (int, float)) else None
    if operand.type in (INT, FLOAT, BOOL):
        return operand
    if operand in e.twins:
        return e.twins[operand]
    return literal_number(operand)


def literal_number(operand: SSAValue) -> Known | None:
    """Read the number in a constant tensor without dims."""
    owner, type_ = operand.owner, operand.type
    if not isinstance(owner, LiteralOp) or not isinstance(type_, TensorType) or type_.shape != ():
        return None
    get_values = getattr(owner.value, "get_values", None)
    if get_values is None or not isinstance(type_.dtype, DType) or type_.dtype.is_complex:
        return None
    (number,) = get_values()
    if type_.dtype.name == "bool":
        return Known(bool(number))
    return Known(float(number) if type_.dtype.is_float else int(number))


def _back(names: tuple[str, ...], convert: Any, wanted: Any) -> None:
    @rule(*names)
    def apply(e: Evaluation, op: Operation, value: Any) -> Any:
        if not e.features.fold or not isinstance(value, View | SSAValue):
            raise NotKnown
        number = _number(e, materialize(e, value), None)
        if number is None:
            raise NotKnown
        if isinstance(number, Known):
            return Known(convert(number.value) if convert is not None else number.value)
        if wanted not in (number.type, NUMBER):
            raise NotKnown
        return number


_back(("aten.Int.Tensor", "aten.IntImplicit"), int, INT)
_back(("aten.Float.Tensor", "aten.FloatImplicit"), float, FLOAT)
_back(("aten.Bool.Tensor",), bool, BOOL)
_back(("aten.ScalarImplicit", "aten.item"), None, NUMBER)
