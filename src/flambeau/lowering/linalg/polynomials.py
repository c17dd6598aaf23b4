"""Orthogonal polynomials, whose degree is one more operand.

Chebyshev's have closed forms. The others are computed by recurrence, in a loop over whole tensors that ends with the
greatest degree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule, pointwise
from flambeau.lowering.verbs import RuleBuilder

UNROLLED = 8
"""Up to this degree Chebyshev's polynomials are computed by recurrence."""


def _names(name: str) -> tuple[str, str, str]:
    base = f"aten.special_{name}"
    return base, f"{base}.n_scalar", f"{base}.x_scalar"


# --- Chebyshev's polynomials ---


def _chebyshev(kind: str, x: Element, n: Element) -> Element:
    """Evaluate Chebyshev's polynomial of a kind: C_n = 2x C_(n-1) - C_(n-2); for larger n by its closed form."""
    first = {"t": x, "u": x * 2, "v": x * 2 - 1, "w": x * 2 + 1}[kind]
    before, value = x.like(1), (n >= 1).select(first, 1)
    for k in range(2, UNROLLED + 1):
        before, value = (n >= k).select(value, before), (n >= k).select(x * 2 * value - before, value)
    by_form = (abs(x) < 1).select(_of_angle(kind, x, n), _of_power(kind, x, n))
    value = (n > UNROLLED).select(by_form, value)
    value = (abs(x) == 1).select(_at_one(kind, x, n), value)
    return (n < 0).select(value.like(0), value)


def _mirrored(x: Element, n: Element, value: Element) -> Element:
    """Extend a polynomial with the parity of its degree from |x| to x: P_n(-x) = (-1)^n P_n(x)."""
    return ((x < 0) & n.is_odd()).select(-value, value)


def _at_one(kind: str, x: Element, n: Element) -> Element:
    """Evaluate at 1 and -1, where the other forms divide by zero."""
    right = {"t": n.like(1), "u": n + 1, "v": n.like(1), "w": n * 2 + 1}[kind]
    left = {"t": n.like(1), "u": n + 1, "v": n * 2 + 1, "w": n.like(1)}[kind]
    return _mirrored(x, n, (x > 0).select(right, left))


def _of_angle(kind: str, x: Element, n: Element) -> Element:
    if kind in "tu":
        angle = abs(x).acos()
        value = (n * angle).cos() if kind == "t" else ((n + 1) * angle).sin() / angle.sin()
        return _mirrored(x, n, value)
    angle = x.acos()
    half = angle * 0.5
    if kind == "v":
        return ((n + 0.5) * angle).cos() / half.cos()
    return ((n + 0.5) * angle).sin() / half.sin()


def _of_power(kind: str, x: Element, n: Element) -> Element:
    """Evaluate outside of [-1, 1] by a power of |x| + √(x² - 1), times a factor near 1; v and w swap left of it.

    PyTorch's recurrence subtracts two infinities as soon as the polynomial of degree n - 2 is one.
    """
    a = abs(x)
    root = ((a - 1) * (a + 1)).sqrt()
    base = a + root
    inverse = 1 / base
    power = base.pow(n - 3)  # One less: a factor may bring back what is just too great.
    rest = 1 / (power * base * base * base)
    rest = rest * rest
    cosine, sine = 1 + inverse, (a - 1 + root) * inverse
    if kind == "t":
        factor = (rest + 1) * 0.5
    elif kind == "u":
        factor = (1 - rest * inverse * inverse) / (cosine * sine)
    else:
        v, w = (rest * inverse + 1) / cosine, (1 - rest * inverse) / sine
        factor = (x > 0).select(v, w) if kind == "v" else (x > 0).select(w, v)
    earlier = power * factor * base
    value = earlier.isinf().select(earlier.like(float("nan")), earlier * base * base)
    return _mirrored(x, n, value)


def _any_operand(function: Callable[[Element, Element], Element]) -> Callable[[Any, Any], Element]:
    """Wrap a function of elements so that either operand may be a number."""

    def body(x: Any, n: Any) -> Element:
        x, n = (x, x.like(n)) if isinstance(x, Element) else (n.like(x), n)
        return function(x, _degree(n))

    return body


def _degree(n: Element) -> Element:
    """Convert a degree to a whole number; what is not finite counts as negative, as in PyTorch."""
    return (abs(n) < 2.0**63).select(n.trunc(), n.like(-1))


def _shifted(kind: str, x: Element, n: Element) -> Element:
    return _chebyshev(kind, x * 2 - 1, n)


for _kind in "tuvw":
    pointwise(*_names(f"chebyshev_polynomial_{_kind}"))(_any_operand(partial(_chebyshev, _kind)))
    pointwise(*_names(f"shifted_chebyshev_polynomial_{_kind}"))(_any_operand(partial(_shifted, _kind)))


# --- Polynomials by recurrence ---


@dataclass(frozen=True)
class Recurrence:
    """The polynomial of degree 1, and that of degree k + 1 from those of degrees k and k - 1."""

    first: Callable[[Element], Element]
    following: Callable[[Element, Element, Element, Element], Element]
    known: Callable[[Element, Element], tuple[Element, Element]] | None = None
    """Where the value is known for any degree, and what it is."""
    limit: Callable[[DType], int] = lambda dtype: 1 << 16
    """Beyond this degree the answer is NaN: PyTorch's own for Hermite, the end of what would take hours for others."""


def _hermite_limit(dtype: DType) -> int:
    return 512 if dtype is dtypes.float64 else 128


RECURRENCES = {
    "hermite_polynomial_h": Recurrence(lambda x: x * 2, lambda x, k, p, q: x * 2 * q - k * 2 * p, limit=_hermite_limit),
    "hermite_polynomial_he": Recurrence(lambda x: x, lambda x, k, p, q: x * q - k * p, limit=_hermite_limit),
    "laguerre_polynomial_l": Recurrence(
        lambda x: 1 - x,
        lambda x, k, p, q: ((k * 2 + (1 - x)) * q - k * p) / (k + 1),
        known=lambda x, n: (x == 0, x.like(1)),
    ),
    "legendre_polynomial_p": Recurrence(
        lambda x: x,
        lambda x, k, p, q: ((k * 2 + 1) * x * q - k * p) / (k + 1),
        known=lambda x, n: (abs(x) == 1, _mirrored(x, n, x.like(1))),
    ),
}


def _by_recurrence(recurrence: Recurrence, b: RuleBuilder, x: Any, n: Any) -> Tensor:
    dtype = b.out_dtype.compute
    tensors = [t for t in (x, n) if isinstance(t, Tensor)]
    sizes = b.broadcast_sizes(*(b.sizes(t) for t in tensors))

    def whole(value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            return b.full(sizes, value, dtype)
        return b.elementwise([value], lambda e: e.to(dtype), dtype, sizes)

    x, n = whole(x), b.elementwise([whole(n)], lambda e: _degree(e).maximum(-1), dtype)
    limit = recurrence.limit(dtype)
    most = b.reduce([n], range(n.rank), [(1, dtype)], lambda e, acc: acc.maximum((e > limit).select(0, e)))[0]
    turns: Size = b.as_index(Element(b, b.number_of(most, dtypes.int64), dtypes.int64))

    def turn(k: SSAValue, carried: Tensor) -> list[Tensor]:
        def body(*index: SSAValue) -> Element:
            at = list(index[1:])
            here, degree = b.load(x, at), b.scalar(k).to(dtype)
            is_first = degree == 0
            p, q = (b.load(carried, [b.index(i), *at]) for i in (0, 1))
            new = is_first.select(recurrence.first(here), recurrence.following(here, degree, p, q))
            old = is_first.select(here.like(1), q)
            is_going_on = degree < b.load(n, at)
            is_value = b.scalar_bool(b.compare("eq", index[0], 1))
            return (is_value & is_going_on).select(new, old)

        return [b.generate([2, *sizes], dtype, body)]

    pair = b.loop(0, turns, [b.empty([2, *sizes], dtype)], turn)[0]
    value = b.reshape(b.slice(pair, [1, *[0] * len(sizes)], [1, *sizes], [1] * (len(sizes) + 1)), sizes)

    def ends(x: Element, n: Element, value: Element) -> Element:
        value = (n > limit).select(value.like(float("nan")), value)
        if recurrence.known is not None:
            is_known, known = recurrence.known(x, n)
            value = is_known.select(known, value)
        return (n < 0).select(value.like(0), value)

    return b.elementwise([x, n, value], ends, b.out_dtype)


for _name, _recurrence in RECURRENCES.items():
    linalg_rule(*_names(_name))(partial(_by_recurrence, _recurrence))
