"""Ops that copy tensors, write to them, or look at a part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.constants import NonValueTensorLiteralOp
from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    ListUnpackOp,
    OverwriteTensorContentsOp,
    StaticInfoCastOp,
    TorchOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import BOOL, INT, ListType, TensorType, to_value
from flambeau.infer.builder import python_value
from flambeau.passes.evaluate.inference import inferred, tensor_type
from flambeau.passes.evaluate.operands import materialize
from flambeau.passes.evaluate.state import Evaluation, new_list
from flambeau.passes.evaluate.storages import is_contiguous, link_storages, read, wrapped, write
from flambeau.passes.evaluate.strides import has_contiguous_strides, layout_of, viewed
from flambeau.passes.evaluate.values import Known, List, Step, Storage, View
from flambeau.passes.evaluate.views import CASTS, INVERSES, MAY_COPY


def evaluate_on_tensors(e: Evaluation, op: TorchOp) -> bool:
    """Evaluate an op that copies, writes or looks at a part; False for all others, which have to stay."""
    values = [e.values[o] for o in op.operands]
    if (
        isinstance(op, OverwriteTensorContentsOp)
        and isinstance(values[0], View | SSAValue)
        and isinstance(values[1], View)
    ):
        write(e, values[1], materialize(e, values[0]))
        return True
    found = _tensor(e, op, values)
    if found is None:
        return False
    e.values[op.results[0]] = found
    return True


def _tensor(e: Evaluation, op: TorchOp, values: Sequence[Any]) -> View | List | SSAValue | None:
    """Find the tensor, or list of tensors, that a copy, a literal or a view op gives; None for other ops."""
    if isinstance(op, CopyToNonValueTensorOp):
        copy: View | SSAValue = wrapped(e, materialize(e, values[0]), op.results[0].type)
        return copy
    if isinstance(op, NonValueTensorLiteralOp):
        literal = e.t.value(ValueTensorLiteralOp, (), to_value(op.results[0].type), {"value": op.value})
        return View(Storage(literal, e.depth, is_contiguous=True, location=op.location))
    source = values[0] if values else None
    if not isinstance(source, View):
        return None
    if isinstance(op, CopyToValueTensorOp):
        return read(e, source)
    if isinstance(op, StaticInfoCastOp):
        return source
    if (name := metadata_writes().get(op.overload)) is not None:
        answers = inferred(e, _schema(name), values) if e.features.infer else None
        type_ = tensor_type(e, op.results[0].type, answers[0] if answers is not None else None)
        step = Step(name, tuple(materialize(e, v) for v in values[1:]), type_)
        e.heap.set(source, "cached", None)
        e.heap.set(source, "steps", (*source.steps, step))
        return source
    if op.schema is not None and op.schema.is_view:
        return _view(e, op, op.schema, source, values)
    return None


def _view(e: Evaluation, op: TorchOp, schema: Schema, source: View, values: Sequence[Any]) -> View | List | None:
    """Find the view that a view op gives; None where it gives a copy."""
    answers = inferred(e, schema, values) if e.features.infer else None
    result = op.results[0]
    normal = normal_form(e, schema.name, source, values)
    if normal is not None:
        schema, values = normal
    if isinstance(result.type, ListType):
        return new_list(e, views_of_parts(e, op, answers, source, values), result.type)
    type_ = tensor_type(e, result.type, answers[0] if answers is not None else None)
    aliases: bool | None = True
    if schema.name in CASTS:
        aliases = _is_same_dtype(source.type, type_) if not _copies(schema, values) else False
        if aliases:
            return source
    elif schema.name in MAY_COPY:
        aliases = gives_alias(e, schema, source, type_)
    if aliases is False:
        return None
    rest = tuple(materialize(e, v) for v in values[1:])
    if aliases is None:
        # As the dtypes or the strides will have it, which nothing here tells: a new storage that may be the old one.
        (value,) = e.t.op(schema.name, (read(e, source), *rest), (type_,))
        copy = Storage(value, e.depth, is_contiguous=True, location=op.location)
        link_storages(e, copy, source.storage)
        return View(copy)
    if schema.name == "aten.contiguous":
        return source
    if schema.name in ("aten.detach", "aten.alias", "aten.lift_fresh"):
        return View(source.storage, source.steps)
    return View(source.storage, (*source.steps, Step(schema.name, rest, type_)))


def _is_same_dtype(a: Attribute, b: Attribute) -> bool | None:
    """Tell whether two tensors have the same dtype; None where one is not known."""
    assert isinstance(a, TensorType)
    assert isinstance(b, TensorType)
    return None if None in (a.element_type, b.element_type) else a.element_type == b.element_type


def gives_alias(e: Evaluation, schema: Schema, source: View, type_: Attribute) -> bool | None:
    """Tell whether `reshape` or `contiguous` gives an alias; None where that is not known."""
    layout = layout_of(source)
    if layout is None:
        return True if is_contiguous(e, source) else None
    if schema.name in ("aten.contiguous", "aten.to.memory_format"):
        return has_contiguous_strides(layout)
    assert isinstance(type_, TensorType)
    if type_.shape is None or None in type_.shape:
        return True if has_contiguous_strides(layout) else None
    return viewed(layout, type_.shape) is not None  # type: ignore[arg-type]


def views_of_parts(e: Evaluation, op: TorchOp, answers: Any, source: View, values: Sequence[Any]) -> list[View]:
    """Express `split`, `chunk` or `unbind` as one view for each part."""
    t = e.t
    result = op.results[0]
    if answers is not None and isinstance(answers[0], list):
        types = [tensor_type(e, result.type.element_type, m) for m in answers[0]]  # type: ignore[attr-defined]
    else:
        unpack = next((u.operation for u in result.uses if isinstance(u.operation, ListUnpackOp)), None)
        if unpack is None:
            raise Unsupported("the number of parts is not known")
        types = [to_value(r.type) for r in unpack.results]
    dim_at = _PART_DIM.get(op.overload)
    if dim_at is None or not isinstance(values[dim_at], Known):
        raise Unsupported("this op gives several views, which are not followed")
    dim = values[dim_at].value
    steps: list[Step] = []
    start = 0
    for i, type_ in enumerate(types):
        if op.overload == "aten.unbind.int":
            steps.append(Step("aten.select.int", (t.constant(dim), t.constant(i)), type_))
            continue
        size = _part_size(op.overload, values, i, dim, type_)
        bounds = (t.constant(dim), t.constant(start), t.constant(start + size), t.constant(1))
        steps.append(Step("aten.slice.Tensor", bounds, type_))
        start += size
    _check_parts(e, op.overload, source, dim, len(types), start)
    return [View(source.storage, (*source.steps, step)) for step in steps]


def _check_parts(e: Evaluation, name: str, source: View, dim: int, count: int, total: int) -> None:
    """Check at run time that a dim whose size is not known is what its parts are: all of them, and no more."""
    t = e.t
    shape = getattr(source.type, "shape", None)
    if shape is None or shape[dim] is not None:
        return
    size = t.size_along(read(e, source), dim)
    bounds = {"aten.eq.int": count if name == "aten.unbind.int" else total}
    if name == "aten.split.Tensor":  # The last part may be smaller, and is the only one that may be empty.
        bounds = {"aten.le.int": total, "aten.gt.int": total - total // count if count > 1 else -1}
    for relation, bound in bounds.items():
        (holds,) = t.op(relation, (size, t.constant(bound)), (BOOL,))
        t.require(holds, f"dimension {dim} does not have the size of the parts that it is split into")


_PART_DIM = {
    "aten.unbind.int": 1, "aten.split.Tensor": 2, "aten.split_with_sizes": 2, "aten.split.sizes": 2, "aten.chunk": 2,
}  # fmt: skip
"""The position of the dim along which an op gives parts."""


@cache
def metadata_writes() -> dict[str, str]:
    """Map in-place ops that change a tensor's view of its storage to the views that they make of it.

    Only those that a write can go through; `as_strided` is none of another view, but of the storage itself.
    """
    views = registry.inplace_views()
    return {name: view for name, view in views.items() if view in INVERSES and view != "aten.as_strided"}


def _part_size(name: str, values: Sequence[Any], i: int, dim: int, type_: Attribute) -> int:
    """Compute the size of one of the parts that a tensor is split into."""
    given = values[1]
    if name == "aten.split.Tensor" and isinstance(given, Known):
        return int(given.value)
    if name in ("aten.split_with_sizes", "aten.split.sizes") and isinstance(given, List):
        part = given.content[i] if i < len(given.content) else None
        if isinstance(part, Known):
            return int(part.value)
    shape = type_.shape if isinstance(type_, TensorType) else None
    size = shape[dim] if shape is not None else None
    if size is None:
        raise Unsupported("a part whose size is not known")
    return size


def normal_form(e: Evaluation, name: str, source: View, values: Sequence[Any]) -> tuple[Schema, list[Any]] | None:
    """Express a view op by a simpler one; None where it is simple already."""
    shape = getattr(source.type, "shape", None)
    if name == "aten.narrow":
        _, dim, start, length = values
        if isinstance(start, Known) and start.value < 0:
            size = shape[dim.value] if shape is not None and isinstance(dim, Known) else None
            if size is None:
                return None
            start = Known(start.value + size)
        return _schema("aten.slice.Tensor"), [source, dim, start, _plus(e, start, length), Known(1)]
    if name in ("aten.movedim.int", "aten.moveaxis.int") and shape is not None:
        _, old, new = values
        if isinstance(old, Known) and isinstance(new, Known):
            order = [d for d in range(len(shape)) if d != old.value % len(shape)]
            if shape:
                order.insert(new.value % len(shape), old.value % len(shape))
            dims = List(tuple(map(Known, order)), e.depth, element_type=INT)
            return _schema("aten.permute"), [source, dims]
    return None


def _schema(name: str) -> Schema:
    found = registry.schema(name)
    assert found is not None
    return found


def _plus(e: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, Known) and isinstance(b, Known):
        return Known(a.value + b.value)
    return e.t.op("aten.add.int", (materialize(e, a), materialize(e, b)), (INT,))[0]


def _copies(schema: Schema, values: Sequence[Any]) -> bool:
    at = schema.index.get("copy")
    return at is not None and values[at] != Known(False)


def updates_statistics(op: TorchOp) -> bool:
    """Tell whether a norm may write its running statistics: PyTorch's schema does not say that it does."""
    schema = op.schema
    if op.overload != "aten.batch_norm" or schema is None or len(op.operands) != len(schema.arguments):
        return False
    flag = registry.TRAINING_FLAGS[op.overload]
    assert flag is not None
    return python_value(op.operands[schema.index[flag]]) is not False
