"""Sine, cosine, tangent and the f64 error function, computed from what IREE gets right.

WORKAROUND(iree==3.13): its sine and cosine lose digits from 1e3 on, and all of them for small negative numbers; it has
no error function of 64 bits. So whole turns are taken away before a sine, and erf is a series. It can go when
`test_the_sine_of_an_angle` and `test_the_f64_error_function` in tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Iterator

from xdsl.dialects import math
from xdsl.dialects.builtin import AnyFloat, ModuleOp, f64
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element

_Turns = tuple[float, tuple[float, ...], tuple[float, ...]]
"""An angle, parts of it whose products with a count are exact, and the rest of it."""
_MANY_TURNS: tuple[_Turns, ...] = (
    # 710 is nearly 113 turns, and 10838702 is yet more nearly 1725033 of them.
    (10838702.0, (10838016.0, 686.0), (-7.6400950141793222e-08,)),
    (710.0, (710.0,), (-6.029009819030762e-05, 1.3914622001745921e-09)),
)
_TURN: _Turns = (2 * pymath.pi, (6.28125,), (1.9350051879882812e-03, 3.0199159819567529e-07))


def _reduced(x: Element, share: float, offset: float = 0.0) -> tuple[Element, Element]:
    """Split an angle in (n + `offset`) times `share` turns and what is left of it, by Cody and Waite's method.

    Gives n and the rest. Great multiples of a turn go first. Up to 4e10 the leading products are exact; the inexact
    ones wait until the number is small.
    """
    turn, parts, left = _TURN
    last = (turn * share, tuple(part * share for part in parts), tuple(part * share for part in left))
    rest, count, late = x, x, []
    for size, exact, remains in (*_MANY_TURNS, last):
        start = offset if size == last[0] else 0.0
        count = (rest * (1 / size) - start).round()
        for part in exact:
            rest = rest - (count + start) * part
        late += [(count + start) * part for part in remains]
    for inexact in late:
        rest = rest - inexact
    return count, rest


def _sin_of_small(x: Element) -> Element:
    return abs(x).emit(math.SinOp, (abs(x),)).copysign(x)


def _sin(x: Element) -> Element:
    halves, rest = _reduced(x, 1 / 2)
    sin = _sin_of_small(rest)
    return (x == 0).select(x, halves.is_odd().select(-sin, sin))


def _cos(x: Element) -> Element:
    """Compute cos as the sine of the distance to the nearest zero, which keeps its digits: tan divides by it."""
    halves, rest = _reduced(x, 1 / 2, 0.5)
    sin = _sin_of_small(rest)
    return halves.is_odd().select(sin, -sin)


def _tan(x: Element) -> Element:
    """Compute tan by reduction to quarters of a turn: near a pole all depends on the distance to it."""
    quarters, rest = _reduced(x, 1 / 4)
    sin, cos = _sin_of_small(rest), x.emit(math.CosOp, (abs(rest),))
    return (x == 0).select(x, quarters.is_odd().select(-cos / sin, sin / cos))


def _erf(x: Element) -> Element:
    """Compute erf as 2/√π e^(-x²) Σ 2^n x^(2n+1) / (2n+1)!!: as no term is negative, nothing cancels; 1 from 6 on."""
    size = abs(x).minimum(6.0)
    square, total = size * size, size.like(1)
    for n in range(110, 0, -1):
        total = total * square * (2 / (2 * n + 1)) + 1
    return (total * size * (-square).exp() * (2 / pymath.sqrt(pymath.pi))).copysign(x)


_FORMULAS: dict[str, Callable[[Element], Element]] = {
    "math.sin": _sin, "math.cos": _cos, "math.tan": _tan, "math.erf": _erf,
    "stablehlo.sine": _sin, "stablehlo.cosine": _cos, "stablehlo.tan": _tan, "chlo.tan": _tan, "chlo.erf": _erf,
    "tosa.sin": _sin, "tosa.cos": _cos,
}  # fmt: skip


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if (formula := _FORMULAS.get(op.name)) is not None:
            type_ = op.operands[0].type
            element = getattr(type_, "element_type", type_)
            if isinstance(element, AnyFloat) and (formula is not _erf or element == f64):
                yield op


def _computed(op: Operation) -> SSAValue:
    """Emit a formula for a scalar in a body, or for each element of a tensor."""
    b, formula, x = builder_before(op), _FORMULAS[op.name], op.operands[0]
    if isinstance(x.type, AnyFloat):
        return formula(Element(b, x, dtypes.BY_BUILTIN[x.type])).value
    return b.elementwise([Tensor(x, dtype_of(x))], formula, dtype_of(x)).value


REWRITE = Rewrite(_found, _computed)
