"""Reductions: sums, products, extremes and their positions, tests, moments and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

Dims = Sequence[int] | int | None
Term = Callable[..., Element]

LONGEST_SERIAL_SUM = 1 << 15
"""Above this many terms an f32 sum is taken in several steps. Adding a million numbers one after the other loses half
of the digits; PyTorch sums in a tree. Further steps cost time (a group norm over 25000 elements takes twice as long):
shorter sums, and those whose length only the run time knows, are one."""


# --- What all reductions share ---


def reduced_dims(b: RuleBuilder, x: Tensor, dims: Dims) -> list[int]:
    """List the dims to reduce, in order; None and the empty list are all, and a 0-d tensor has none."""
    return sorted(b.dims(dims, x.rank)) if x.rank else []


def count(b: RuleBuilder, x: Tensor, dims: Sequence[int]) -> Size:
    """Count the elements that go into one result."""
    return b.product([b.size(x, d) for d in dims])


def keep(b: RuleBuilder, reduced: Tensor, x: Tensor, dims: Sequence[int], keepdim: bool = True) -> Tensor:
    """Put the reduced dims back with size 1 if `keepdim`."""
    return b.reshape(reduced, [1 if i in dims else s for i, s in enumerate(b.sizes(x))]) if keepdim else reduced


def per_element(b: RuleBuilder, x: Tensor, body: Callable[[Element], Any], dtype: DType) -> Tensor:
    return b.elementwise([x], body, dtype)


def total(
    b: RuleBuilder,
    x: Tensor,
    dims: Sequence[int],
    term: Term = lambda e: e,
    given: Sequence[Tensor] = (),
    dtype: DType | None = None,
) -> Tensor:
    """Sum `term(element, *given)` over dims; tensors that are given have the result's shape.

    It is accumulated, and comes out, in `dtype`: by default the one that PyTorch accumulates x's dtype in.
    """
    dtype = dtype or x.dtype.compute
    later: list[int] = []
    if dtype.real is dtypes.float32:
        x, dims, later = _in_two_steps(b, x, list(dims))
        if len(dims) == 1 and isinstance(n := b.size(x, dims[0]), int) and n > LONGEST_SERIAL_SUM:
            # No divisor was found: a length that has one, and the rest.
            even = n - n % 1024
            parts = (_part(b, x, dims[0], 0, even), _part(b, x, dims[0], even, n - even))
            first, rest = (total(b, part, sorted([*dims, *later]), term, given, dtype) for part in parts)
            return b.elementwise([first, rest], lambda e, f: e + f, dtype)
    kept = [i for i in range(x.rank) if i not in dims]
    around = tuple(i for i in kept if i not in later)
    sizes = b.sizes(x)
    partial_sum = b.generic(
        [x, *given],
        [tuple(range(x.rank)), *[around] * len(given)],
        [b.initial([sizes[i] for i in kept], 0, dtype)],
        [tuple(kept)],
        x.rank,
        lambda *elements: elements[-1] + term(*elements[:-1]).to(dtype),
        reduced=dims,
    )[0]
    return total(b, partial_sum, [kept.index(d) for d in later], dtype=dtype) if later else partial_sum


def _part(b: RuleBuilder, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    sizes = [length if i == dim else s for i, s in enumerate(b.sizes(x))]
    return b.slice(x, [start if i == dim else 0 for i in range(x.rank)], sizes, [1] * x.rank)


def _in_two_steps(b: RuleBuilder, x: Tensor, dims: list[int]) -> tuple[Tensor, list[int], list[int]]:
    """Choose what to sum first and what later. Reduced dims that are neighbours are merged and split; nothing moves."""
    sizes = b.sizes(x)
    lengths = [s for d in dims if isinstance(s := sizes[d], int)]
    if len(lengths) < len(dims) or math.prod(lengths) <= LONGEST_SERIAL_SUM:
        return x, dims, []
    groups: list[list[int]] = []
    for d in range(x.rank):
        if groups and d in dims and groups[-1][-1] in dims:
            groups[-1].append(d)
        else:
            groups.append([d])
    x = b.collapse(x, groups)
    dims = [i for i, g in enumerate(groups) if g[0] in dims]
    sizes = b.sizes(x)
    last = dims[-1]
    length = sizes[last]
    assert isinstance(length, int)
    if len(dims) > 1 and length <= LONGEST_SERIAL_SUM:
        return x, [last], dims[:-1]
    longest = min(math.isqrt(length), LONGEST_SERIAL_SUM)
    inner = next((k for k in range(longest, 15, -1) if length % k == 0), None)
    if inner is None:
        return x, [last], dims[:-1]
    x = b.expand(
        x,
        [[i] if i < last else [i, i + 1] if i == last else [i + 1] for i in range(x.rank)],
        [*sizes[:last], length // inner, inner, *sizes[last + 1 :]],
    )
    return x, [last + 1], dims


# --- Sums and products ---


def _converted(b: RuleBuilder) -> Term:
    """Make a term that converts to the result's dtype, as PyTorch does before it accumulates."""
    dtype = b.out_dtype
    return lambda e: e.to(dtype)


@linalg_rule("aten.sum.dim_IntList")
def sum_dim(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, dtype: int | None) -> Tensor:
    dims = reduced_dims(b, x, dim)
    result = total(b, x, dims, _converted(b), dtype=b.out_dtype.compute)
    return b.to(keep(b, result, x, dims, keepdim), b.out_dtype)


@linalg_rule("aten.sum")
def sum_(b: RuleBuilder, x: Tensor, dtype: int | None) -> Tensor:
    return sum_dim(b, x, None, False, dtype)


@linalg_rule("aten.nansum")
def nansum(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, dtype: int | None) -> Tensor:
    dims = reduced_dims(b, x, dim)
    result = total(b, x, dims, lambda e: e.isnan().select(e.like(0), e), dtype=b.out_dtype.compute)
    return b.to(keep(b, result, x, dims, keepdim), b.out_dtype)


@linalg_rule("aten.mean.dim")
def mean_dim(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, dtype: int | None) -> Tensor:
    dims = reduced_dims(b, x, dim)
    result = mean_over(b, x, dims, _converted(b), dtype=b.out_dtype.compute)
    return b.to(keep(b, result, x, dims, keepdim), b.out_dtype)


@linalg_rule("aten.mean")
def mean(b: RuleBuilder, x: Tensor, dtype: int | None) -> Tensor:
    return mean_dim(b, x, None, False, dtype)


def mean_over(b: RuleBuilder, x: Tensor, dims: Sequence[int], term: Term = lambda e: e, **how: Any) -> Tensor:
    """Compute the mean over dims of `term`; takes what `total` takes. NaN where there is nothing to average."""
    n = count(b, x, dims)
    result = total(b, x, dims, term, **how)
    return per_element(b, result, lambda e: e / b.element(n, e.dtype), result.dtype)


@linalg_rule("aten.prod.dim_int")
def prod_dim(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, dtype: int | None) -> Tensor:
    dims = reduced_dims(b, x, dim)
    out = b.out_dtype
    result = b.reduce([x], dims, [(1, out.compute)], lambda e, acc: acc * e.to(out).to(out.compute))[0]
    return b.to(keep(b, result, x, dims, keepdim), out)


@linalg_rule("aten.prod")
def prod(b: RuleBuilder, x: Tensor, dtype: int | None) -> Tensor:
    return prod_dim(b, x, None, False, dtype)


@linalg_rule("aten.count_nonzero.dim_IntList")
def count_nonzero_dims(b: RuleBuilder, x: Tensor, dim: Dims) -> Tensor:
    return total(b, x, reduced_dims(b, x, dim), lambda e: e.to(dtypes.bool_), dtype=dtypes.int64)


@linalg_rule("aten.count_nonzero")
def count_nonzero(b: RuleBuilder, x: Tensor, dim: int | None) -> Tensor:
    return count_nonzero_dims(b, x, dim)


# --- Extremes ---


def _guard_not_empty(b: RuleBuilder, x: Tensor, dims: Sequence[int], op: str) -> None:
    for d in dims:
        b.guard(b.compare("sgt", b.size(x, d), 0), f"{op}(): Expected reduction dim {d} to have non-zero size.")


def extreme(b: RuleBuilder, x: Tensor, dims: Sequence[int], largest: bool, term: Term = lambda e: e) -> Tensor:
    """Find the largest or smallest element over dims; NaN if there is one. 16-bit floats are compared in f32."""
    dtype = x.dtype.real
    start = dtype.min if largest else dtype.max

    def pick(e: Element, acc: Element) -> Element:
        e = term(e).to(acc.dtype)
        return e.maximum(acc) if largest else e.minimum(acc)

    return b.to(b.reduce([x], dims, [(start, dtype.compute)], pick)[0], dtype)


def position(b: RuleBuilder, x: Tensor, values: Tensor, dim: int) -> Tensor:
    """Find where along dim the extreme values occur first.

    A pass of its own that takes the least matching index: each pass is then one associative reduction, which compilers
    vectorise, and ties do not depend on the order. If the extreme is NaN, nothing equals it and the first NaN counts.
    """

    def first(index: list[Any], e: Element, value: Element, acc: Element) -> Element:
        found = (e == value) | e.isnan()
        return found.select(b.scalar(index[dim]), acc.dtype.max).minimum(acc)

    return b.reduce([x, values], [dim], [(dtypes.int64.max, dtypes.int64)], first, indexed=True)[0]


def _all_extreme(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, *, largest: bool, op: str) -> Tensor:
    dims = reduced_dims(b, x, dim)
    _guard_not_empty(b, x, dims, op)
    return keep(b, extreme(b, x, dims, largest), x, dims, keepdim)


def _extreme_with_position(
    b: RuleBuilder, x: Tensor, dim: int, keepdim: bool, *, largest: bool, op: str
) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return x, b.full([], 0, dtypes.int64)
    dim = b.dim(dim, x.rank)
    _guard_not_empty(b, x, [dim], op)
    values = extreme(b, x, [dim], largest)
    return keep(b, values, x, [dim], keepdim), keep(b, position(b, x, values, dim), x, [dim], keepdim)


def _arg_extreme(b: RuleBuilder, x: Tensor, dim: int | None, keepdim: bool, *, largest: bool, op: str) -> Tensor:
    if dim is not None or not x.rank:
        return _extreme_with_position(b, x, dim or 0, keepdim, largest=largest, op=op)[1]
    flat = b.collapse(x, [range(x.rank)])
    result = _extreme_with_position(b, flat, 0, False, largest=largest, op=op)[1]
    return keep(b, result, x, range(x.rank), keepdim)


def _extreme_rules(largest: bool, name: str) -> None:
    linalg_rule(f"aten.a{name}")(partial(_all_extreme, largest=largest, op=f"a{name}"))
    linalg_rule(f"aten.{name}")(lambda b, x: _all_extreme(b, x, None, False, largest=largest, op=name))
    linalg_rule(f"aten.{name}.dim")(partial(_extreme_with_position, largest=largest, op=name))
    linalg_rule(f"aten.arg{name}")(partial(_arg_extreme, largest=largest, op=f"arg{name}"))


_extreme_rules(True, "max")
_extreme_rules(False, "min")


@linalg_rule("aten.aminmax")
def aminmax(b: RuleBuilder, x: Tensor, dim: int | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    low, high = (_all_extreme(b, x, dim, keepdim, largest=largest, op="aminmax") for largest in (False, True))
    return low, high


# --- Tests ---


def _test(b: RuleBuilder, x: Tensor, dim: Dims = None, keepdim: bool = False, *, start: bool) -> Tensor:
    # Here, other than in sums, the empty list means no dims.
    dims = [] if isinstance(dim, Sequence) and not dim else reduced_dims(b, x, dim)

    def join(e: Element, acc: Element) -> Element:
        return acc & e.to(dtypes.bool_) if start else acc | e.to(dtypes.bool_)

    return b.to(keep(b, b.reduce([x], dims, [(start, dtypes.bool_)], join)[0], x, dims, keepdim), b.out_dtype)


linalg_rule("aten.all", "aten.all.dim", "aten.all.dims")(partial(_test, start=True))
linalg_rule("aten.any", "aten.any.dim", "aten.any.dims")(partial(_test, start=False))


@linalg_rule("aten.hash_tensor")
def hash_tensor(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool, mode: int) -> Tensor:
    """Combine the bits of all elements, in 64 bits, by exclusive or."""
    dims = reduced_dims(b, x, dim)

    def bits(e: Element) -> Element:
        return e.to(dtypes.float64).bits(dtypes.uint64) if e.dtype.is_float else e.to(dtypes.uint64)

    if mode != 0:
        raise Unsupported(f"hash_tensor in mode {mode}: PyTorch has only mode 0")
    result = b.reduce([x], dims, [(0, dtypes.uint64)], lambda e, acc: acc ^ bits(e))[0]
    return keep(b, result, x, dims, keepdim)


# --- Variance ---


def _squared_size(e: Element) -> Element:
    return e.real * e.real + e.imag * e.imag if e.dtype.is_complex else e * e


def centered_squares(b: RuleBuilder, x: Tensor, dims: Sequence[int], mean: Tensor) -> Tensor:
    """Compute Σ |x - mean|² over dims."""
    return total(b, x, dims, lambda e, m: _squared_size(e.to(m.dtype) - m), [mean], mean.dtype.real)


def _moments(b: RuleBuilder, x: Tensor, dim: Dims, correction: float | None, keepdim: bool, root: bool) -> list[Tensor]:
    """Compute the variance Σ |x - mean|² / max(0, n - correction), or with `root` its root, and the mean."""
    dims = reduced_dims(b, x, dim)
    n = count(b, x, dims)
    mean = mean_over(b, x, dims)

    def finish(e: Element) -> Element:
        elements = b.element(n, e.dtype)
        degrees = (elements - (1 if correction is None else correction)).maximum(0)
        if correction is not None and correction < 0:
            degrees = (elements > 0).select(degrees, elements)  # Nothing has no variance, whatever is added to 0.
        return (e / degrees).sqrt() if root else e / degrees

    squares = centered_squares(b, x, dims, mean)
    spread = per_element(b, squares, finish, x.dtype.real)
    return [keep(b, spread, x, dims, keepdim), keep(b, b.to(mean, x.dtype), x, dims, keepdim)]


def _variance_rules(name: str, root: bool, pair: bool) -> None:
    def rule(b: RuleBuilder, x: Tensor, dim: Dims, correction: float | None, keepdim: bool) -> Any:
        result = _moments(b, x, dim, correction, keepdim, root)
        return tuple(result) if pair else result[0]

    linalg_rule(f"aten.{name}.correction")(rule)
    linalg_rule(f"aten.{name}.dim")(lambda b, x, dim, unbiased, keepdim: rule(b, x, dim, int(unbiased), keepdim))
    linalg_rule(f"aten.{name}")(lambda b, x, unbiased: rule(b, x, None, int(unbiased), False))


_variance_rules("var", root=False, pair=False)
_variance_rules("std", root=True, pair=False)
_variance_rules("var_mean", root=False, pair=True)
_variance_rules("std_mean", root=True, pair=True)


# --- Norms ---


@linalg_rule("aten.linalg_vector_norm", "aten.norm.ScalarOpt_dim_dtype")
def vector_norm(b: RuleBuilder, x: Tensor, ord: float | None, dim: Dims, keepdim: bool, dtype: int | None) -> Tensor:
    dims = reduced_dims(b, x, dim)
    power = 2.0 if ord is None else float(ord)
    wanted = x.dtype if dtype is None else dtypes.BY_CODE[dtype]
    acc = b.out_dtype.compute

    def size(e: Element) -> Element:
        return abs(e.to(wanted.compute))

    if math.isinf(power) or power < 0:
        _guard_not_empty(b, x, dims, "linalg.vector_norm")
    if math.isinf(power):
        sizes = per_element(b, x, size, acc)
        result = extreme(b, sizes, dims, largest=power > 0)
    elif power == 0:
        result = total(b, x, dims, lambda e: e.to(dtypes.bool_), dtype=acc)
    elif power == 2:
        squares = total(b, x, dims, lambda e: _squared_size(e.to(wanted.compute)), dtype=acc)
        result = per_element(b, squares, lambda e: e.sqrt(), acc)
    else:
        powers = total(b, x, dims, lambda e: size(e).pow(power), dtype=acc)
        result = powers if power == 1 else per_element(b, powers, lambda e: e.pow(1 / power), acc)
    return b.to(keep(b, result, x, dims, keepdim), b.out_dtype)


@linalg_rule("aten.norm.ScalarOpt_dim")
def norm_dim(b: RuleBuilder, x: Tensor, p: float | None, dim: Dims, keepdim: bool) -> Tensor:
    return vector_norm(b, x, p, dim, keepdim, None)


@linalg_rule("aten.norm.Scalar")
def norm(b: RuleBuilder, x: Tensor, p: float | None) -> Tensor:
    return vector_norm(b, x, p, None, False, None)


@linalg_rule("aten.norm.ScalarOpt_dtype")
def norm_dtype(b: RuleBuilder, x: Tensor, p: float | None, dtype: int) -> Tensor:
    return vector_norm(b, x, p, None, False, dtype)


@linalg_rule("aten.logsumexp", "aten.special_logsumexp")
def logsumexp(b: RuleBuilder, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    dims = reduced_dims(b, x, dim)
    x = b.to(x, b.out_dtype.compute)
    size = b.elementwise([x], lambda e: e.real, x.dtype.real) if x.dtype.is_complex else x
    # An infinite largest element must not turn into inf - inf.
    shift = per_element(b, extreme(b, size, dims, True), lambda m: m.isinf().select(m.like(0), m), size.dtype)
    shift = b.to(shift, x.dtype)
    sums = total(b, x, dims, lambda e, m: (e - m).exp(), [shift])
    result = b.elementwise([sums, shift], lambda s, m: s.log() + m, b.out_dtype)
    return keep(b, result, x, dims, keepdim)
