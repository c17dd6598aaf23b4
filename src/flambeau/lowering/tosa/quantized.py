"""Quantised arithmetic: floats that are integers times a scale are computed with as integers.

A dequantised tensor is remembered as its integers and their scale, its form. A rule here takes operands that have
forms and gives the form of the result, so that products accumulate in 32 bits and quantising is one `tosa.rescale`. The
floats are built beside it, and are dead code wherever nothing but such rules uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i8, i32

from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.ir.conversion import RuleFunction, RuleTable
from flambeau.ir.dtypes import BY_CODE, DType
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element, is_number
from flambeau.lowering.linalg.conv import per_dim
from flambeau.lowering.linalg.matmul import product
from flambeau.lowering.linalg.quantized import LIBRARY, chosen_parameters
from flambeau.lowering.tosa.constants import Array, array_of
from flambeau.lowering.tosa.ops import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule
from flambeau.lowering.whole.values import element_of

INTEGER_RULES = RuleTable("tosa on integers")
"""A rule gets the builder, the rule for floats, and the op's arguments with forms in place of tensors that have them.

It gives a form, a tensor, or None where the floats are computed with.
"""
integer_rule = INTEGER_RULES


@dataclass(frozen=True)
class Form:
    """Floats as integers: (tensor - zero) * scale, cut off at `low` and `high`."""

    tensor: Tensor
    scale: Array
    """One number, or one for each position along `axis`."""
    zero: int
    axis: int = 0
    low: float = -math.inf
    high: float = math.inf

    @property
    def is_narrow(self) -> bool:
        """Whether these are 8-bit integers with one scale, as ops take them."""
        return self.tensor.dtype is dtypes.int8 and self.scale.ndim == 0 and not self.is_bounded

    @property
    def is_bounded(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


def integers_first(floats: RuleTable) -> RuleTable:
    """Pair the rules on integers with those on floats that take over where they do not apply."""
    table = RuleTable(INTEGER_RULES.name)
    for name, rule in INTEGER_RULES.rules.items():
        otherwise = floats.get(name)
        assert otherwise is not None, name
        table(name)(_either(rule, otherwise))
    return table


def _either(rule: RuleFunction, otherwise: RuleFunction) -> RuleFunction:
    def apply(b: TosaBuilder, *args: Any) -> Any:
        result = rule(b, otherwise, *(_formed(b, a) for a in args))
        if result is None:
            return otherwise(b, *args)
        return _floats(b, result) if isinstance(result, Form) else result

    return apply


def _formed(b: TosaBuilder, argument: Any) -> Any:
    if isinstance(argument, list):
        return [_formed(b, a) for a in argument]
    form = b.target.forms.get(argument.value) if isinstance(argument, Tensor) else None
    return form if isinstance(form, Form) else argument


def _floats(b: TosaBuilder, x: Form) -> Tensor:
    """Dequantise a form to floats, for rules that need them: (q - zero) * scale, within its bounds."""

    def body(e: Element, s: Element) -> Element:
        real = (e.to(dtypes.float32) - x.zero) * s
        real = real if x.low == -math.inf else real.maximum(x.low)
        return real if x.high == math.inf else real.minimum(x.high)

    scale = _along(b, x.scale, x.tensor.rank, x.axis)
    result: Tensor = b.elementwise([x.tensor, scale], body, dtypes.float32, b.sizes(x.tensor))
    b.target.forms[result.value] = x
    return result


def _along(b: TosaBuilder, numbers: Array, rank: int, axis: int) -> Tensor:
    """Reshape numbers to a tensor that broadcasts along an axis."""
    shape = [] if numbers.ndim == 0 else [numbers.size, *[1] * (rank - 1 - axis)]
    return Tensor(b.target.known(numbers.astype(np.float32).reshape(shape), dtypes.float32.builtin), dtypes.float32)


def _known(x: Any) -> Array | None:
    """Return parameters that are known while compiling as an array; else None."""
    return array_of(x.value) if isinstance(x, Tensor) else np.array(x) if isinstance(x, (int, float)) else None


# --- In and out ---


@integer_rule(f"{LIBRARY}.dequantize_per_tensor", f"{LIBRARY}.dequantize_per_tensor.tensor")
def dequantize_per_tensor(
    b: TosaBuilder, floats: RuleFunction, x: Any, scale: Any, zero: Any, low: int, high: int, *rest: Any
) -> Tensor | None:
    return _remembered(b, floats(b, x, scale, zero, low, high, *rest), x, _known(scale), _known(zero), 0)


@integer_rule(f"{LIBRARY}.dequantize_per_channel")
def dequantize_per_channel(
    b: TosaBuilder, floats: RuleFunction, x: Any, scales: Any, zeros: Any, axis: int, *rest: Any
) -> Tensor | None:
    found = np.array(0) if zeros is None else _known(zeros)
    return _remembered(b, floats(b, x, scales, zeros, axis, *rest), x, _known(scales), found, b.dim(axis, x.rank))


def _remembered(
    b: TosaBuilder, result: Tensor, x: Tensor, scale: Array | None, zero: Array | None, axis: int
) -> Tensor:
    """Record the form of a dequantised tensor, where its parameters are known and it has one zero point."""
    if scale is None or zero is None or result.dtype is not dtypes.float32 or np.unique(zero).size != 1:
        return result
    point = int(zero.flat[0])
    if x.dtype is dtypes.uint8:
        x, point = signed(b, x), point - 128
    if x.dtype in (dtypes.int8, dtypes.int32) and (x.dtype is dtypes.int32 or -128 <= point <= 127):
        single = scale.size == 1
        numbers = scale.astype(np.float64).reshape(() if single else (scale.size,))
        b.target.forms[result.value] = Form(x, numbers, point, axis)
    return result


@integer_rule(f"{LIBRARY}.quantize_per_tensor", f"{LIBRARY}.quantize_per_tensor.tensor")
def quantize_per_tensor(
    b: TosaBuilder, floats: RuleFunction, x: Any, scale: Any, zero: Any, low: int, high: int, code: int
) -> Tensor | None:
    found, dtype = (_known(scale), _known(zero)), BY_CODE[code]
    if found[0] is None or found[1] is None or dtype not in (dtypes.int8, dtypes.uint8):
        return None
    step, shift = float(found[0].item()), 128 if dtype is dtypes.uint8 else 0
    at, low, high = (int(v) - shift for v in (found[1].item(), low, high))
    if isinstance(x, Form):
        result = _rescaled(b, x, step, at, dtypes.int8)
        ends = [_steps(end, step) + at for end in (x.low, x.high)]
        low, high = (int(min(max(low, end), high)) for end in ends)
        result = None if result is None else _clamped(b, result, IntegerAttr, low, high)
    else:
        result = _rounded(b, x, step, at, low, high)
    return result if result is None or dtype is dtypes.int8 else unsigned(b, result)


def _steps(end: float, step: float) -> float:
    """Convert a bound to steps of the result's scale; infinity stays."""
    return end if math.isinf(end) else float(np.rint(np.float32(end) * np.float32(1 / step)))


def _clamped(b: TosaBuilder, x: Tensor, attribute: Any, low: float, high: float) -> Tensor:
    """Emit `tosa.clamp`, if the bounds are narrower than the type."""
    element = element_of(x.value)
    if x.dtype.is_int and (low, high) == (x.dtype.min, x.dtype.max):
        return x
    ends = {"min_val": attribute(low, element), "max_val": attribute(high, element)}
    return Tensor(b.target.on("clamp", (x.value,), element, ends | {"nan_mode": tosa.nan_mode()}), x.dtype, x._sizes)


def _rounded(b: TosaBuilder, x: Tensor, step: float, zero: int, low: int, high: int) -> Tensor | None:
    """Quantise floats: clamp x / step to the result's range, then cast, which rounds to even; None unless f32."""
    if x.dtype is not dtypes.float32:
        return None
    scaled = b.elementwise([x], lambda e: e * (1 / step), dtypes.float32)
    near = _clamped(b, scaled, FloatAttr, float(low - zero), float(high - zero))
    whole = Tensor(b.target.convert(near.value, i32 if zero else i8), dtypes.int32 if zero else dtypes.int8, x._sizes)
    return b.elementwise([whole], lambda e: e + zero, dtypes.int8) if zero else whole


def _rescaled(b: TosaBuilder, x: Form, step: float, zero: int, dtype: DType) -> Tensor | None:
    """Rescale integers to another scale and zero point; None where TOSA's scales do not reach."""
    found = [_multiplier(float(s) / step) for s in x.scale.flat]
    wide = x.tensor.dtype is dtypes.int32
    if None in found or not -128 <= zero <= 127 or (wide and x.zero) or x.tensor.rank == 0:
        return None
    if not wide and dtype is dtypes.int8 and x.zero == zero and x.scale.ndim == 0 and float(x.scale) == step:
        return x.tensor
    multipliers, shifts = zip(*(f for f in found if f is not None), strict=True)
    several = x.scale.ndim == 1
    order = [i for i in range(x.tensor.rank) if i != x.axis] + [x.axis]
    # A scale for each channel is a scale for each position along the last dim.
    turned = b.transpose(x.tensor, order) if several else x.tensor
    result = rescale(b, turned, multipliers, shifts, x.zero, zero, dtype)
    return b.transpose(result, [order.index(i) for i in range(x.tensor.rank)]) if several else result


def _multiplier(ratio: float) -> tuple[int, int] | None:
    """Split a positive ratio into a multiplier of 31 bits and a right shift; None where it is out of range."""
    if not 0 < ratio < math.inf:
        return None
    mantissa, exponent = math.frexp(ratio)
    multiplier = round(mantissa * (1 << 31))
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier >> 1, exponent + 1
    shift = 31 - exponent
    if shift > 62:
        multiplier, shift = multiplier >> min(shift - 62, 31), 62
    return (multiplier, shift) if shift >= 2 else None


def rescale(
    b: TosaBuilder,
    x: Tensor,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    before: int,
    after: int,
    dtype: DType,
    unsigned_sides: tuple[bool, bool] = (False, False),
) -> Tensor:
    """Emit `tosa.rescale`: subtract one zero point, multiply, shift, round, add the other, and saturate."""
    own = x.dtype.builtin
    parameters = (
        b.target.known(np.array(multipliers, np.int32), i32),
        b.target.known(np.array(shifts, np.int8), i8),
        b.target.single(before, own, [1]),
        b.target.single(after, dtype.builtin, [1]),
    )
    properties = {
        "scale32": tosa.flag(True), "rounding_mode": tosa.rounding_mode("SINGLE_ROUND"),
        "per_channel": tosa.flag(len(multipliers) > 1), "input_unsigned": tosa.flag(unsigned_sides[0]),
        "output_unsigned": tosa.flag(unsigned_sides[1]),
    }  # fmt: skip
    value = b.target.on("rescale", (x.value, *parameters), dtype.builtin, properties, like=1)
    return Tensor(value, dtype, x._sizes)


def signed(b: TosaBuilder, x: Tensor) -> Tensor:
    """Shift 8-bit integers from 0..255 to -128..127, which is what TOSA multiplies."""
    known = b.target.forms.get(x.value)
    return known if isinstance(known, Tensor) else rescale(b, x, [1 << 30], [30], -128, 0, dtypes.int8, (True, False))


def unsigned(b: TosaBuilder, x: Tensor) -> Tensor:
    result = rescale(b, x, [1 << 30], [30], 0, -128, dtypes.uint8, (False, True))
    b.target.forms[result.value] = x
    return result


# PyTorch computes a scale in 32 bits and gives it in 64, which TOSA lacks and nobody who quantises with it needs.
tosa_rule(f"{LIBRARY}.choose_qparams.tensor")(partial(chosen_parameters, symmetric=False))
tosa_rule(f"{LIBRARY}.choose_qparams_symmetric.tensor")(partial(chosen_parameters, symmetric=True))


# --- Products ---


def _zero_points(b: TosaBuilder, x: Form, y: Form) -> AbstractContextManager[None]:
    """Set the zero points by which products inside the block multiply 8-bit integers."""
    return b.within(replace(b.context, zero_points=(x.zero, y.zero)))


def _is_weight(x: Any, axis: int) -> bool:
    """Tell whether these are 8-bit integers with one scale, or with one for each of the result's channels."""
    whole = isinstance(x, Form) and x.tensor.dtype is dtypes.int8 and not x.is_bounded
    return whole and (x.scale.ndim == 0 or x.axis == axis)


def _bias(b: TosaBuilder, bias: Any, scale: Array) -> Tensor | None:
    """Quantise a bias in steps of the products; None where it leaves no room in 32 bits, as with zero weights."""
    if isinstance(bias, Form):
        if bias.tensor.dtype is dtypes.int32 and bias.zero == 0 and np.allclose(bias.scale, scale, rtol=1e-6, atol=0):
            return bias.tensor
        bias = _floats(b, bias)
    known = array_of(bias.value)
    if known is not None and known.size and np.abs(known / scale).max() >= 1 << 30:
        return None
    steps = _along(b, 1 / scale, 1, 0)
    return b.elementwise([bias, steps], lambda e, s: (e * s).round(), dtypes.int32, b.sizes(bias))


def _product(b: TosaBuilder, x: Any, y: Any, bias: Any = None) -> Form | None:
    if not isinstance(x, Form) or not x.is_narrow or not isinstance(y, Form) or not _is_weight(y, y.tensor.rank - 1):
        return None
    if y.scale.ndim == 1 and y.tensor.rank != 2:
        return None
    scale = x.scale * y.scale
    start = None if bias is None else _bias(b, bias, scale)
    if bias is not None and start is None:
        return None
    with _zero_points(b, x, y):
        total = product(b, x.tensor, y.tensor)
    if start is not None:
        total = b.elementwise([total, start], lambda e, c: e + c, dtypes.int32, b.sizes(total))
    return Form(total, scale, 0, max(total.rank - 1, 0))


@integer_rule("aten.linear")
def linear(b: TosaBuilder, floats: RuleFunction, x: Any, weight: Any, bias: Any) -> Form | None:
    return _product(b, x, _turned(b, weight), bias)


@integer_rule("aten.mm", "aten.bmm", "aten.matmul")
def matmul(b: TosaBuilder, floats: RuleFunction, x: Any, y: Any) -> Form | None:
    return _product(b, x, y)


@integer_rule("aten.addmm")
def addmm(b: TosaBuilder, floats: RuleFunction, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Form | None:
    rank = bias.tensor.rank if isinstance(bias, Form) else bias.rank
    return _product(b, x, y, bias) if is_number(beta, 1) and is_number(alpha, 1) and rank == 1 else None


@integer_rule("aten.t")
def transposed(b: TosaBuilder, floats: RuleFunction, x: Any) -> Form | None:
    return _turned(b, x)


def _turned(b: TosaBuilder, x: Any) -> Form | None:
    if not isinstance(x, Form) or x.tensor.rank != 2:
        return None
    return replace(x, tensor=b.transpose(x.tensor, [1, 0]), axis=1 - x.axis)


@integer_rule("aten.convolution")
def convolution(
    b: TosaBuilder, floats: RuleFunction, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Form | None:  # fmt: skip
    if transposed or not isinstance(x, Form) or not x.is_narrow or not _is_weight(weight, 0):
        return None
    scale = x.scale * weight.scale
    start = None if bias is None else _bias(b, bias, scale)
    if bias is not None and start is None:
        return None
    with _zero_points(b, x, weight):
        total = floats(b, x.tensor, weight.tensor, start, stride, padding, dilation, False, output_padding, groups)
    return Form(total, scale, 0, total.rank - (weight.tensor.rank - 1))


# --- Elements ---

_FRACTION = 20
"""How many bits a sum has below the steps of its operands."""


@integer_rule("aten.add.Tensor")
def add(b: TosaBuilder, floats: RuleFunction, x: Any, y: Any, alpha: Any) -> Form | None:
    both = [v for v in (x, y) if isinstance(v, Form) and v.is_narrow and v.tensor.rank]
    if len(both) != 2 or not is_number(alpha, 1):
        return None
    step = 2 * max(float(v.scale) for v in both) / (1 << _FRACTION)
    terms = [_rescaled(b, v, step, 0, dtypes.int32) for v in both]
    if None in terms:
        return None
    total = b.elementwise([t for t in terms if t is not None], lambda p, q: p + q, dtypes.int32)
    return Form(total, np.array(step), 0)


@integer_rule("aten.mul.Tensor")
def mul(b: TosaBuilder, floats: RuleFunction, x: Any, y: Any) -> Form | None:
    both = [v for v in (x, y) if isinstance(v, Form) and v.is_narrow]
    if len(both) != 2:
        return None
    result = b.elementwise([_above_zero(b, v) for v in both], lambda p, q: p * q, dtypes.int32)
    return Form(result, x.scale * y.scale, 0)


def _above_zero(b: TosaBuilder, x: Form) -> Tensor:
    """Subtract the zero point, in 32 bits."""
    return b.elementwise([x.tensor], lambda e: e.to(dtypes.int32) - x.zero, dtypes.int32)


def _bounded(low: Any, high: Any) -> Callable[..., Form | None]:
    """Make the rule of a clamp; bounds come as numbers, or as functions of the op's arguments."""

    def rule(b: TosaBuilder, floats: RuleFunction, x: Any, *rest: Any) -> Form | None:
        ends = [end(*rest) if callable(end) else end for end in (low, high)]
        ends = [none if end is None else end for end, none in zip(ends, (-math.inf, math.inf), strict=True)]
        if not isinstance(x, Form) or not all(isinstance(end, (int, float)) for end in ends):
            return None
        if ends[0] > ends[1]:
            return None
        return replace(x, low=min(max(x.low, ends[0]), ends[1]), high=max(min(x.high, ends[1]), ends[0]))

    return rule


integer_rule("aten.relu")(_bounded(0, None))
integer_rule("aten.relu6")(_bounded(0, 6))
integer_rule("aten.clamp", "aten.hardtanh")(_bounded(lambda low, high: low, lambda low, high: high))
integer_rule("aten.clamp_min")(_bounded(lambda low: low, None))
integer_rule("aten.clamp_max")(_bounded(None, lambda high: high))


# --- Means ---


@integer_rule("aten.mean.dim")
def mean(b: TosaBuilder, floats: RuleFunction, x: Any, dim: Any, keepdim: bool, dtype: int | None) -> Form | None:
    if dtype is not None or not isinstance(x, Form):
        return None
    return _mean(b, x, b.dims(dim, x.tensor.rank), keepdim)


@integer_rule("aten.adaptive_avg_pool2d")
def adaptive_avg_pool2d(b: TosaBuilder, floats: RuleFunction, x: Any, sizes: Any) -> Form | None:
    if per_dim(sizes, 2) != [1, 1] or not isinstance(x, Form):
        return None
    return _mean(b, x, [x.tensor.rank - 2, x.tensor.rank - 1], keepdim=True)


def _mean(b: TosaBuilder, x: Form, dims: Sequence[int], keepdim: bool) -> Form | None:
    """Compute a mean as a sum with a smaller scale; None where 32 bits may not hold the sum."""
    counts = [x.tensor.shape[d] for d in dims]
    count = math.prod(c or 0 for c in counts)
    if not x.is_narrow or not 0 < count < 1 << 22:
        return None
    total = b.reduce([_above_zero(b, x)], dims, [(0, dtypes.int32)], lambda e, acc: acc + e)[0]
    if keepdim:
        total = b.reshape(total, [1 if i in dims else s for i, s in enumerate(b.sizes(x.tensor))])
    return Form(total, x.scale / count, 0)


# --- Moves: what happens to the integers is what happens to the floats ---

_MOVES = (
    "aten.view", "aten.reshape", "aten._unsafe_view", "aten.flatten.using_ints", "aten.unflatten.int",
    "aten.unsqueeze", "aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims", "aten.transpose.int", "aten.permute",
    "aten.clone", "aten.contiguous", "aten.dropout", "aten.expand", "aten.slice.Tensor", "aten.select.int",
    "aten.max_pool1d", "aten.max_pool2d",
)  # fmt: skip


@integer_rule(*_MOVES)
def move(b: TosaBuilder, floats: RuleFunction, x: Any, *rest: Any) -> Form | None:
    if not isinstance(x, Form) or x.tensor.dtype is not dtypes.int8 or x.scale.ndim:
        return None
    return replace(x, tensor=_on_integers(b, floats, x.tensor, *rest))


@integer_rule("aten.cat")
def cat(b: TosaBuilder, floats: RuleFunction, parts: Any, dim: int) -> Form | None:
    forms = [p for p in parts if isinstance(p, Form) and p.is_narrow]
    if not forms or len(forms) < len(parts) or len({(float(f.scale), f.zero) for f in forms}) > 1:
        return None
    return replace(forms[0], tensor=_on_integers(b, floats, [f.tensor for f in forms], dim))


def _on_integers(b: TosaBuilder, rule: RuleFunction, *args: Any) -> Tensor:
    """Apply a rule with int8 as the dtype of its results."""
    results = tuple((shape, dtypes.int8) for shape, _ in b.context.results)
    with b.within(replace(b.context, results=results)):
        result: Tensor = rule(b, *args)
        return result
