"""The table of shape and dtype rules, and what they are written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import DType

Dim = int | None
"""A size; None is not known."""

INFER_RULES = RuleTable("infer")
infer_rule = INFER_RULES


class InferenceError(ValueError):
    """The operands do not fit the op; the text says why."""


@dataclass(frozen=True)
class Meta:
    """What is known of a tensor without its contents."""

    shape: tuple[Dim, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)


class Unknown:
    """A number that only the run time knows, of a Python type that is known."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<some {self.kind.__name__}>"


def operand(value: Any) -> Any:
    """An argument as promotion wants it."""
    if isinstance(value, Meta):
        return (value.dtype, value.rank)
    return value.kind() if isinstance(value, Unknown) else value


def promoted(*values: Any) -> DType:
    """The dtype that the operands promote to."""
    return promote_operands([operand(v) for v in values if v is not None])


def promoted_float(*values: Any) -> DType:
    """The dtype that the operands promote to; integers become float32."""
    dtype = promoted(*values)
    return dtypes.float32 if dtype.is_integral else dtype


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that all broadcast to. An unknown size beside a known one other than 1 must be that one."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            have = result[i]
            if d == 1:
                continue
            if have == 1 or have is None:
                result[i] = d
            elif d is not None and d != have:
                raise InferenceError(f"shapes {list(shapes)} do not broadcast: {have} and {d} in dim {i}")
    return tuple(result)


def broadcast_metas(*values: Any) -> tuple[Dim, ...]:
    return broadcast(*(v.shape for v in values if isinstance(v, Meta)))


def normal_dim(dim: int, rank: int) -> int:
    """A dim counted from the start; 0-d tensors take 0 and -1."""
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise InferenceError(f"dim {dim} is out of range for rank {rank}")
    return dim % bound


def product(dims: Sequence[Dim]) -> Dim:
    """The number of elements; 0 wins over unknown."""
    if any(d == 0 for d in dims):
        return 0
    total = 1
    for d in dims:
        if d is None:
            return None
        total *= d
    return total


def size(value: Any) -> Dim:
    """An int argument as a size."""
    return value if isinstance(value, int) else None
