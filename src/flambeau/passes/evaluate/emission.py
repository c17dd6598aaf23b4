"""Ops that stay in the program: emitted again, on new operands and with better types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue, Use

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp
from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    ListConstructOp,
    ListUnpackOp,
    OverwriteTensorContentsOp,
    TorchOp,
    TupleConstructOp,
    TupleUnpackOp,
    create_op,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import (
    ANY,
    ListType,
    NonValueTensorType,
    TensorType,
    TupleType,
    intern,
    is_subtype,
    to_value,
    tuple_of,
)
from flambeau.passes.evaluate.inference import inferred, is_open, result_types, tensor_type
from flambeau.passes.evaluate.operands import fit, materialize
from flambeau.passes.evaluate.scalars import scalar_twin
from flambeau.passes.evaluate.state import Evaluation, known
from flambeau.passes.evaluate.storages import converted, is_contiguous, wrapped
from flambeau.passes.evaluate.values import List


def emit_inferred(e: Evaluation, op: TorchOp) -> None:
    """Infer what an op gives; what is known is a value, for the rest the op stays."""
    schema = op.schema
    if schema is None or isinstance(op, LiteralOp | ListConstructOp | TupleConstructOp | TupleUnpackOp | ListUnpackOp):
        emit_again(e, op)
        return
    if schema.is_mutable and e.features.tensors:
        raise Unsupported("this op writes to its arguments and has no value form")
    args = [e.values[o] for o in op.operands]
    answers = inferred(e, schema, args) if e.features.infer or e.features.fold else None
    is_check = op.overload == "aten._assert_scalar" and args[0] is not True
    if e.features.fold and answers is not None and not any(map(is_open, answers)) and not is_check:
        e.record(op, [known(e, a, r.type) for a, r in zip(answers, op.results, strict=True)])
        return
    operands = [materialize(e, a) for a in args]
    types = result_types(e, op, answers)
    new = create_op(op.overload, operands, types, op.location)
    e.t.insert(new)
    if e.features.tensors and gives_dense(e, schema, args):
        e.dense.update(new.results)
    for old, result in zip(op.results, new.results, strict=True):
        result.name_hint = old.name_hint
        e.values[old] = taken_apart(e, old, result, answers)
    if e.features.fold and len(new.results) == 1:
        twin = scalar_twin(e, op.overload, new.results[0].type, operands, args)
        if twin is not None:
            e.twins[new.results[0]] = twin


def gives_dense(e: Evaluation, schema: Schema, args: Sequence[Any]) -> bool:
    if schema.is_view:
        return schema.name == "aten.contiguous"
    return _is_dense(schema.name) and all(is_contiguous(e, v) for v in args)


def taken_apart(e: Evaluation, old: SSAValue, result: SSAValue, answers: Sequence[Any] | None) -> Any:
    """Wrap the result of an op as a value; a list of tensors whose length is known becomes a list of values."""
    if not isinstance(old.type, ListType):
        return wrapped(e, result, old.type)
    element = old.type.element_type
    parts: list[Attribute] | None = None
    if not isinstance(element, TensorType):
        return result
    if answers is not None and isinstance(answers[0], list):
        parts = [tensor_type(e, element, m) for m in answers[0]]
    else:
        unpack = next((u.operation for u in old.uses if isinstance(u.operation, ListUnpackOp)), None)
        if unpack is not None:
            parts = [to_value(r.type) if e.features.tensors else r.type for r in unpack.results]
    if parts is None:
        return result
    if not e.features.containers:
        e.part_types[result] = parts
        return result
    unpacked = e.t.emit(ListUnpackOp, (result,), parts)
    return List(tuple(wrapped(e, r, element) for r in unpacked.results), e.depth, element_type=element)


def emit_again(e: Evaluation, op: Operation) -> None:
    """Emit an op as it was, on the new operands."""
    if op.regions:
        raise Unsupported(f"{op.name} has regions that are not followed")
    types = [r.type for r in op.results]
    if isinstance(op, TupleConstructOp | TupleUnpackOp | ListUnpackOp):
        # Without the rules for containers, the elements may still have better types.
        operands = [materialize(e, e.values[o]) for o in op.operands]
        types = types_in_container(e, op, operands) or types
    elif isinstance(op, CopyToValueTensorOp | CopyToNonValueTensorOp):
        operands = [materialize(e, e.values[o]) for o in op.operands]
        if not isinstance(operands[0].type, TensorType):
            raise Unsupported(f"{op.name} takes a tensor, and this is a {operands[0].type}")
        types = [intern(type(types[0]), operands[0].type.data)]
    elif isinstance(op, OverwriteTensorContentsOp):
        written = materialize(e, e.values[op.operands[1]])
        new_content = converted(e, materialize(e, e.values[op.operands[0]]), to_value(written.type))
        operands = [e.t.cast(new_content, to_value(written.type)), written]
    elif isinstance(op, GlobalSlotGetOp):
        operands = []
        if e.features.infer and e.refines_mutable and is_subtype(e.slot_types.get(op.slot_name, ANY), types[0]):
            types = [e.slot_types[op.slot_name]]
    elif isinstance(op, ListConstructOp):
        element = op.results[0].type.element_type  # type: ignore[attr-defined]
        operands = [materialize(e, e.values[o]) for o in op.operands]
        operands = [o if is_subtype(o.type, element) else e.t.cast(o, element) for o in operands]
    else:
        operands = [fit(e, e.values[o], o.type) for o in op.operands]
    new = type(op).create(
        operands=operands,
        result_types=types,
        properties=op.properties,
        attributes=op.attributes,
        successors=op.successors,
        location=op.location,
    )
    e.t.insert(new)
    if isinstance(op, ListConstructOp) and not all(_only_reads(use) for use in op.results[0].uses):
        e.opaque.add(new.results[0])
    for old, result in zip(op.results, new.results, strict=True):
        result.name_hint = old.name_hint
        value: SSAValue = result
        if e.features.tensors and isinstance(old.type, NonValueTensorType):
            value = e.t.value(CopyToValueTensorOp, (result,), to_value(old.type))
        e.values[old] = wrapped(e, value, old.type)


def types_in_container(e: Evaluation, op: Operation, operands: Sequence[SSAValue]) -> list[Attribute] | None:
    """Find the result types of an op that packs or unpacks; None where nothing better is known."""
    if isinstance(op, TupleConstructOp):
        return [tuple_of([o.type for o in operands])]
    if isinstance(op, TupleUnpackOp):
        type_ = operands[0].type
        return list(type_.data) if isinstance(type_, TupleType) else None
    return e.part_types.get(operands[0])


_ORDER_UNKNOWN = (
    "einsum", "tensordot", "scaled_dot_product_attention", "index.", "linalg_", "fft_", "stft", "istft", "lstm", "gru",
    "rnn", "nonzero", "unique", "rot90", "bilinear", "_native_multi_head", "sort", "topk",
)  # fmt: skip
"""Beginnings of the names of ops whose results may not be contiguous, though their arguments are."""


@cache
def _is_dense(name: str) -> bool:
    """Tell whether an op gives contiguous tensors for contiguous ones."""
    return not name.removeprefix("aten.").startswith(_ORDER_UNKNOWN)


def _only_reads(use: Use) -> bool:
    """Tell whether an op only looks at a list that it takes."""
    schema = getattr(use.operation, "schema", None)
    if schema is None or use.index >= len(schema.arguments):
        return False
    return schema.arguments[use.index].alias is None
