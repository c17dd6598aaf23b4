"""Values of bodies on whole tensors: what their types say, and what stands for some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.ir import dtypes

T = TypeVar("T")

POSITION = dtypes.int64
"""The dtype of positions."""

KINDS = {
    "arith.addf": "add", "arith.addi": "add", "complex.add": "add", "arith.mulf": "mul", "arith.muli": "mul",
    "complex.mul": "mul", "arith.maximumf": "max", "arith.maxsi": "max", "arith.maxui": "maxu",
    "arith.minimumf": "min", "arith.minsi": "min", "arith.minui": "minu", "arith.andi": "and", "arith.ori": "or",
    "arith.xori": "xor",
}  # fmt: skip
"""Ops that combine an accumulator with a term."""


def by_identity(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Remember what a function says about an attribute: types are interned, and to hash one takes long."""
    memo: dict[int, tuple[Attribute, T]] = {}

    def look(attr: Any) -> T:
        found = memo.get(id(attr))
        if found is None or found[0] is not attr:
            found = memo[id(attr)] = (attr, function(attr))
        return found[1]

    return look


@by_identity
def shape_in(type_: Any) -> tuple[int | None, ...]:
    """Return the shape of a tensor type; None where it is dynamic."""
    assert isinstance(type_, TensorType)
    return tuple(None if d < 0 else d for d in type_.get_shape())


def shape_of(value: SSAValue) -> tuple[int | None, ...]:
    """Return the shape of a tensor value; None where it is dynamic."""
    return shape_in(value.type)


def element_of(value: SSAValue) -> Any:
    """Return the element type of a tensor value."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    return type_.element_type


def sizes_meet(shapes: Sequence[tuple[int | None, ...]]) -> bool:
    """Tell whether along some dim a dynamic size meets another that is not 1: they must be equal at run time."""
    return any(None in sizes and len(sizes) - sizes.count(1) > 1 for sizes in zip(*shapes, strict=True))


def is_wide(value: Any) -> bool:
    """Tell whether a value is a tensor that stands for a scalar of a body."""
    return isinstance(value, SSAValue) and isinstance(value.type, TensorType)


class Placeholder(Operation):
    """Gives a value that stands for something until another op needs it, or for good. It is in no block."""

    name = "flambeau.placeholder"

    def __init__(self, type_: Attribute) -> None:
        super().__init__(result_types=(type_,))

    @property
    def value(self) -> SSAValue:
        return self.results[0]


@dataclass
class Reduction:
    """What a body does with its accumulator: combines it with a term."""

    kind: str
    term: Any


class Accumulator(Placeholder):
    """The accumulator of a reduction: as its body gets it, or what the body has made of it."""

    def __init__(self, type_: Attribute, reduction: Reduction | None = None) -> None:
        super().__init__(type_)
        self.reduction = reduction


def reduction_of(value: SSAValue) -> Reduction | None:
    """Return the reduction that a body applied to its accumulator; None if the value is no accumulator."""
    return value.owner.reduction if isinstance(value.owner, Accumulator) else None
