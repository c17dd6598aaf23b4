"""Storages and the tensors that look at them: reading, writing, and what is linked to what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.ops import CopyToValueTensorOp, IfOp, IfYieldOp, OverwriteTensorContentsOp
from flambeau.dialects.torch.types import NonValueTensorType, TensorType, VTensorType, intern, to_value
from flambeau.infer.promotion import refuse_lossy_write
from flambeau.ir.locations import user_frame
from flambeau.passes.evaluate.state import Evaluation
from flambeau.passes.evaluate.strides import has_contiguous_strides, layout_of
from flambeau.passes.evaluate.values import Both, Cell, Link, List, Stale, Storage, View, Way
from flambeau.passes.evaluate.views import keeps_contiguous, put_back

Links = Callable[[Storage], Iterable[Link]]
"""The links of a storage, at some moment."""


def of_argument(e: Evaluation, value: SSAValue) -> Any:
    """Make the value of a function's argument: of a mutable tensor, a view of a storage of its own."""
    if not e.features.tensors or not isinstance(value.type, NonValueTensorType):
        return value
    content = e.t.value(CopyToValueTensorOp, (value,), to_value(value.type))
    storage = Storage(content, e.depth, argument=value, is_contiguous=True)
    e.visible.append(storage)
    return View(storage)


def wrapped(e: Evaluation, value: SSAValue, declared: Attribute) -> Any:
    """Wrap a new tensor as `declared`: a mutable one becomes a view of a new storage."""
    if e.features.tensors and isinstance(declared, NonValueTensorType):
        dense = is_contiguous(e, value)
        return View(Storage(value, e.depth, is_contiguous=dense, location=e.t.location))
    return value


def is_contiguous(e: Evaluation, value: Any) -> bool:
    if isinstance(value, View):
        if value.storage.is_contiguous and all(map(keeps_contiguous, value.steps)):
            return True
        layout = layout_of(value)
        return layout is not None and has_contiguous_strides(layout)
    if isinstance(value, List):
        return all(is_contiguous(e, v) for v in value.content)
    if isinstance(value, SSAValue) and isinstance(value.type, TensorType):
        return value in e.dense or value.owner is e.entry or isinstance(value.owner, LiteralOp)
    return True


def look(cell: Cell) -> None:
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


def read(e: Evaluation, view: View) -> SSAValue:
    """Read the contents that a tensor has now."""
    storage = view.storage
    look(storage)
    if view.cached is None or view.cached_from is not storage.content:
        value = storage.content
        for step in view.steps:
            (value,) = e.t.op(step.name, (value, *step.operands), (step.type,))
        if is_contiguous(e, view):
            e.dense.add(value)
        e.heap.set(view, "cached", value)
        e.heap.set(view, "cached_from", storage.content)
    assert view.cached is not None
    return view.cached


def write(e: Evaluation, view: View, value: SSAValue) -> None:
    """Give a tensor new contents."""
    look(view.storage)
    set_content(e, view.storage, with_part(e, view, converted(e, value, view.type)))


def converted(e: Evaluation, value: SSAValue, type_: Attribute) -> SSAValue:
    """Convert what is written to the dtype of the tensor that it is written to."""
    have, want = value.type, type_
    assert isinstance(have, TensorType)
    assert isinstance(want, TensorType)
    if None in (have.element_type, want.element_type) or have.element_type == want.element_type:
        return value
    refuse_lossy_write(have.dtype, want.dtype)
    t = e.t
    false, none = t.constant(False), t.constant(None)
    operands = (value, t.constant(want.dtype), false, false, none)
    return t.op("aten.to.dtype", operands, (intern(VTensorType, (have.shape, want.element_type)),))[0]


def with_part(e: Evaluation, view: View, value: SSAValue) -> SSAValue:
    """Build the contents of a storage in which the part that `view` shows is `value`."""
    wholes = [view.storage.content]
    for step in view.steps[:-1]:
        wholes.append(e.t.op(step.name, (wholes[-1], *step.operands), (step.type,))[0])
    for whole, step in zip(reversed(wholes), reversed(view.steps), strict=False):
        value = put_back(e.t, whole, step, e.t.cast(value, step.type))
    return e.t.cast(value, view.storage.content.type) if view.steps else value


def set_content(e: Evaluation, cell: Cell, content: Any, path: tuple[Cell, ...] = ()) -> None:
    """Change a cell, and what is linked to it, directly or by way of others."""
    e.heap.set(cell, "content", content)
    if isinstance(cell, Storage) and cell.argument is not None:
        value = e.t.cast(content, to_value(cell.argument.type))
        e.t.emit(OverwriteTensorContentsOp, (value, cell.argument))
    for link in cell.links:
        if link.other not in path:
            follow(e, cell, link, (*path, cell))


def follow(e: Evaluation, written: Cell, link: Link, path: tuple[Cell, ...]) -> None:
    """Do to one side of a link what was done to the other."""
    other, view = link.other, link.view
    if link.condition is None or view is None or not isinstance(written, Storage):
        spoil(e, other, Stale(e.t.location, link.location), path)
        return
    if view.storage is written:
        new = choose(e, link.condition, lambda: read(e, View(view.storage, view.steps)), other.content)
    else:
        content = written.content
        new = choose(e, link.condition, lambda: with_part(e, view, content), other.content)
    set_content(e, other, new, path)


def spoil(e: Evaluation, cell: Cell, why: Stale, written: tuple[Cell, ...]) -> None:
    """Mark a cell, and all cells that may be the same, as stale: nobody may read them any more.

    Not those that were `written`, whose contents are known.
    """
    if cell.stale is None and cell not in written:
        e.heap.set(cell, "stale", why)
        for link in cell.links:
            spoil(e, link.other, why, written)


def choose(e: Evaluation, flag: SSAValue, compute: Callable[[], SSAValue], otherwise: SSAValue) -> SSAValue:
    """Choose between two values by a flag of the run time."""
    mark, blocks = e.heap.mark(), (Block(), Block())
    type_ = otherwise.type
    with e.inside(blocks[0]):
        e.t.emit(IfYieldOp, (e.t.cast(compute(), type_),))
    e.heap.undo(mark)
    with e.inside(blocks[1]):
        e.t.emit(IfYieldOp, (otherwise,))
    return e.t.emit(IfOp, (flag,), (type_,), regions=[Region(b) for b in blocks]).results[0]


def link_storages(e: Evaluation, a: Cell, b: Cell, condition: SSAValue | None = None, view: View | None = None) -> None:
    """Record that two storages may be one from now on."""
    here = e.t.location
    e.heap.set(a, "links", (*a.links, Link(b, condition, view, here)))
    e.heap.set(b, "links", (*b.links, Link(a, condition, view, here)))


def reach(storage: Storage, limit: int, links: Links = attrgetter("links")) -> Iterator[tuple[Storage, Way | None]]:
    """Find the storages outside (of at most `limit` regions) that one inside may be, directly or by way of others.

    With each, when and how it is that storage; None where the program cannot tell.
    """
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
                yield other, Way(Both(together), view) if together is not None and view is not None else None
            else:
                todo.append(((*path, other), together if view is not None and not view.steps else None))


def _place(location: Attribute, cell: Cell | None = None) -> str:
    frame = user_frame(location)
    if frame is None and isinstance(cell, Storage) and isinstance(cell.content.owner, Block):
        return f"the argument {cell.content.name_hint!r}"
    if frame is None and isinstance(cell, Storage) and cell.argument is not None:
        return f"the argument {cell.argument.name_hint!r}"
    if frame is None:
        return "a value without a source line"
    return f"`{frame.source}` ({frame})" if frame.source else str(frame)
