"""Tensors that can be written, as the evaluator sees them: storages, views, links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute, Block, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.constants import ConstantOp, LiteralOp
from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    ListUnpackOp,
    NonValueTensorLiteralOp,
    OverwriteTensorContentsOp,
    StaticInfoCastOp,
    TorchOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import (
    BOOL,
    INT,
    ListType,
    NonValueTensorType,
    TensorType,
    VTensorType,
    intern,
    to_value,
)
from flambeau.infer.promotion import refuse_lossy_write
from flambeau.ir.locations import user_frame
from flambeau.passes.evaluate.strides import is_contiguous, layout_of, viewed
from flambeau.passes.evaluate.values import Cell, Heap, Known, Link, List, Stale, Step, Storage, View
from flambeau.passes.evaluate.views import CASTS, MAY_COPY, keeps_contiguous, put_back

if TYPE_CHECKING:
    from flambeau.dialects.torch.emitter import TorchEmitter
    from flambeau.passes.evaluate.evaluator import Features


class Tensors:
    """The part of the evaluator that deals with tensors."""

    heap: Heap
    features: Features
    values: dict[SSAValue, Any]
    t: TorchEmitter
    depth: int
    entry: Block
    dense: set[SSAValue]
    visible: list[Storage]
    materialize: Callable[[Any], SSAValue]
    cast: Callable[[SSAValue, Attribute], SSAValue]
    choose: Callable[..., SSAValue]
    inferred: Callable[[Schema, Sequence[Any]], list[Any] | None]
    tensor_type: Callable[[Attribute, Any], Attribute]

    def argument(self, value: SSAValue) -> Any:
        """An argument of the function as a value."""
        if not self.features.tensors or not isinstance(value.type, NonValueTensorType):
            return value
        content = self.t.value(CopyToValueTensorOp, (value,), to_value(value.type))
        storage = Storage(content, self.depth, argument=value, is_contiguous=True)
        self.visible.append(storage)
        return View(storage)

    def wrapped(self, value: SSAValue, declared: Attribute) -> Any:
        """A new tensor as what the program declares it to be."""
        if self.features.tensors and isinstance(declared, NonValueTensorType):
            dense = self.is_contiguous(value)
            return View(Storage(value, self.depth, is_contiguous=dense, location=self.t.location))
        return value

    def view_type(self, view: View) -> Attribute:
        """The value type of a tensor."""
        type_: Attribute = view.steps[-1].type if view.steps else view.storage.content.type
        return type_

    def is_contiguous(self, value: Any) -> bool:
        if isinstance(value, View):
            if value.storage.is_contiguous and all(map(keeps_contiguous, value.steps)):
                return True
            layout = layout_of(value)
            return layout is not None and is_contiguous(layout)
        if isinstance(value, List):
            return all(map(self.is_contiguous, value.content))
        if isinstance(value, SSAValue) and isinstance(value.type, TensorType):
            return value in self.dense or value.owner is self.entry or isinstance(value.owner, LiteralOp)
        return True

    def look(self, cell: Cell) -> None:
        """Refuse to look at something that may have been written through an alias."""
        if cell.stale is not None:
            made = cell.location if isinstance(cell, Storage) else cell.stale.aliased_at
            raise Unsupported(
                "this value may have been written through an alias, and the program does not tell whether it was: "
                f"{_place(made, cell)} and {_place(cell.stale.aliased_at)} may be the same, and "
                f"{_place(cell.stale.written_at)} writes to one of them",
                "clone() one of the two before writing.",
                cell.stale.written_at,
            )

    def read(self, view: View) -> SSAValue:
        """The contents of a tensor, now."""
        storage = view.storage
        self.look(storage)
        if view.cached is None or view.cached_from is not storage.content:
            value = storage.content
            for step in view.steps:
                (value,) = self.t.op(step.name, (value, *step.operands), (step.type,))
            if self.is_contiguous(view):
                self.dense.add(value)
            self.heap.set(view, "cached", value)
            self.heap.set(view, "cached_from", storage.content)
        assert view.cached is not None
        return view.cached

    def write(self, view: View, value: SSAValue) -> None:
        """Give a tensor new contents."""
        self.look(view.storage)
        self.set_content(view.storage, self.with_part(view, self.converted(value, self.view_type(view))))

    def converted(self, value: SSAValue, type_: Attribute) -> SSAValue:
        """What is written, in the dtype of the tensor that it is written to."""
        have, want = value.type, type_
        assert isinstance(have, TensorType)
        assert isinstance(want, TensorType)
        if None in (have.element_type, want.element_type) or have.element_type == want.element_type:
            return value
        refuse_lossy_write(have.dtype, want.dtype)
        t = self.t
        false, none = t.constant(False), t.constant(None)
        operands = (value, t.constant(want.dtype), false, false, none)
        return t.op("aten.to.dtype", operands, (intern(VTensorType, (have.shape, want.element_type)),))[0]

    def with_part(self, view: View, value: SSAValue) -> SSAValue:
        """The whole of a storage with one view of it replaced."""
        wholes = [view.storage.content]
        for step in view.steps[:-1]:
            wholes.append(self.t.op(step.name, (wholes[-1], *step.operands), (step.type,))[0])
        for whole, step in zip(reversed(wholes), reversed(view.steps), strict=False):
            value = put_back(self.t, whole, step, self.cast(value, step.type))
        return self.cast(value, view.storage.content.type) if view.steps else value

    def set_content(self, cell: Cell, content: Any, path: tuple[Cell, ...] = ()) -> None:
        """Change a cell, and what is linked to it, directly or by way of others."""
        self.heap.set(cell, "content", content)
        if isinstance(cell, Storage) and cell.argument is not None:
            value = self.cast(content, to_value(cell.argument.type))
            self.t.emit(OverwriteTensorContentsOp, (value, cell.argument))
        for link in cell.links:
            if link.other not in path:
                self.follow(cell, link, (*path, cell))

    def follow(self, written: Cell, link: Link, path: tuple[Cell, ...]) -> None:
        """Do to one side of a link what was done to the other."""
        other, view = link.other, link.view
        if link.condition is None or view is None or not isinstance(written, Storage):
            self.spoil(other, Stale(self.t.location, link.location))
            return
        if view.storage is written:
            new = self.choose(link.condition, lambda: self.read(View(view.storage, view.steps)), other.content)
        else:
            content = written.content
            new = self.choose(link.condition, lambda: self.with_part(view, content), other.content)
        self.set_content(other, new, path)

    def spoil(self, cell: Cell, why: Stale) -> None:
        """Nobody may look at a cell any more, nor at what it may be."""
        if cell.stale is None:
            self.heap.set(cell, "stale", why)
            for link in cell.links:
                self.spoil(link.other, why)

    def link(self, a: Storage, b: Storage, condition: SSAValue | None = None, view: View | None = None) -> None:
        """From now on, two storages may be one."""
        here = self.t.location
        self.heap.set(a, "links", (*a.links, Link(b, condition, view, here)))
        self.heap.set(b, "links", (*b.links, Link(a, condition, view, here)))

    def reach(self, storage: Storage, limit: int, links: Any = None) -> Iterator[tuple[Storage, Any, View | None]]:
        """The storages made outside (of at most `limit` regions) that one inside may be, directly or by way of others.

        With each, the flags that must all hold, and the view that it is then; None where the program cannot tell.
        """
        links = links or (lambda s: s.links)
        todo: list[tuple[tuple[Storage, ...], tuple[SSAValue, ...] | None]] = [((storage,), ())]
        while todo:
            path, flags = todo.pop()
            for link in links(path[-1]):
                other, view = link.other, link.view
                if other in path or not isinstance(other, Storage):
                    continue
                together: tuple[SSAValue, ...] | None = None
                if flags is not None and link.condition is not None and view is not None and view.storage is other:
                    together = (*flags, link.condition)
                if other.depth <= limit:
                    yield other, together, view if together is not None else None
                else:
                    todo.append(((*path, other), together if view is not None and not view.steps else None))

    def on_tensors(self, op: TorchOp) -> bool:
        """Evaluate an op that copies, writes or looks at a part; False for all others."""
        values = [self.values[o] for o in op.operands]
        if isinstance(op, CopyToNonValueTensorOp):
            content = self.materialize(values[0])
            self.values[op.results[0]] = self.wrapped(content, op.results[0].type)
            return True
        if isinstance(op, NonValueTensorLiteralOp):
            literal = self.t.value(ValueTensorLiteralOp, (), to_value(op.results[0].type), {"value": op.value})
            storage = Storage(literal, self.depth, is_contiguous=True, location=op.location)
            self.values[op.results[0]] = View(storage)
            return True
        if not values or not isinstance(values[0], View | SSAValue):
            return False
        first = values[0]
        if isinstance(op, CopyToValueTensorOp) and isinstance(first, View):
            self.values[op.results[0]] = self.read(first)
            return True
        if isinstance(op, OverwriteTensorContentsOp) and isinstance(values[1], View):
            new = self.materialize(first)
            self.write(values[1], new)
            return True
        if not isinstance(first, View):
            return False
        if isinstance(op, StaticInfoCastOp):
            self.values[op.results[0]] = first
            return True
        if op.overload in METADATA_WRITES:
            name = METADATA_WRITES[op.overload]
            answer = self.inferred_as(name, values)
            step = Step(name, tuple(map(self.materialize, values[1:])), self.tensor_type(op.results[0].type, answer))
            self.heap.set(first, "cached", None)
            self.heap.set(first, "steps", (*first.steps, step))
            self.values[op.results[0]] = first
            return True
        if op.schema is not None and op.schema.is_view:
            return self.view(op, op.schema, first, values)
        return False

    def inferred_as(self, name: str, values: Sequence[Any]) -> Any:
        schema = registry.schema(name)
        answers = self.inferred(schema, values) if schema is not None and self.features.infer else None
        return answers[0] if answers is not None else None

    def view(self, op: TorchOp, schema: Schema, source: View, values: Sequence[Any]) -> bool:
        """A view op on a tensor."""
        answers = self.inferred(schema, values) if self.features.infer else None
        result = op.results[0]
        normal = normal_form(self, schema.name, source, values)
        if normal is not None:
            schema, values = normal
        if isinstance(result.type, ListType):
            parts = self.parts(op, answers, source, values)
            self.values[result] = List(tuple(parts), self.depth, element_type=result.type.element_type)
            return True
        type_ = self.tensor_type(result.type, answers[0] if answers is not None else None)
        if schema.name in CASTS:
            have = self.view_type(source)
            assert isinstance(have, TensorType)
            assert isinstance(type_, TensorType)
            if (
                have.element_type == type_.element_type
                and have.element_type is not None
                and not _copies(schema, values)
            ):
                self.values[result] = source
                return True
            if _copies(schema, values) or (have.element_type is not None and type_.element_type is not None):
                return False
            # As the dtypes will have it.
            return self.perhaps_alias(op, schema, source, tuple(map(self.materialize, values[1:])), type_)
        rest = tuple(map(self.materialize, values[1:]))
        step = Step(schema.name, rest, type_)
        if schema.name in MAY_COPY:
            aliases = self.aliases(schema, source, type_)
            if aliases is False:
                return False
            if aliases is None:
                # As the strides will have it.
                return self.perhaps_alias(op, schema, source, rest, type_)
        if schema.name == "aten.contiguous":
            self.values[result] = source
            return True
        if schema.name in ("aten.detach", "aten.alias", "aten.lift_fresh"):
            self.values[result] = View(source.storage, source.steps)
            return True
        self.values[result] = View(source.storage, (*source.steps, step))
        return True

    def perhaps_alias(
        self, op: TorchOp, schema: Schema, source: View, rest: tuple[SSAValue, ...], type_: Attribute
    ) -> bool:
        """An op that gives an alias or a copy, and nothing tells which."""
        (value,) = self.t.op(schema.name, (self.read(source), *rest), (type_,))
        copy = Storage(value, self.depth, is_contiguous=True, location=op.location)
        self.link(copy, source.storage)
        self.values[op.results[0]] = View(copy)
        return True

    def aliases(self, schema: Schema, source: View, type_: Attribute) -> bool | None:
        """Whether `reshape` or `contiguous` gives an alias; None where that is not known."""
        layout = layout_of(source)
        if layout is None:
            return True if self.is_contiguous(source) else None
        if schema.name in ("aten.contiguous", "aten.to.memory_format"):
            return is_contiguous(layout)
        assert isinstance(type_, TensorType)
        if type_.shape is None or None in type_.shape:
            return True if is_contiguous(layout) else None
        return viewed(layout, type_.shape) is not None  # type: ignore[arg-type]

    def parts(self, op: TorchOp, answers: Any, source: View, values: Sequence[Any]) -> list[View]:
        """`split`, `chunk`, `unbind` as one view for each part."""
        t = self.t
        result = op.results[0]
        if answers is not None and isinstance(answers[0], list):
            types = [self.tensor_type(result.type.element_type, m) for m in answers[0]]  # type: ignore[attr-defined]
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
        self._check_parts(op.overload, source, dim, len(types), start)
        return [View(source.storage, (*source.steps, step)) for step in steps]

    def _check_parts(self, name: str, source: View, dim: int, count: int, total: int) -> None:
        """Check at run time that a dim whose size is not known is what its parts are: all of them, and no more."""
        t = self.t
        shape = getattr(self.view_type(source), "shape", None)
        if shape is None or shape[dim] is not None:
            return
        size = t.size_along(self.read(source), dim)
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

METADATA_WRITES = {
    "aten.t_": "aten.t", "aten.transpose_": "aten.transpose.int", "aten.squeeze_": "aten.squeeze",
    "aten.squeeze_.dim": "aten.squeeze.dim", "aten.squeeze_.dims": "aten.squeeze.dims",
    "aten.unsqueeze_": "aten.unsqueeze", "aten.swapaxes_": "aten.transpose.int",
    "aten.swapdims_": "aten.transpose.int", "aten.detach_": "aten.detach",
}  # fmt: skip
"""In-place ops that change how a tensor looks at its storage, and the views that they make of it."""


def _part_size(name: str, values: Sequence[Any], i: int, dim: int, type_: Attribute) -> int:
    """The size of one of the parts that a tensor is split into."""
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


def normal_form(e: Any, name: str, source: View, values: Sequence[Any]) -> tuple[Schema, list[Any]] | None:
    """A view op in terms of a simpler one; None where it is simple already."""
    shape = getattr(e.view_type(source), "shape", None)
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


def _plus(e: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Known) and isinstance(b, Known):
        return Known(a.value + b.value)
    return e.t.op("aten.add.int", (e.materialize(a), e.materialize(b)), (INT,))[0]


def _copies(schema: Schema, values: Sequence[Any]) -> bool:
    at = schema.index.get("copy")
    return at is not None and values[at] != Known(False)


def _place(location: Attribute, cell: Cell | None = None) -> str:
    frame = user_frame(location)
    if frame is None and isinstance(cell, Storage) and isinstance(cell.content.owner, Block):
        return f"the argument {cell.content.name_hint!r}"
    if frame is None and isinstance(cell, Storage) and cell.argument is not None:
        return f"the argument {cell.argument.name_hint!r}"
    if frame is None:
        return "a value without a source line"
    return f"`{frame.source}` ({frame})" if frame.source else str(frame)


def updates_statistics(op: TorchOp) -> bool:
    """Whether this is a norm that may write its running statistics: PyTorch's schema does not say that it does."""
    if op.overload != "aten.batch_norm" or len(op.operands) != 9:
        return False
    training = op.operands[5].owner
    return not (isinstance(training, ConstantOp) and training.python_value is False)
