"""Rules for Python numbers in the program: sizes and what is computed from them. All targets share them."""

from __future__ import annotations

import math as pymath
import operator
from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, i1
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.comparisons import OPERATORS, SIGNED
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor
from flambeau.lowering.element import Element

SCALAR_RULES = RuleTable("scalars")
rule = SCALAR_RULES


def is_known(*values: Any) -> bool:
    """Tell whether all are Python numbers."""
    return not any(isinstance(v, SSAValue) for v in values)


def as_float(b: LoweringBuilder, value: Any) -> Element:
    """Convert a number to an f64 element."""
    if isinstance(value, SSAValue):
        if isinstance(value.type, IndexType):
            wide = b.value(arith.IndexCastOp, (value,), dtypes.int64.builtin)
            return Element(b, wide, dtypes.int64).to(dtypes.float64)
        if value.type == i1:
            return Element(b, value, dtypes.bool_).select(as_float(b, 1.0), as_float(b, 0.0))
        return Element(b, value, dtypes.float64)
    return Element(b, b.constant(float(value), dtypes.float64), dtypes.float64)


@rule("aten.size.int")
def size_int(b: LoweringBuilder, x: Tensor, dim: int) -> Size:
    return b.size(x, b.dim(dim, x.rank))


@rule("aten.size")
def size(b: LoweringBuilder, x: Tensor) -> list[Size]:
    return b.sizes(x)


@rule("aten.numel")
def numel(b: LoweringBuilder, x: Tensor) -> Size:
    return b.product(b.sizes(x))


@rule("aten.dim")
def dim(b: LoweringBuilder, x: Tensor) -> int:
    return x.rank


def is_whole(value: Any) -> bool:
    """Tell whether a number is an integer."""
    return isinstance(value, int) if is_known(value) else value.type == INDEX


def _int_rule(name: str, python: Callable[[Any, Any], Any], method: str) -> None:
    @rule(f"{name}.int")
    def apply(b: LoweringBuilder, x: Size, y: Size) -> Any:
        return python(x, y) if is_known(x, y) else getattr(b, method)(x, y)

    @rule(name)
    def either(b: LoweringBuilder, x: Any, y: Any) -> Any:
        return (apply if is_whole(x) and is_whole(y) else SCALAR_RULES.rules[f"{name}.float"])(b, x, y)


def _dividing_rule(name: str, python: Callable[[Any, Any], Any], method: str) -> None:
    @rule(f"{name}.int")
    def apply(b: LoweringBuilder, x: Size, y: Size) -> Any:
        if is_known(y) and y == 0:
            raise Unsupported("an integer is divided by zero")
        if is_known(x, y):
            return python(x, y)
        not_zero = b.compare("ne", y, 0)
        b.guard(not_zero, "ZeroDivisionError: an integer is divided by zero")
        return getattr(b, method)(x, b.select(not_zero, y, 1))


for _name, _python, _method in (
    ("aten.add", operator.add, "add"), ("aten.sub", operator.sub, "sub"), ("aten.mul", operator.mul, "mul"),
    ("prim.max", max, "maximum"), ("prim.min", min, "minimum"),
):  # fmt: skip
    _int_rule(_name, _python, _method)
_dividing_rule("aten.floordiv", operator.floordiv, "floordiv")
_dividing_rule("aten.remainder", operator.mod, "mod")


@rule("aten.neg.int")
def neg_int(b: LoweringBuilder, x: Size) -> Size:
    return b.sub(0, x)


def as_int(b: LoweringBuilder, value: Any) -> Element:
    """Convert an integer or a truth value to an i64 element."""
    if is_known(value):
        return Element(b, b.constant(int(value), dtypes.int64), dtypes.int64)
    if value.type == i1:
        return Element(b, value, dtypes.bool_).to(dtypes.int64)
    return Element(b, b.value(arith.IndexCastOp, (value,), dtypes.int64.builtin), dtypes.int64)


def _as_size(b: LoweringBuilder, x: Element) -> SSAValue:
    return b.value(arith.IndexCastOp, (x.value,), INDEX)


@rule("aten.pow.int_to_int")
def pow_int(b: LoweringBuilder, x: Size, y: Size) -> Any:
    if is_known(x, y):
        return x**y  # type: ignore[operator]
    if isinstance(y, int) and y >= 0:
        return b.product([x] * y)
    return _as_size(b, as_int(b, x).pow(as_int(b, y)))


for _name, _bits in (
    ("__and__", operator.and_), ("__or__", operator.or_), ("__xor__", operator.xor), ("__lshift__", operator.lshift),
    ("__rshift__", operator.rshift),
):  # fmt: skip

    @rule(f"aten.{_name}.int")
    def apply_bits(b: LoweringBuilder, x: Size, y: Size, python: Callable[[Any, Any], Any] = _bits) -> Any:
        return python(x, y) if is_known(x, y) else _as_size(b, python(as_int(b, x), as_int(b, y)))


def _comparison(name: str, python: Callable[[Any, Any], bool], predicate: str) -> None:
    @rule(f"aten.{name}.int")
    def ints(b: LoweringBuilder, x: Size, y: Size) -> Any:
        return b.compare(predicate, x, y)

    @rule(f"aten.{name}")
    def either(b: LoweringBuilder, x: Any, y: Any) -> Any:
        return (ints if is_whole(x) and is_whole(y) else floats)(b, x, y)

    @rule(f"aten.{name}.float", f"aten.{name}.int_float", f"aten.{name}.float_int")
    def floats(b: LoweringBuilder, x: Any, y: Any) -> Any:
        return python(x, y) if is_known(x, y) else python(as_float(b, x), as_float(b, y)).value  # type: ignore[attr-defined]


for _name, _python in OPERATORS.items():
    _comparison(_name, _python, SIGNED[_name])


def _max(x: Element, y: Element) -> Element:
    """Take the first number unless the second is greater, as Python's `max` does; so NaN stays where it is first."""
    return (y > x).select(y, x)


def _min(x: Element, y: Element) -> Element:
    return (y < x).select(y, x)


def _float_rule(name: str, python: Callable[[Any, Any], Any], emit: Callable[[Element, Element], Element]) -> None:
    @rule(f"{name}.float", f"{name}.int_float", f"{name}.float_int")
    def apply(b: LoweringBuilder, x: Any, y: Any) -> Any:
        return python(x, y) if is_known(x, y) else emit(as_float(b, x), as_float(b, y)).value


for _name, _python, _emit in (
    ("aten.add", operator.add, operator.add), ("aten.sub", operator.sub, operator.sub),
    ("aten.mul", operator.mul, operator.mul), ("prim.max", max, _max), ("prim.min", min, _min),
):  # fmt: skip
    _float_rule(_name, _python, _emit)


@rule("aten.div.float", "aten.div.int", "aten.div")
def div(b: LoweringBuilder, x: Any, y: Any) -> Any:
    if is_known(y) and y == 0:
        raise Unsupported("a number is divided by zero")
    if is_known(x, y):
        return x / y
    divisor = as_float(b, y)
    if not is_known(y):
        b.guard((divisor != 0).value, "ZeroDivisionError: a number is divided by zero")
    return (as_float(b, x) / divisor).value


@rule("aten.Float.Scalar", "aten.Float.int", "aten.Float.bool")
def to_float(b: LoweringBuilder, x: Any) -> Any:
    return float(x) if is_known(x) else as_float(b, x).value


@rule("aten.Int.float", "aten.Int.Scalar", "aten.Int.bool")
def to_int(b: LoweringBuilder, x: Any) -> Any:
    if is_known(x):
        return int(x)
    if x.type == INDEX:
        return x
    if x.type == i1:
        return b.value(arith.IndexCastOp, (Element(b, x, dtypes.bool_).to(dtypes.int64).value,), INDEX)
    return whole(b, Element(b, x, dtypes.float64))


def whole(b: LoweringBuilder, x: Element) -> SSAValue:
    """Convert an f64 to a size, rounding towards zero."""
    return b.value(arith.IndexCastOp, (b.value(arith.FPToSIOp, (x.value,), dtypes.int64.builtin),), INDEX)


@rule("aten.floor.Scalar", "aten.floor.float", "aten.floor.int")
def floor(b: LoweringBuilder, x: Any) -> Any:
    if is_known(x):
        return pymath.floor(x)
    return x if x.type == INDEX else whole(b, as_float(b, x).floor())


@rule("aten.ceil.Scalar", "aten.ceil.float", "aten.ceil.int")
def ceil(b: LoweringBuilder, x: Any) -> Any:
    if is_known(x):
        return pymath.ceil(x)
    return x if x.type == INDEX else whole(b, -(-as_float(b, x)).floor())


@rule("aten.neg.float", "aten.neg.Scalar")
def neg_float(b: LoweringBuilder, x: Any) -> Any:
    if is_whole(x):
        return b.sub(0, x)
    return -x if is_known(x) else (-as_float(b, x)).value


@rule("aten.__not__")
def not_(b: LoweringBuilder, x: Any) -> Any:
    return not x if is_known(x) else (~Element(b, x, dtypes.bool_)).value


def _bool_rule(name: str, python: Callable[[Any, Any], Any]) -> None:
    @rule(f"aten.{name}.bool")
    def apply(b: LoweringBuilder, x: Any, y: Any) -> Any:
        if is_known(x, y):
            return bool(python(bool(x), bool(y)))
        return python(_as_bool(b, x), _as_bool(b, y)).value


def _as_bool(b: LoweringBuilder, value: Any) -> Element:
    return Element(b, b.constant(value, dtypes.bool_) if is_known(value) else value, dtypes.bool_)


for _name, _python in (
    ("__and__", operator.and_), ("__or__", operator.or_), ("__xor__", operator.xor), ("eq", operator.eq),
    ("ne", operator.ne),
):  # fmt: skip
    _bool_rule(_name, _python)


@rule("aten.Bool.int", "aten.Bool.float")
def to_bool(b: LoweringBuilder, x: Any) -> Any:
    if is_known(x):
        return bool(x)
    return x if x.type == i1 else _is_not_zero(b, x)


def _is_not_zero(b: LoweringBuilder, x: SSAValue) -> Any:
    """Compare a size or an f64 with zero; an integer that was made of a truth value is that value again."""
    if isinstance(cast := x.owner, arith.IndexCastOp) and isinstance(widened := cast.input.owner, arith.ExtUIOp):
        if widened.input.type == i1:
            return widened.input
    return b.compare("ne", x, 0) if x.type == INDEX else (as_float(b, x) != as_float(b, 0.0)).value


def _unary_float(name: str, python: Callable[[Any], Any], method: str) -> None:
    @rule(f"aten.{name}.int", f"aten.{name}.float", f"aten.{name}.Scalar")
    def apply(b: LoweringBuilder, x: Any) -> Any:
        return python(x) if is_known(x) else getattr(as_float(b, x), method)().value


for _name, _unary in (("sqrt", pymath.sqrt), ("exp", pymath.exp), ("log", pymath.log)):
    _unary_float(_name, _unary, _name)


@rule("prim.abs.Scalar", "prim.abs.int", "prim.abs.float")
def absolute(b: LoweringBuilder, x: Any) -> Any:
    if is_known(x):
        return abs(x)
    return b.maximum(x, b.sub(0, x)) if x.type == INDEX else abs(as_float(b, x)).value


@rule("aten._assert_scalar")
def assert_scalar(b: LoweringBuilder, condition: Any, message: str) -> None:
    b.guard(to_bool(b, condition), message)


@rule("prim.ListUnpack")
def list_unpack(b: LoweringBuilder, values: list[Any]) -> Any:
    return values if len(values) != 1 else values[0]
