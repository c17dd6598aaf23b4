"""Appending torch ops: constants once per function, Python values as operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, StringAttr, f64, i1, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.dialects.torch.ops import (
    ConstantBoolOp,
    ConstantDeviceOp,
    ConstantFloatOp,
    ConstantIntOp,
    ConstantNoneOp,
    ConstantOp,
    ConstantStrOp,
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    DerefineOp,
    ListConstructOp,
    RuntimeAssertOp,
    StaticInfoCastOp,
    TupleConstructOp,
    TupleUnpackOp,
    ValueTensorLiteralOp,
    create_op,
)
from flambeau.dialects.torch.types import (
    BOOL,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    STR,
    NonValueTensorType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
    is_subtype,
    list_of,
    to_value,
    vtensor,
)
from flambeau.ir.builder import OpBuilder
from flambeau.ir.dtypes import DType


class Device(str):
    """A device name, to be told from a plain string."""


class TorchEmitter(OpBuilder):
    """Builds torch ops at the end of a block; constants stand at the start of the function, each once."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._entry = block
        self._last_constant: Operation | None = None
        self._constants: dict[Any, SSAValue] = {}

    def constant(self, value: Any) -> SSAValue:
        """Return the SSA value of a Python number, string, None, dtype or device; equal constants share one op."""
        if isinstance(value, DType):
            value = value.code
        # repr tells 1 from True and 1.0, 0.0 from -0.0, and takes NaN.
        key = (type(value), repr(value))
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._add_constant(value)
        return found

    def _add_constant(self, value: Any) -> SSAValue:
        op: ConstantOp
        match value:
            case None:
                op, hint = ConstantNoneOp.create(result_types=(NONE,)), "none"
            case bool():
                op = ConstantBoolOp.create(result_types=(BOOL,), properties={"value": IntegerAttr(int(value), i1)})
                hint = "true" if value else "false"
            case int():
                op = ConstantIntOp.create(result_types=(INT,), properties={"value": IntegerAttr(value, i64)})
                hint = f"int{value}" if value >= 0 else f"int_{-value}"
            case float():
                op = ConstantFloatOp.create(result_types=(FLOAT,), properties={"value": FloatAttr(value, f64)})
                hint = "float"
            case Device():
                op = ConstantDeviceOp.create(result_types=(DEVICE,), properties={"value": StringAttr(str(value))})
                hint = "device"
            case str():
                op = ConstantStrOp.create(result_types=(STR,), properties={"value": StringAttr(value)})
                hint = "str"
            case _:
                raise TypeError(f"{value!r} is not a constant of the torch dialect")
        self.insert_first(op)
        op.results[0].name_hint = hint
        return op.results[0]

    def insert_first(self, op: Operation) -> None:
        """Insert an op behind the constants at the start of the function."""
        if self._last_constant is not None:
            self._entry.insert_ops_after((op,), self._last_constant)
        elif self._entry.first_op is not None:
            self._entry.insert_ops_before((op,), self._entry.first_op)
        else:
            self._entry.add_op(op)
        self._last_constant = op

    def require(self, condition: SSAValue, message: str) -> None:
        """Make the program fail with `message` when it runs, unless a bool is true."""
        self.emit(RuntimeAssertOp, (condition,), (), {"message": StringAttr(message)})

    def size_along(self, tensor: SSAValue, dim: int) -> SSAValue:
        """Emit `aten.size.int`: the size of a dim as an int of the program."""
        return self.op("aten.size.int", (tensor, self.constant(dim)), (INT,))[0]

    def list(self, elements: Sequence[SSAValue], element_type: Attribute) -> SSAValue:
        """Emit `torch.prim.ListConstruct`; equal lists of constants are built once."""
        key = (element_type, tuple(elements))
        found = self._constants.get(key)
        if found is None:
            is_constant = all(isinstance(e.owner, ConstantOp) for e in elements)
            if is_constant and self.block is not self._entry:
                # In a branch or a loop: the list is as good outside, where it can be used again.
                op = ListConstructOp.create(operands=elements, result_types=(list_of(element_type),))
                self.insert_first(op)
                found = self._constants[key] = op.results[0]
                return found
            found = self.value(ListConstructOp, elements, list_of(element_type))
            if is_constant:
                self._constants[key] = found
        return found

    def ints(self, values: Sequence[Any]) -> SSAValue:
        """Emit a `!torch.list<int>` of Python ints and SSA values."""
        return self.list([v if isinstance(v, SSAValue) else self.constant(v) for v in values], INT)

    def op(self, name: str, operands: Sequence[SSAValue], result_types: Sequence[Attribute]) -> Sequence[SSAValue]:
        """Append the registry op `aten.add.Tensor` and give its results."""
        op = create_op(name, operands, result_types, self.location)
        self.insert(op)
        return op.results

    def cast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        """Cast a value to another static type, wider or narrower; between `tensor` and `vtensor`, copy it."""
        have = value.type
        if have == type_:
            return value
        if isinstance(have, TensorType) and isinstance(type_, TensorType):
            if isinstance(have, NonValueTensorType) and isinstance(type_, VTensorType):
                value = self.value(CopyToValueTensorOp, (value,), to_value(have))
            seen = intern(type(value.type), type_.data)
            if value.type != seen:
                value = self.value(StaticInfoCastOp, (value,), seen)
            return value if seen == type_ else self.value(CopyToNonValueTensorOp, (value,), type_)
        if isinstance(have, TupleType) and isinstance(type_, TupleType) and not is_subtype(have, type_):
            parts = self.emit(TupleUnpackOp, (value,), have.data).results
            casts = [self.cast(p, t) for p, t in zip(parts, type_.data, strict=True)]
            return self.value(TupleConstructOp, casts, type_)
        if is_subtype(have, type_):
            return self.value(DerefineOp, (value,), type_)
        return self.op("prim.unchecked_cast", (value,), (type_,))[0]

    def literal(self, value: Attribute, dtype: DType, shape: Sequence[int]) -> SSAValue:
        """Emit a constant tensor."""
        return self.value(ValueTensorLiteralOp, (), vtensor(tuple(shape), dtype.torch_type), {"value": value})


def dense(data: bytes, dtype: DType, shape: Sequence[int], element_type: Attribute | None = None) -> Attribute:
    """Make `dense<...>` from the raw bytes of the elements."""
    type_: Any = BuiltinTensorType(element_type or dtype.torch_type, list(shape))
    return DenseIntOrFPElementsAttr(type_, BytesAttr(data))
