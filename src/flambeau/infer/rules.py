"""The table of shape and dtype rules, and what they are written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import BY_CODE, DType

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
    """A number that only the run time knows, of a Python type that is known; `object` where not even that is."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<some {self.kind.__name__}>"

    def _refuse(self, *_: Any) -> Any:
        raise InferenceError("the result's type depends on a number that only the run time knows")

    # A rule that computes with it, or decides by it, cannot know.
    __bool__ = __index__ = __int__ = __float__ = __neg__ = __abs__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def operand(value: Any, any_number: type) -> Any:
    """Give an argument the form that promotion takes; `any_number` is the type to assume of numbers of unknown type."""
    if isinstance(value, Meta):
        return (value.dtype, value.rank)
    if isinstance(value, Unknown):
        return any_number() if value.kind is object else value.kind()
    return value


def known(*values: Any) -> bool:
    """Tell whether all values are known numbers, or lists of such."""
    return all(known(*v) if isinstance(v, (list, tuple)) else not (v is None or isinstance(v, Unknown)) for v in values)


def dtype_or(code: int | None, default: DType) -> DType:
    """Look up the dtype that the argument `code` names; None names the default."""
    if isinstance(code, Unknown):
        raise InferenceError("the result's dtype is not a constant")
    if code is not None and code not in BY_CODE:
        raise InferenceError(f"dtype {code} is not supported")
    return default if code is None else BY_CODE[code]


def floating(dtype: DType) -> DType:
    """Return a dtype itself, or float32 for integers."""
    return dtypes.float32 if dtype.is_integral else dtype


def promoted(*values: Any) -> DType:
    """Promote the dtypes of operands, tensors or numbers; None counts for nothing."""
    guesses = {promote_operands([operand(v, k) for v in values if v is not None]) for k in (int, float)}
    if len(guesses) > 1:
        raise InferenceError("the result's dtype depends on whether a number is an int or a float")
    return guesses.pop()


def promoted_float(*values: Any) -> DType:
    """Promote the dtypes of operands; integers become float32."""
    return floating(promoted(*values))


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Broadcast shapes to one. An unknown size beside a known one other than 1 must be that one."""
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


def normal_dim(dim: Any, rank: int) -> int:
    """Count a dim from the start; 0-d tensors take 0 and -1. Raises for a dim that there is not."""
    if not isinstance(dim, int):
        raise InferenceError("the dim is not a constant")
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise InferenceError(f"dim {dim} is out of range for rank {rank}")
    return dim % bound


def product(dims: Sequence[Dim]) -> Dim:
    """Multiply sizes; an unknown one makes the product unknown unless another is 0."""
    if any(d == 0 for d in dims):
        return 0
    total = 1
    for d in dims:
        if d is None:
            return None
        total *= d
    return total


def size(value: Any) -> Dim:
    """Take an argument of type int as a size, which is None where it is not known."""
    return value if isinstance(value, int) else None


def sizes(values: Sequence[Any]) -> tuple[Dim, ...]:
    """Take a list of ints as a shape."""
    if any(isinstance(v, int) and v < 0 for v in values):
        raise InferenceError(f"sizes {list(values)} are negative")
    return tuple(map(size, values))


def replaced(shape: Sequence[Dim], dim: int, *new: Dim) -> tuple[Dim, ...]:
    """Replace a dim of a shape, which is counted from the start, by other sizes, or by none."""
    return (*shape[:dim], *new, *shape[dim + 1 :])


def spread(values: Any, count: int) -> list[Any]:
    """Make a list argument of `count` values, in which one may stand for all."""
    listed = values if isinstance(values, (list, tuple)) else [values]
    return list(listed) * count if len(listed) == 1 else list(listed)


# --- Rules that ops of several families share ---


def same(x: Meta, *_: Any) -> Meta:
    """Give the shape and dtype of the first argument."""
    return x


def float_unary(x: Meta, *_: Any) -> Meta:
    """Keep the shape; integers give float32."""
    return Meta(x.shape, promoted_float(x))


def arithmetic(x: Any, y: Any) -> Meta:
    """Broadcast and promote two tensors, or a tensor and a number."""
    return Meta(broadcast_metas(x, y), promoted(x, y))


def float_binary(x: Any, y: Any) -> Meta:
    """Broadcast and promote two operands; integers give float32."""
    return Meta(broadcast_metas(x, y), promoted_float(x, y))


def of_tensors(*args: Any) -> Meta:
    """Broadcast and promote all tensors among the arguments; numbers have no say in it."""
    tensors = [a for a in args if isinstance(a, Meta)]
    return Meta(broadcast_metas(*tensors), promoted(*tensors))


def with_mask(x: Meta, *_: Any) -> tuple[Meta, Meta]:
    """Give what `x` is, and a mask of its shape."""
    return x, Meta(x.shape, dtypes.bool_)
