"""What the rules of `infer/` say about an op's results, as values and as types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.ops import ConstantOp, ListConstructOp, TorchOp
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import (
    FLOAT,
    INT,
    NUMBER,
    ListType,
    NonValueTensorType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
    list_of,
    to_value,
)
from flambeau.infer.builder import NUMBERS
from flambeau.infer.builder import rules as infer_rules
from flambeau.infer.rules import InferenceError, Meta, Unknown
from flambeau.passes.evaluate.state import Evaluation, NotKnown
from flambeau.passes.evaluate.values import Known, List, Tuple, View


def is_open(answer: Any) -> bool:
    """Tell whether an answer leaves something to the run time."""
    if isinstance(answer, list):
        return any(map(is_open, answer))
    return isinstance(answer, Meta | Unknown)


def _is_static(meta: Any) -> bool:
    if isinstance(meta, list):
        return all(map(_is_static, meta))
    if isinstance(meta, Meta):
        return None not in meta.shape
    return not isinstance(meta, Unknown)


def meta(e: Evaluation, value: Any) -> Any:
    """Give a value the form in which inference rules take it."""
    if isinstance(value, Known):
        return str(value.value) if isinstance(value.value, Device) else value.value
    if isinstance(value, Tuple | List):
        items = value.items if isinstance(value, Tuple) else value.content
        return [meta(e, v) for v in items]
    if isinstance(value, View):
        return _meta_of_type(value.type)
    if isinstance(value, SSAValue):
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return owner.python_value
        if isinstance(owner, ListConstructOp) and value not in e.opaque:
            return [meta(e, v) for v in owner.operands]
        return _meta_of_type(value.type)
    raise NotKnown


def _meta_of_type(type_: Attribute) -> Any:
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.dtype is None:
            raise NotKnown
        return Meta(type_.shape, type_.dtype)
    if type_ in NUMBERS:
        return Unknown(NUMBERS[type_])
    raise NotKnown


def inferred(e: Evaluation, schema: Schema, args: Sequence[Any]) -> list[Any] | None:
    """Infer what an op gives, result by result; None where nothing is known."""
    rule = infer_rules().get(schema.name)
    if rule is None and e.oracle is None:
        return None
    try:
        metas = [meta(e, a) for a in args]
    except NotKnown:
        return None
    try:
        if rule is not None:
            answer = rule(*metas)
        elif e.oracle is None or (answer := e.oracle(schema, metas)) is None:
            # An oracle that gives None cannot say.
            return None
    except InferenceError as error:
        if all(_is_static(m) for m in metas):
            raise Unsupported(str(error)) from error
        return None
    if answer is None and len(schema.returns) != 1:
        return None
    return list(answer) if isinstance(answer, tuple) else [answer]


def tensor_type(e: Evaluation, declared: Attribute, answer: Any) -> Attribute:
    """Meet the declared type of a tensor with the inferred one: both hold."""
    assert isinstance(declared, TensorType)
    cls = VTensorType if e.features.tensors else type(declared)
    if not isinstance(answer, Meta) or (cls is NonValueTensorType and not e.refines_mutable):
        return intern(cls, declared.data)
    shape, element = declared.data
    dims = answer.shape
    if shape is not None and len(shape) == len(dims):
        dims = tuple(d if d is not None else s for d, s in zip(dims, shape, strict=True))
    return intern(cls, (dims, answer.dtype.torch_type or element))


def result_types(e: Evaluation, op: TorchOp, answers: Sequence[Any] | None) -> list[Attribute]:
    types: list[Attribute] = []
    for i, result in enumerate(op.results):
        answer = answers[i] if answers is not None else None
        if op.overload == "prim.TupleIndex" and (element := element_of_tuple(e, op)) is not None:
            types.append(element)
        elif isinstance(result.type, TensorType):
            types.append(tensor_type(e, result.type, answer))
        elif isinstance(result.type, ListType) and isinstance(result.type.element_type, TensorType):
            element = to_value(result.type.element_type) if e.features.tensors else result.type.element_type
            types.append(list_of(element))
        elif isinstance(answer, Unknown) and result.type == NUMBER and answer.kind in (int, float):
            types.append(INT if answer.kind is int else FLOAT)
        else:
            types.append(to_value(result.type) if e.features.tensors else result.type)
    return types


def element_of_tuple(e: Evaluation, op: TorchOp) -> Attribute | None:
    value, index = (e.values[o] for o in op.operands)
    if isinstance(value, SSAValue) and isinstance(value.type, TupleType) and isinstance(index, Known):
        return value.type.data[index.value]
    return None
