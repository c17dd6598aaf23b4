"""What two paths through a program have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, SSAValue
from xdsl.traits import is_side_effect_free

from flambeau.dialects.torch.types import NONE, OptionalType
from flambeau.passes.evaluate.values import Known, List, Maybe, Step, Tuple, Uninitialized, View


def same_steps(a: Sequence[Step], b: Sequence[Step]) -> bool:
    """Tell whether two chains of view ops from a storage are the same."""
    return len(a) == len(b) and all(x.same(y) for x, y in zip(a, b, strict=True))


def is_inside(value: SSAValue, block: Block) -> bool:
    """Tell whether a value is made in a block or in a region of one of its ops."""
    owner = value.owner
    at: Block | None = owner if isinstance(owner, Block) else owner.parent
    while at is not None:
        if at is block:
            return True
        around = at.parent_op()
        at = around.parent if around is not None else None
    return False


def is_outside(view: View, block: Block) -> bool:
    """Tell whether a tensor's view ops can be applied outside a block too."""
    return not any(is_inside(o, block) for step in view.steps for o in step.operands)


def has_no_effect(block: Block) -> bool:
    """Tell whether nothing but the results of a block matters."""
    return all(is_side_effect_free(op) or op is block.last_op for op in block.ops)


def like(value: Any, other: Any) -> Any:
    """Bring a value into the form of another: None and what nobody looks at take the other's structure."""
    if isinstance(other, Maybe) and not isinstance(value, Maybe):
        if value == Known(None):
            return Maybe(Known(False), like(Uninitialized(NONE), other.value))
        return Maybe(Known(True), value)
    if value == Known(None) and not isinstance(other, Uninitialized) and other != value and not _is_optional(other):
        return Maybe(Known(False), like(Uninitialized(NONE), other))
    if other == Known(None) and not isinstance(value, Uninitialized | Maybe) and value != other:
        return value if _is_optional(value) else Maybe(Known(True), value)
    if not isinstance(value, Uninitialized):
        return value
    if isinstance(other, Tuple):
        return Tuple((value,) * len(other.items))
    if isinstance(other, List):
        return List((value,) * len(other.content), other.depth, element_type=other.element_type)
    return value


def _is_optional(value: Any) -> bool:
    return isinstance(value, SSAValue) and isinstance(value.type, OptionalType)
