"""What must hold for ops of several dialects."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from xdsl.dialects.builtin import TensorType

from flambeau.dialects.declared.ops import DeclaredOp, agree, category, fits, shape

Check = Callable[[DeclaredOp], None]

_NAMES = {"b": "booleans", "i": "integers", "f": "floats", "c": "complex numbers"}


def of(kinds: str, index: int = 0) -> Check:
    """Make the check that an operand's elements are of one of these kinds: b(ool), i(nteger), f(loat), c(omplex)."""

    def check(op: DeclaredOp) -> None:
        type_ = op.tensor(index)
        if category(type_.element_type) not in kinds:
            op.wrong(f"is for {' or '.join(_NAMES[k] for k in kinds)}, got {type_}")

    return check


def same_types(op: DeclaredOp) -> None:
    """Check that all operands and results have one type, up to sizes that are unknown."""
    first = op.tensor(0)
    for type_ in (*op.operand_types, *op.result_types):
        if not agree(first, type_):
            op.wrong(f"operands and results have one type, got {first} and {type_}")


def same_count(op: DeclaredOp) -> None:
    """Check that the result has as many elements as the first operand, up to sizes that are unknown."""
    before, after = shape(op.tensor(0)) or (), shape(op.result_tensor()) or ()
    if None not in (*before, *after) and prod(before) != prod(after):  # type: ignore[arg-type]
        op.wrong(f"the number of elements stays, got {op.tensor(0)} and {op.result_tensor()}")


def same_shapes(op: DeclaredOp) -> None:
    """Check that all operands and results have one shape."""
    first = op.tensor(0)
    for type_ in (*op.operand_types, *op.result_types):
        if not isinstance(type_, TensorType) or not fits(shape(first), shape(type_)):
            op.wrong(f"operands and results have one shape, got {first} and {type_}")
