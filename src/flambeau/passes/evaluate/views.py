"""Writing through views: each view op has an inverse that puts a part back into the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.types import INT, TensorType
from flambeau.infer.builder import python_value
from flambeau.passes.evaluate.values import Step

Inverse = Callable[[TorchEmitter, SSAValue, Step, SSAValue], SSAValue]


def _scatter(name: str) -> Inverse:
    def inverse(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
        return t.op(name, (whole, part, *step.operands), (whole.type,))[0]

    return inverse


def _again(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    """Apply the view op once more: it is its own inverse."""
    return t.op(step.name, (part, *step.operands), (whole.type,))[0]


def _other(name: str) -> Inverse:
    def inverse(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
        return t.op(name, (part,), (whole.type,))[0]

    return inverse


def _reshape(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    return t.op("aten.view", (part, sizes(t, whole)), (whole.type,))[0]


def sizes(t: TorchEmitter, whole: SSAValue) -> SSAValue:
    """List the sizes of a tensor."""
    assert isinstance(whole.type, TensorType)
    if whole.type.shape is None:
        raise Unsupported("a write through a view of a tensor whose rank is not known")
    return t.ints(
        [
            d if d is not None else t.op("aten.size.int", (whole, t.constant(i)), (INT,))[0]
            for i, d in enumerate(whole.type.shape)
        ]
    )


def _permute(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    order = python_value(step.operands[0])
    if not is_constant(order):
        raise Unsupported("a write through a view whose dims are not constants")
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
    if whole.type != part.type or not isinstance(whole.type, TensorType) or whole.type.shape is None:
        raise Unsupported(
            f"a write through {step.name} cannot be expressed on values: several of its elements are one in memory",
            "Write to the base tensor, or clone() before writing.",
        )
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
    "aten.to.prim_Device": _whole, "aten.to.prim_dtype": _whole, "aten.type_as": _whole,
    "aten.expand": _same_size_only, "aten.expand_as": _same_size_only, "aten.broadcast_to": _same_size_only,
}  # fmt: skip
"""How to write through each view op."""

RESHAPES = frozenset(name for name, inverse in INVERSES.items() if inverse is _reshape)
"""The views that keep the order of the elements: a view of something contiguous is contiguous again."""

MAY_COPY = frozenset(
    {"aten.contiguous", "aten.reshape", "aten.flatten.using_ints", "aten.reshape_as", "aten.to.memory_format"}
)
"""They give an alias of a contiguous tensor, and perhaps a copy of another."""

CASTS = frozenset(name for name, inverse in INVERSES.items() if name.startswith("aten.to.") or name == "aten.type_as")
"""They give the tensor itself where it has the wanted dtype already, and a copy otherwise."""


def put_back(t: TorchEmitter, whole: SSAValue, step: Step, part: SSAValue) -> SSAValue:
    """Replace the part of `whole` that the view op `step` shows by `part`."""
    inverse = INVERSES.get(step.name)
    if inverse is None:
        raise Unsupported(
            f"a write through {step.name} cannot be expressed on values",
            "Write to the base tensor, or clone() before writing.",
        )
    return inverse(t, whole, step, part)


def keeps_contiguous(step: Step) -> bool:
    """Tell whether the view of a contiguous tensor is contiguous."""
    if step.name in RESHAPES or INVERSES.get(step.name) is _whole:
        return True
    if step.name in ("aten.select.int", "aten.slice.Tensor"):
        constants = [python_value(o) for o in step.operands]
        return constants[0] == 0 and (step.name == "aten.select.int" or constants[3] == 1)
    return False


def is_constant(value: Any) -> bool:
    """Tell whether what `python_value` gives is known at compile time."""
    return all(map(is_constant, value)) if isinstance(value, list) else not isinstance(value, SSAValue)
