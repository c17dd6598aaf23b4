"""Tensors that are written: which values of a function they are, and the function with those as `!torch.tensor`.

The rule is that of the FX frontend. What shares storage with something that is written is mutable; an op that neither
writes nor gives a view reads it first (`copy.to_vtensor`), and what begins as a value is copied (`copy.to_tensor`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseResourceAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    ListConstructOp,
    ListUnpackOp,
    TorchOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import (
    ListType,
    NonValueTensorType,
    TensorType,
    VTensorType,
    list_of,
    to_non_value,
    to_value,
)
from flambeau.ir.builder import OpBuilder
from flambeau.ir.sharing import Sharing


def schema_of(op: Operation) -> Schema | None:
    return op.schema if isinstance(op, TorchOp) else None


def analyze(block: Block) -> Sharing[SSAValue]:
    """Find what is written."""
    sharing, writes = Sharing[SSAValue](), []
    for op in block.ops:
        if isinstance(op, ListUnpackOp):
            for result in op.results:
                sharing.join(op.operands[0], result)
            continue
        schema = schema_of(op)
        if schema is None:
            continue
        sets = {s for r in schema.returns if r.alias for s in r.alias.sets}
        for argument, operand in zip(schema.arguments, op.operands):
            if argument.alias is None:
                continue
            if argument.alias.is_write:
                writes.append(operand)
            if sets & set(argument.alias.sets):
                for result in op.results:
                    sharing.join(operand, result)
    sharing.written = {sharing.root(v) for v in writes}
    return sharing


def settle(block: Block, sharing: Sharing[SSAValue]) -> dict[SSAValue, SSAValue]:
    """Make mutable what must be. Gives the mutable tensor that stands for each value that begins as a value."""
    builder = OpBuilder(block)
    objects: dict[SSAValue, SSAValue] = {}

    def start(value: SSAValue) -> None:
        objects[value] = builder.value(CopyToNonValueTensorOp, (value,), to_non_value(value.type))

    def as_object(value: SSAValue) -> SSAValue:
        if value in objects:
            return objects[value]
        if isinstance(value.type, VTensorType):
            return builder.value(CopyToNonValueTensorOp, (value,), to_non_value(value.type))
        return value

    def as_value(value: SSAValue) -> SSAValue:
        value = objects.get(value, value)
        if isinstance(value.type, NonValueTensorType):
            return builder.value(CopyToValueTensorOp, (value,), to_value(value.type))
        return value

    ops = list(block.ops)
    builder.before = ops[0] if ops else None
    for argument in block.args:
        if sharing.is_mutable(argument) and isinstance(argument.type, TensorType):
            start(argument)
    for op in ops:
        builder.before, builder.location = op, op.location
        schema = schema_of(op)
        is_mutable = any(sharing.is_mutable(r) for r in op.results)
        is_alias = schema is not None and (schema.is_mutable or (schema.is_view and is_mutable))
        if isinstance(op, ListUnpackOp):
            is_alias = is_mutable and isinstance(op.operands[0].owner, TorchOp) and _is_view(op.operands[0].owner)
        if is_alias:
            writes = schema is not None and schema.is_mutable
            op.operands = [as_object(o) if writes or sharing.is_mutable(o) else o for o in op.operands]
            for result in op.results:
                _make_mutable(result)
            continue
        op.operands = [as_value(o) for o in op.operands]
        if is_mutable and not isinstance(op, ListConstructOp):
            builder.before = op.next_op
            for result in op.results:
                if isinstance(result.type, VTensorType):
                    start(result)
    return objects


def _is_view(op: Operation) -> bool:
    schema = schema_of(op)
    return schema is not None and schema.is_view


def _make_mutable(value: SSAValue) -> None:
    type_ = value.type
    if isinstance(type_, VTensorType):
        value._type = to_non_value(type_)
    elif isinstance(type_, ListType) and isinstance(type_.element_type, VTensorType):
        value._type = list_of(to_non_value(type_.element_type))


def written_weights(block: Block, sharing: Sharing[SSAValue]) -> list[ValueTensorLiteralOp]:
    """List the weights that the function writes."""
    return [
        op
        for op in block.ops
        if isinstance(op, ValueTensorLiteralOp)
        and isinstance(op.properties["value"], DenseResourceAttr)
        and sharing.is_mutable(op.results[0])
    ]


def written_arguments(arguments: Sequence[BlockArgument], sharing: Sharing[SSAValue]) -> list[BlockArgument]:
    """List the arguments that the function writes."""
    return [a for a in arguments if isinstance(a.type, TensorType) and sharing.is_mutable(a)]
