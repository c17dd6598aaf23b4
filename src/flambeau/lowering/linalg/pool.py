"""Pooling: reductions over windows that slide over the last dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.conv import per_dim
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder, Windows


@dataclass(frozen=True)
class Pooling(Windows):
    """Windows of constant size on a padded tensor."""

    kernel: list[int]
    padding: list[int]
    size: list[Size]
    """The input's sizes."""

    @classmethod
    def of(
        cls, b: RuleBuilder, x: Tensor, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> Pooling:
        kernel, padding, dilation = per_dim(kernel, n), per_dim(padding, n), per_dim(dilation, n)
        stride = per_dim(stride, n) if stride not in ([], ()) else kernel
        size = b.sizes(x)[-n:]
        out = [_window_count(b, *args, ceil_mode) for args in zip(size, kernel, stride, padding, dilation, strict=True)]
        # Of a lone window, what lies beyond the border is nothing but work: EfficientNet's has 640 by 640 on 8 by 8.
        kernel = [
            min(k, n + 2 * p) if isinstance(n, int) and count == 1 and d == 1 else k
            for k, n, p, d, count in zip(kernel, size, padding, dilation, out, strict=True)
        ]
        return cls(kernel, out, stride, dilation, padding, size)

    def pad(self, b: RuleBuilder, x: Tensor, value: Any) -> Tensor:
        """Pad the input, wide enough for the last window too."""
        lead: list[Size] = [0] * (x.rank - len(self.kernel))
        high: list[Size] = []
        for size, out, k, s, p, d in zip(
            self.size, self.out, self.kernel, self.strides, self.padding, self.dilations, strict=True
        ):
            end = b.add(b.mul(b.sub(out, 1), s), d * (k - 1) + 1)
            reach = b.sub(end, b.add(size, p))
            # What is left over on the right need not be cut off; in floor mode it is never more than the padding.
            high.append(b.maximum(reach, 0))
        return b.pad(x, [*lead, *self.padding], lead + high, value)


def _window_count(b: RuleBuilder, size: Size, k: int, s: int, p: int, d: int, ceil_mode: bool) -> Size:
    room = b.sub(b.add(size, 2 * p), d * (k - 1) + 1)
    b.guard(
        b.compare("sge", b.add(room, s - 1) if ceil_mode else room, 0), "the kernel is larger than the padded input"
    )
    if not ceil_mode:
        return b.add(b.floordiv(room, s), 1)
    count = b.add(b.ceildiv(room, s), 1)
    # The last window must start inside the input or the left border.
    starts_outside = b.compare("sge", b.mul(b.sub(count, 1), s), b.add(size, p))
    return b.select(starts_outside, b.sub(count, 1), count)


def _pool(
    b: RuleBuilder, x: Tensor, at: Pooling, name: str, start: Any, body: Callable[[Element, Element], Any]
) -> Tensor:
    """Reduce the windows of a padded tensor with linalg's pooling op where there is one for the rank and dtype."""
    init, reduction = (start, x.dtype.compute), lambda e, acc: body(e.to(x.dtype.compute), acc)
    if x.rank == len(at.kernel) + 2 and x.rank <= 4 and x.dtype.signed:
        return b.pool(name, b.covered(x, at), at, init, reduction)
    return b.window_reduce(x, at, [init], reduction)[0]


# --- Maximum ---


@linalg_rule("aten.max_pool1d")
def max_pool1d(b: RuleBuilder, x: Tensor, *args: Any) -> Tensor:
    return _max_pool(b, x, 1, *args)


@linalg_rule("aten.max_pool2d")
def max_pool2d(b: RuleBuilder, x: Tensor, *args: Any) -> Tensor:
    return _max_pool(b, x, 2, *args)


@linalg_rule("aten.max_pool3d")
def max_pool3d(b: RuleBuilder, x: Tensor, *args: Any) -> Tensor:
    return _max_pool(b, x, 3, *args)


def _max_pool(b: RuleBuilder, x: Tensor, n: int, *args: Any) -> Tensor:
    at = Pooling.of(b, x, n, *args)
    padded = at.pad(b, x, x.dtype.min)
    return b.to(_pool(b, padded, at, "max", x.dtype.min, lambda e, acc: acc.maximum(e)), x.dtype)


@linalg_rule("aten.max_pool1d_with_indices")
def max_pool1d_with_indices(b: RuleBuilder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    return _max_pool_with_indices(b, x, 1, *args)


@linalg_rule("aten.max_pool2d_with_indices")
def max_pool2d_with_indices(b: RuleBuilder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    return _max_pool_with_indices(b, x, 2, *args)


@linalg_rule("aten.max_pool3d_with_indices")
def max_pool3d_with_indices(b: RuleBuilder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    return _max_pool_with_indices(b, x, 3, *args)


def _max_pool_with_indices(b: RuleBuilder, x: Tensor, n: int, *args: Any) -> tuple[Tensor, Tensor]:
    at = Pooling.of(b, x, n, *args)
    padded = at.pad(b, x, x.dtype.min)
    bordered = padded is not x

    def body(indices: list[Size], e: Element, best: Element, best_at: Element) -> tuple[Element, Element]:
        places = [
            b.sub(b.add(b.mul(o, s), b.mul(w, d)), p)
            for o, w, s, d, p in zip(indices[x.rank - n :], indices[x.rank :], at.strides, at.dilations, at.padding)
        ]
        inside = _inside(b, places, at.size) if bordered else None
        return _better(e, _flat(b, places, at.size), best, best_at, inside)

    inits = [(x.dtype.min, x.dtype), (-1, dtypes.int64)]
    values, indices = b.window_reduce(padded, at, inits, body, indexed=True)
    return values, indices


def _flat(b: RuleBuilder, places: Sequence[Size], sizes: Sequence[Size]) -> Element:
    """Compute the row-major number of an element of the plane."""
    flat: Size = 0
    for place, size in zip(places, sizes, strict=True):
        flat = b.add(b.mul(flat, size), place)
    return b.scalar(b.index(flat))


def _inside(b: RuleBuilder, places: Sequence[Size], sizes: Sequence[Size]) -> Element:
    inside = b.element(True, dtypes.bool_)
    for place, size in zip(places, sizes, strict=True):
        at = b.scalar(b.index(place))
        inside = inside & (at >= 0) & (at < b.scalar(b.index(size)))
    return inside


def _better(
    e: Element, at: Element, best: Element, best_at: Element, inside: Element | None
) -> tuple[Element, Element]:
    """Update the maximum and its place: the first of equal ones, the last NaN, and never one of the border."""
    take = (e > best) | e.isnan() | (best_at < 0)
    take = take if inside is None else take & inside
    return take.select(e, best), take.select(at, best_at)


# --- Average ---


@linalg_rule("aten.avg_pool1d")
def avg_pool1d(b: RuleBuilder, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, with_pad: bool) -> Tensor:
    return _avg_pool(b, x, 1, kernel, stride, padding, ceil, with_pad, None)


@linalg_rule("aten.avg_pool2d")
def avg_pool2d(b: RuleBuilder, x: Tensor, *args: Any) -> Tensor:
    return _avg_pool(b, x, 2, *args)


@linalg_rule("aten.avg_pool3d")
def avg_pool3d(b: RuleBuilder, x: Tensor, *args: Any) -> Tensor:
    return _avg_pool(b, x, 3, *args)


def _avg_pool(
    b: RuleBuilder,
    x: Tensor,
    n: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    at = Pooling.of(b, x, n, kernel, stride, padding, 1, ceil_mode)
    total = _pool(b, at.pad(b, x, 0), at, "sum", 0, lambda e, acc: acc + e)
    border = at.padding if count_include_pad else [0] * n
    count: Size = divisor_override or 1

    def divide(indices: list[Size], e: Element) -> Element:
        size: Size = count
        if divisor_override is None:
            for o, k, s, p, most, extra in zip(
                indices[-n:], at.kernel, at.strides, at.padding, at.size, border, strict=True
            ):
                size = b.mul(size, _overlap(b, o, k, s, p, most, extra, ceil_mode))
        return _quotient(e, b.scalar(b.index(size)))

    return b.map_indexed([total], b.sizes(total), x.dtype, divide)


def _overlap(b: RuleBuilder, o: Size, k: int, s: int, p: int, size: Size, border: int, ceil_mode: bool) -> Size:
    """Count the elements of a window that count, given how much of the border does."""
    if border == p and not ceil_mode:
        return k
    start = b.sub(b.mul(o, s), p)
    end = b.minimum(b.add(start, k), b.add(size, p))
    return b.sub(b.minimum(end, b.add(size, border)), b.maximum(start, -border))


def _quotient(total: Element, count: Element) -> Element:
    return total / count if total.dtype.is_float else total.trunc_divide(count)


# --- As many windows as the result has elements ---


@linalg_rule("aten.adaptive_avg_pool1d")
def adaptive_avg_pool1d(b: RuleBuilder, x: Tensor, output_size: Any) -> Tensor:
    return _adaptive_avg_pool(b, x, per_dim(output_size, 1))


@linalg_rule("aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d")
def adaptive_avg_pool2d(b: RuleBuilder, x: Tensor, output_size: Any) -> Tensor:
    return _adaptive_avg_pool(b, x, per_dim(output_size, 2))


@linalg_rule("aten.adaptive_avg_pool3d", "aten._adaptive_avg_pool3d")
def adaptive_avg_pool3d(b: RuleBuilder, x: Tensor, output_size: Any) -> Tensor:
    return _adaptive_avg_pool(b, x, per_dim(output_size, 3))


def _adaptive_avg_pool(b: RuleBuilder, x: Tensor, out: list[Size]) -> Tensor:
    n, dtype = len(out), x.dtype.compute
    size = b.sizes(x)[-n:]
    if all(o == 1 for o in out):
        dims = range(x.rank - n, x.rank)
        total = b.reduce([x], dims, [(0, dtype)], lambda e, acc: acc + e.to(dtype), keepdim=True)[0]
        count = b.product(size)
        return b.elementwise([total], lambda e: e / b.scalar(b.index(count)), x.dtype)
    kernel = _even_windows(size, out)
    if kernel is not None:
        return _avg_pool(b, x, n, kernel, [], 0, False, True, None)
    if b.loads_are_cheap or all(isinstance(s, int) for s in (*size, *out)):
        total = _adaptive(b, x, out, [(0, dtype)], lambda _, e, acc: acc + e.to(dtype))[0]
    else:
        total = b.to(x, dtype)
        for i, o in enumerate(out):
            total = _adaptive_sums(b, total, x.rank - n + i, o)

    def divide(indices: list[Size], e: Element) -> Element:
        bins = [_bin(b, i, s, o) for i, s, o in zip(indices[-n:], size, out, strict=True)]
        return e / b.scalar(b.index(b.product([b.sub(end, start) for start, end in bins])))

    return b.map_indexed([total], b.sizes(total), x.dtype, divide)


def _even_windows(size: Sequence[Size], out: Sequence[Size]) -> list[int] | None:
    """Return the kernel when all windows are equally large and do not overlap; else None."""
    kernel = [
        s // o if isinstance(s, int) and isinstance(o, int) and o and s % o == 0 else 0 for s, o in zip(size, out)
    ]
    return kernel if all(kernel) else None


def _bin(b: RuleBuilder, i: Size, size: Size, out: Size) -> tuple[Size, Size]:
    """Compute where window i starts and ends: floor(i size / out) and ceil((i + 1) size / out)."""
    return b.floordiv(b.mul(i, size), out), b.ceildiv(b.mul(b.add(i, 1), size), out)


def _adaptive(
    b: RuleBuilder, x: Tensor, out: Sequence[Size], inits: Sequence[Any], body: Callable[..., Any]
) -> list[Tensor]:
    """Reduce windows of different sizes; `body(places, element, *accumulators)` sees the elements inside of them."""
    lead = x.rank - len(out)
    size = b.sizes(x)[lead:]
    if b.loads_are_cheap:
        return _adaptive_loops(b, x, out, inits, body)
    # No window is longer: its borders are each less than one off the real ones.
    kernel = [
        b.minimum(b.add(b.floordiv(s, b.maximum(o, 1)), 2), b.maximum(s, 1)) for s, o in zip(size, out, strict=True)
    ]

    def in_window(indices: list[Size], *acc: Element) -> Any:
        bins = [_bin(b, i, s, o) for i, s, o in zip(indices[lead : x.rank], size, out, strict=True)]
        places = [b.add(start, w) for (start, _), w in zip(bins, indices[x.rank :], strict=True)]
        safe = [b.minimum(place, b.sub(s, 1)) for place, s in zip(places, size, strict=True)]
        inside = b.element(True, dtypes.bool_)
        for place, (_, end) in zip(places, bins, strict=True):
            inside = inside & (b.scalar(b.index(place)) < b.scalar(b.index(end)))
        results = body(places, b.load(x, [*indices[:lead], *safe]), *acc)
        results = results if isinstance(results, tuple) else (results,)
        return tuple(inside.select(new, old) for new, old in zip(results, acc, strict=True))

    return b.windows([], [], [*b.sizes(x)[:lead], *out], kernel, inits, in_window, indexed=True)


def _adaptive_loops(
    b: RuleBuilder, x: Tensor, out: Sequence[Size], inits: Sequence[Any], body: Callable[..., Any]
) -> list[Tensor]:
    """Reduce windows of different sizes by loops in the body, where loads are cheap."""
    sizes = b.sizes(x)
    lead = x.rank - len(out)

    def window(*at: Size) -> tuple[Element, ...]:
        bins = [_bin(b, i, s, o) for i, s, o in zip(at[lead:], sizes[lead:], out, strict=True)]

        def turn(places: list[Size], *accumulated: Element) -> Sequence[Element]:
            if len(places) < len(bins):
                start, end = bins[len(places)]
                return b.loop(start, end, accumulated, lambda i, *inner: turn([*places, i], *inner))
            results = body(places, b.load(x, [*at[:lead], *places]), *accumulated)
            return results if isinstance(results, tuple) else (results,)

        return tuple(turn([], *(b.element(value, dtype) for value, dtype in inits)))

    rank = x.rank
    return b.each([], [*sizes[:lead], *out], lambda: window(*map(b.loop_index, range(rank))), [d for _, d in inits])


@linalg_rule("aten.adaptive_max_pool1d")
def adaptive_max_pool1d(b: RuleBuilder, x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(b, x, per_dim(output_size, 1))


@linalg_rule("aten.adaptive_max_pool2d")
def adaptive_max_pool2d(b: RuleBuilder, x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(b, x, per_dim(output_size, 2))


@linalg_rule("aten.adaptive_max_pool3d")
def adaptive_max_pool3d(b: RuleBuilder, x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(b, x, per_dim(output_size, 3))


def _adaptive_max_pool(b: RuleBuilder, x: Tensor, out: list[Size]) -> tuple[Tensor, Tensor]:
    n = len(out)
    size = b.sizes(x)[-n:]
    kernel = _even_windows(size, out)
    if kernel is not None:
        return _max_pool_with_indices(b, x, n, kernel, [], 0, 1, False)
    if not b.loads_are_cheap:  # a load for each element of a window is pages of IR
        return _adaptive_extremes(b, x, out)

    def body(places: list[Size], e: Element, best: Element, best_at: Element) -> tuple[Element, Element]:
        return _better(e, _flat(b, places, size), best, best_at, None)

    values, indices = _adaptive(b, x, out, [(x.dtype.min, x.dtype), (-1, dtypes.int64)], body)
    return values, indices


# --- Adaptive windows for ops on whole tensors: along one dim after the other ---


def _all_windows(
    b: RuleBuilder,
    elements: Sequence[Tensor],
    windows: Sequence[Tensor],
    dim: int,
    out: Size,
    dtype: DType,
    body: Callable[..., Element],
) -> Tensor:
    """Compare every window with all elements: `body(inside, place, *elements, *windows)`. Windows come before `dim`."""
    sizes = b.sizes(elements[0])

    def at(indices: list[Size], *both: Element) -> Element:
        start, end = (b.scalar(b.index(border)) for border in _bin(b, indices[dim], sizes[dim], out))
        place = b.scalar(b.index(indices[dim + 1]))
        return body((place >= start) & (place < end), place, *both)

    tensors = [*(b.unsqueeze(t, dim) for t in elements), *(b.unsqueeze(t, dim + 1) for t in windows)]
    return b.map_indexed(tensors, [*sizes[:dim], out, *sizes[dim:]], dtype, at)


def _adaptive_sums(b: RuleBuilder, x: Tensor, dim: int, out: Size) -> Tensor:
    inside = _all_windows(b, [x], [], dim, out, x.dtype, lambda inside, _, e: inside.select(e, 0))
    return b.reduce([inside], [dim + 1], [(0, x.dtype)], lambda e, acc: acc + e)[0]


def _adaptive_extremes(b: RuleBuilder, x: Tensor, out: list[Size]) -> tuple[Tensor, Tensor]:
    lead = x.rank - len(out)
    places = b.full(b.sizes(x), 0, dtypes.int64)
    stride: Size = 1
    for dim in reversed(range(lead, x.rank)):
        size = b.size(x, dim)
        x, places = _extremes_along(b, x, places, dim, out[dim - lead], stride)
        stride = b.mul(stride, size)
    return x, places


def _extremes_along(
    b: RuleBuilder, x: Tensor, places: Tensor, dim: int, out: Size, stride: Size
) -> tuple[Tensor, Tensor]:
    """Find the maxima of windows along a dim and their places in the plane: the first of equals, the last NaN."""
    size, step = b.element(b.size(x, dim), dtypes.int64), b.element(stride, dtypes.int64)
    least = x.dtype.min

    def rank(inside: Element, place: Element, e: Element, best: Element) -> Element:
        here = place.to(dtypes.int64)
        found = (e == best).select(size - here, 0)
        return inside.select(e.isnan().select(size + 1 + here, found) if x.dtype.is_float else found, 0)

    def where(inside: Element, place: Element, before: Element, ranked: Element) -> Element:
        here = place.to(dtypes.int64)
        chosen = (ranked > size).select(ranked - size - 1, size - ranked)
        return (here == chosen).select(before + here * step, 0)

    inside = _all_windows(b, [x], [], dim, out, x.dtype, lambda inside, _, e: inside.select(e, least))
    best = b.reduce([inside], [dim + 1], [(least, x.dtype)], lambda e, acc: acc.maximum(e))[0]
    ranks = _all_windows(b, [x], [best], dim, out, dtypes.int64, rank)
    ranked = b.reduce([ranks], [dim + 1], [(0, dtypes.int64)], lambda e, acc: acc.maximum(e))[0]
    found = _all_windows(b, [places], [ranked], dim, out, dtypes.int64, where)
    return best, b.reduce([found], [dim + 1], [(0, dtypes.int64)], lambda e, acc: acc + e)[0]
