"""MaximizeValueSemantics: tensors that can be written become values.

Note [Cells and views]. Every mutable tensor is a view of a cell: the storage that its alias set shares. A cell has a
current value; a view is the chain of view ops from the cell to the tensor. Walking a block in order, a read applies the
chain to the cell's current value, and a write goes back up the chain: each view op has an inverse that puts a part into
the whole (`slice` has `slice_scatter`, `transpose` has itself). What comes out has no writes and means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, diagnostic_for
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    ListConstructOp,
    ListUnpackOp,
    NonValueTensorLiteralOp,
    OverwriteTensorContentsOp,
    TorchOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.types import INT, ListType, NonValueTensorType, TensorType, to_value
from flambeau.ir.builder import erase


@dataclass
class Cell:
    """The storage of one alias set."""

    value: SSAValue
    version: int = 0
    argument: SSAValue | None = None
    """The function argument that this storage belongs to, if the caller can see it."""


@dataclass
class Step:
    """One view op: how to look at a part of a tensor."""

    name: str
    operands: tuple[SSAValue, ...]
    """The op's operands after the tensor."""
    type: Attribute
    """The value type of the part."""


@dataclass
class View:
    """A mutable tensor: a cell and the way from it."""

    cell: Cell
    steps: tuple[Step, ...] = ()
    cached: SSAValue | None = None
    cached_version: int = -1


@dataclass
class _Rewrite:
    emitter: TorchEmitter
    views: dict[SSAValue, View] = field(default_factory=dict)
    parts: dict[SSAValue, list[View]] = field(default_factory=dict)
    """Lists of views: what `split` gives before it is unpacked."""
    problems: list[Diagnostic] = field(default_factory=list)

    def read(self, view: View) -> SSAValue:
        if view.cached is None or view.cached_version != view.cell.version:
            value = view.cell.value
            for step in view.steps:
                (value,) = self.emitter.op(step.name, (value, *step.operands), (step.type,))
            view.cached, view.cached_version = value, view.cell.version
        return view.cached

    def write(self, view: View, value: SSAValue) -> None:
        wholes = [view.cell.value]
        for step in view.steps[:-1]:
            wholes.append(self.emitter.op(step.name, (wholes[-1], *step.operands), (step.type,))[0])
        for whole, step in zip(reversed(wholes), reversed(view.steps), strict=False):
            value = put_back(self.emitter, whole, step, value)
        view.cell.value = value
        view.cell.version += 1


Inverse = Callable[[TorchEmitter, SSAValue, Step, SSAValue], SSAValue]


def _scatter(name: str) -> Inverse:
    def inverse(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
        return t.op(name, (whole, part, *step.operands), (whole.type,))[0]

    return inverse


def _again(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    """The view op is its own inverse."""
    return t.op(step.name, (part, *step.operands), (whole.type,))[0]


def _other(name: str) -> Inverse:
    def inverse(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
        return t.op(name, (part,), (whole.type,))[0]

    return inverse


def _reshape(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    assert isinstance(whole.type, TensorType)
    sizes = [
        d if d is not None else t.op("aten.size.int", (whole, t.constant(i)), (INT,))[0]
        for i, d in enumerate(whole.type.shape or ())
    ]
    return t.op("aten.view", (part, t.ints(sizes)), (whole.type,))[0]


def _permute(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    order = constant_list(step.operands[0])
    rank = len(order)
    inverse = [0] * rank
    for i, d in enumerate(order):
        inverse[d % rank] = i
    return t.op("aten.permute", (part, t.ints(inverse)), (whole.type,))[0]


def _swapped(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    source, destination = step.operands
    return t.op(step.name, (part, destination, source), (whole.type,))[0]


def _whole(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    return part


def _same_size_only(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    if whole.type != part.type:
        raise NotImplementedError
    return part


INVERSES: dict[str, Inverse] = {
    "aten.slice.Tensor": _scatter("aten.slice_scatter"),
    "aten.select.int": _scatter("aten.select_scatter"),
    "aten.diagonal": _scatter("aten.diagonal_scatter"),
    "aten.as_strided": _scatter("aten.as_strided_scatter"),
    "aten.transpose.int": _again, "aten.t": _again, "aten.numpy_T": _again, "aten.swapaxes": _again,
    "aten.swapdims": _again, "aten.mT": _again, "aten.conj": _again, "aten._conj": _again,
    "aten.permute": _permute, "aten.movedim.int": _swapped, "aten.moveaxis.int": _swapped,
    "aten.movedim.intlist": _swapped,
    "aten.view": _reshape, "aten.reshape": _reshape, "aten._unsafe_view": _reshape, "aten.flatten.using_ints": _reshape,
    "aten.unflatten.int": _reshape, "aten.unsqueeze": _reshape, "aten.squeeze": _reshape, "aten.squeeze.dim": _reshape,
    "aten.squeeze.dims": _reshape, "aten.view_as": _reshape, "aten.reshape_as": _reshape,
    "aten._reshape_alias": _reshape,
    "aten.view_as_real": _other("aten.view_as_complex"), "aten.view_as_complex": _other("aten.view_as_real"),
    "aten.detach": _whole, "aten.alias": _whole, "aten.contiguous": _whole, "aten.to.dtype": _whole,
    "aten.to.dtype_layout": _whole, "aten.to.device": _whole, "aten.to.other": _whole, "aten.lift_fresh": _whole,
    "aten.dropout": _whole, "aten.expand": _same_size_only, "aten.expand_as": _same_size_only,
    "aten.broadcast_to": _same_size_only,
}  # fmt: skip
"""How to write through each view op."""


def put_back(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    """The whole with a part replaced."""
    inverse = INVERSES.get(step.name)
    if inverse is None:
        raise NotImplementedError
    return inverse(t, whole, step, part)


def constant_list(value: SSAValue) -> list[int]:
    """A list of int constants as Python ints."""
    assert isinstance(value.owner, ListConstructOp)
    return [v.owner.python_value for v in value.owner.operands]  # type: ignore[union-attr]


def maximize_value_semantics(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    problems: list[Diagnostic] = []
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.body.blocks:
            for block in function.body.blocks:
                problems += _rewrite_block(block)
    if problems:
        raise CompileError(problems, summary="writes that cannot be expressed as values")
    return module


def _rewrite_block(block: Block) -> list[Diagnostic]:
    state = _Rewrite(TorchEmitter(block))
    dead: list[Operation] = []
    for argument in block.args:
        if isinstance(argument.type, NonValueTensorType) and argument.uses:
            state.emitter.before = block.first_op
            value = state.emitter.value(CopyToValueTensorOp, (argument,), to_value(argument.type))
            state.views[argument] = View(Cell(value, argument=argument))
            dead_start = value.owner
            assert isinstance(dead_start, Operation)
    op = block.first_op
    while op is not None:
        following = op.next_op
        state.emitter.before, state.emitter.location = op, op.location
        try:
            if _rewrite_op(op, state):
                dead.append(op)
        except NotImplementedError:
            state.problems.append(_cannot_write(op, state))
        op = following
    if state.problems:
        return state.problems
    for old in reversed(dead):
        erase(old)
    return state.problems


def _rewrite_op(op: Operation, state: _Rewrite) -> bool:
    """Rewrite an op that deals with mutable tensors; True when it is no longer needed."""
    views = state.views
    if isinstance(op, CopyToNonValueTensorOp):
        views[op.results[0]] = View(Cell(op.operands[0]))
        return True
    if isinstance(op, NonValueTensorLiteralOp):
        literal = state.emitter.value(ValueTensorLiteralOp, (), to_value(op.results[0].type), {"value": op.value})
        views[op.results[0]] = View(Cell(literal))
        return True
    if isinstance(op, CopyToValueTensorOp) and op.operands[0] in views:
        view = views[op.operands[0]]
        if (
            view.cell.argument is not None
            and not view.steps
            and view.cell.version == 0
            and view.cell.value is op.results[0]
        ):
            return False
        op.results[0].replace_all_uses_with(state.read(view))
        return True
    if isinstance(op, OverwriteTensorContentsOp) and op.operands[1] in views:
        view = views[op.operands[1]]
        state.write(view, op.operands[0])
        if view.cell.argument is not None:
            state.emitter.emit(OverwriteTensorContentsOp, (view.cell.value, view.cell.argument))
        return True
    if isinstance(op, ListUnpackOp) and op.operands[0] in state.parts:
        for result, part in zip(op.results, state.parts[op.operands[0]], strict=True):
            views[result] = part
        return True
    if isinstance(op, TorchOp) and op.schema is not None and op.schema.is_view and op.operands[0] in views:
        source = views[op.operands[0]]
        rest = tuple(state.read(views[o]) if o in views else o for o in op.operands[1:])
        if isinstance(op.results[0].type, ListType):
            state.parts[op.results[0]] = _split(op, source, rest, state.emitter)
        else:
            step = Step(op.overload, rest, to_value(op.results[0].type))
            views[op.results[0]] = View(source.cell, (*source.steps, step))
        return True
    for i, operand in enumerate(op.operands):
        if operand in views and views[operand].cell.argument is not operand:
            # Whoever else looks at a mutable tensor here (a return, say) gets a tensor with its contents.
            value = state.read(views[operand])
            op.operands[i] = state.emitter.value(CopyToNonValueTensorOp, (value,), operand.type)
    return False


def _split(op: TorchOp, source: View, rest: Sequence[SSAValue], t: TorchEmitter) -> list[View]:
    """`split`, `chunk`, `unbind` as one view for each part."""
    unpack = next((u.operation for u in op.results[0].uses if isinstance(u.operation, ListUnpackOp)), None)
    if unpack is None:
        raise NotImplementedError
    types = [to_value(r.type) for r in unpack.results]
    steps: list[Step] = []
    if op.overload == "aten.unbind.int":
        steps = [Step("aten.select.int", (rest[0], t.constant(i)), type_) for i, type_ in enumerate(types)]
    elif op.overload in ("aten.split.Tensor", "aten.chunk", "aten.split_with_sizes", "aten.split.sizes"):
        dim = rest[1]
        axis = dim.owner.python_value  # type: ignore[union-attr]
        start = 0
        for type_ in types:
            assert isinstance(type_, TensorType)
            size = (type_.shape or ())[axis]
            if size is None:
                raise NotImplementedError
            bounds = (dim, t.constant(start), t.constant(start + size), t.constant(1))
            steps.append(Step("aten.slice.Tensor", bounds, type_))
            start += size
    else:
        raise NotImplementedError
    return [View(source.cell, (*source.steps, step)) for step in steps]


def _cannot_write(op: Operation, state: _Rewrite) -> Diagnostic:
    view = next((state.views[o] for o in reversed(op.operands) if o in state.views), None)
    names = ", ".join(s.name for s in view.steps) if view is not None else op.name
    return diagnostic_for(
        op,
        "maximize value semantics",
        f"a write through {names} cannot be expressed on values",
        "Write to the base tensor, or clone() before writing.",
    )
