"""Quantising and dequantising: PyTorch's `quantized_decomposed` library, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_CODE, DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

LIBRARY = "quantized_decomposed"


def _affine(b: RuleBuilder, x: Tensor, scale: Any, zero: Any, body: Callable[..., Element], dtype: DType) -> Tensor:
    """Run one loop whose body takes an element, its scale and its zero point: numbers, or tensors that broadcast."""
    tensors = [p for p in (scale, zero) if isinstance(p, Tensor)]

    def at(e: Element, *parameters: Element) -> Element:
        remaining = iter(parameters)
        found = [next(remaining) if isinstance(p, Tensor) else p for p in (scale, zero)]
        return body(e, *(b.scalar(p) if isinstance(p, SSAValue) else p for p in found))

    return b.elementwise([x, *tensors], at, dtype, b.sizes(x))


def _quantized(
    b: RuleBuilder, x: Tensor, scale: Any, zero: Any, low: int, high: int, work: DType, shift_first: bool = False
) -> Tensor:
    """Multiply with the inverse of the scale, round to even, shift by the zero point, clamp.

    `work` is the dtype that PyTorch computes in; `shift_first` is for ops that round after the shift.
    """

    def body(e: Element, s: Any, z: Any) -> Element:
        inverse = (1 / s.to(s.dtype.compute)).to(s.dtype).to(work) if isinstance(s, Element) else 1.0 / s
        shift = z.to(work) if isinstance(z, Element) else z
        steps = e.to(work) * inverse
        steps = (steps + shift).round() if shift_first else steps.round() + shift
        return steps.maximum(low).minimum(high)

    return _affine(b, x, scale, zero, body, b.out_dtype)


def _dequantized(b: RuleBuilder, x: Tensor, scale: Any, zero: Any) -> Tensor:
    """Subtract the zero point in integers, then multiply in the scale's dtype."""

    def body(e: Element, s: Element, z: Element | None) -> Element:
        if z is not None:
            both = promote_operands([(e.dtype, 1), (z.dtype, 1)])
            e = e.to(both) - z.to(both)
        product = e.to(s.dtype.compute) * s.to(s.dtype.compute)
        return product.to(s.dtype)

    return _affine(b, x, scale, zero, body, b.out_dtype)


# --- One scale for all ---


@linalg_rule(f"{LIBRARY}.quantize_per_tensor")
def quantize_per_tensor(b: RuleBuilder, x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: int) -> Tensor:
    return _quantized(b, x, scale, zero, low, high, dtypes.float32)


@linalg_rule(f"{LIBRARY}.dequantize_per_tensor")
def dequantize_per_tensor(
    b: RuleBuilder, x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: int, out_dtype: int | None
) -> Tensor:
    work = b.out_dtype.compute

    def body(e: Element, s: Any, z: Any) -> Element:
        s, z = (p.to(work) if isinstance(p, Element) else p for p in (s, z))
        return (e.to(work) - z) * s

    return _affine(b, x, scale, zero, body, b.out_dtype)


def _single(b: RuleBuilder, x: Tensor) -> Tensor:
    """Reshape a tensor of one element to rank 0."""
    return b.reshape(x, [])


@linalg_rule(f"{LIBRARY}.quantize_per_tensor.tensor")
def quantize_per_tensor_tensor(b: RuleBuilder, x: Tensor, scale: Tensor, zero: Tensor, *rest: Any) -> Tensor:
    return quantize_per_tensor(b, x, _single(b, scale), _single(b, zero), *rest)


@linalg_rule(f"{LIBRARY}.dequantize_per_tensor.tensor")
def dequantize_per_tensor_tensor(b: RuleBuilder, x: Tensor, scale: Tensor, zero: Tensor, *rest: Any) -> Tensor:
    return dequantize_per_tensor(b, x, _single(b, scale), _single(b, zero), *rest)


# --- A scale for each position along an axis ---


def _along(b: RuleBuilder, x: Tensor, parameters: Tensor, axis: int) -> Tensor:
    """Reshape parameters so that they broadcast along an axis."""
    at = b.dim(axis, x.rank)
    size = b.same_size(b.size(x, at), b.size(parameters, 0), "there is not one parameter for each channel")
    return b.reshape(parameters, [size, *[1] * (x.rank - 1 - at)])


@linalg_rule(f"{LIBRARY}.quantize_per_channel")
def quantize_per_channel(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, dtype: int
) -> Tensor:
    work = promote_operands([(dtypes.float32, 1), (scales.dtype, 1), (zeros.dtype, 1)])
    return _quantized(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), low, high, work)


@linalg_rule(f"{LIBRARY}.dequantize_per_channel")
def dequantize_per_channel(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *rest: Any
) -> Tensor:
    return _dequantized(b, x, _along(b, x, scales, axis), None if zeros is None else _along(b, x, zeros, axis))


# --- A scale for each group of columns in a row ---


def _in_groups(b: RuleBuilder, x: Tensor, group: int, *parameters: Tensor | None) -> list[Any]:
    """Reshape the tensor to rows of a group, and parameters to a column with one for each row."""
    width = b.size(x, -1)
    if isinstance(width, int) and group > width:
        group = width
    rows = b.floordiv(b.product(b.sizes(x)), group)
    columns: list[Size] = [rows, 1]
    return [b.reshape(x, [rows, group]), *(None if p is None else b.reshape(p, columns) for p in parameters)]


@linalg_rule(f"{LIBRARY}.quantize_per_channel_group")
def quantize_per_channel_group(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: int, group: int
) -> Tensor:
    rows, scale, zero = _in_groups(b, x, group, scales, zeros)
    work = promote_operands([(x.dtype, 1), (scales.dtype, 1), (zeros.dtype, 1)]).compute
    return b.reshape(_quantized(b, rows, scale, zero, low, high, work, shift_first=True), b.sizes(x))


@linalg_rule(f"{LIBRARY}.dequantize_per_channel_group")
def dequantize_per_channel_group(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor | None, low: int, high: int, dtype: int, group: int,
    out_dtype: int,
) -> Tensor:  # fmt: skip
    rows, scale, zero = _in_groups(b, x, group, scales, zeros)
    return b.reshape(_dequantized(b, rows, scale, zero), b.sizes(x))


# --- Both at once, as models do while they are trained ---


def _fake_quantized(b: RuleBuilder, x: Tensor, scale: Any, zero: Any, low: int, high: int) -> Tensor:
    """Round floats to multiples of a scale: (clamp(round(x / scale) + zero, low, high) - zero) * scale."""
    return _affine(b, x, scale, zero, _fake(b.out_dtype.compute, low, high), b.out_dtype)


def _fake_quantized_with_mask(
    b: RuleBuilder, x: Tensor, scale: Any, zero: Any, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Give a mask too, of what was in range: its gradient is passed on."""
    steps_of = _steps(b.out_dtype.compute)

    def in_range(e: Element, s: Any, z: Any) -> Element:
        steps, _, _ = steps_of(e, s, z)
        return (steps >= low) & (steps <= high)

    return _fake_quantized(b, x, scale, zero, low, high), _affine(b, x, scale, zero, in_range, dtypes.bool_)


def _steps(work: DType) -> Callable[..., tuple[Element, Element, Element]]:
    """Count the steps from the zero point; gives them, the scale and the zero point as elements.

    A zero point that is a whole number is added to the rounded steps, one that is a float before they are rounded.
    """

    def body(e: Element, s: Any, z: Any) -> tuple[Element, Element, Element]:
        is_between = isinstance(z, Element) and z.dtype.is_float
        s, z = (p.to(work) if isinstance(p, Element) else e.to(work).like(p) for p in (s, z))
        steps = e.to(work) * (1 / s)
        return ((steps + z).round() if is_between else steps.round() + z), s, z

    return body


def _fake(work: DType, low: int, high: int) -> Callable[..., Element]:
    steps_of = _steps(work)

    def body(e: Element, s: Any, z: Any) -> Element:
        steps, step, start = steps_of(e, s, z)
        return (steps.maximum(low).minimum(high) - start) * step

    return body


linalg_rule("aten.fake_quantize_per_tensor_affine")(_fake_quantized)
linalg_rule("aten.fake_quantize_per_tensor_affine_cachemask")(_fake_quantized_with_mask)


@linalg_rule("aten.fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize_tensor(b: RuleBuilder, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> Tensor:
    return _fake_quantized(b, x, _single(b, scale), _single(b, zero), low, high)


@linalg_rule("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_tensor_with_mask(
    b: RuleBuilder, x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Leave the tensor as it is where `enabled`, a tensor of one number, is 0."""
    result, mask = _fake_quantized_with_mask(b, x, _single(b, scale), _single(b, zero), low, high)
    flag = _single(b, enabled)
    return (
        b.elementwise([flag, result, x], lambda on, e, old: (on != 0).select(e, old), x.dtype, b.sizes(x)),
        b.elementwise([flag, mask], lambda on, e: (on == 0) | e, dtypes.bool_, b.sizes(x)),
    )


@linalg_rule("aten.fake_quantize_per_channel_affine")
def fake_quantize_per_channel(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int
) -> Tensor:
    return _fake_quantized(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), low, high)


@linalg_rule("aten.fake_quantize_per_channel_affine_cachemask")
def fake_quantize_per_channel_with_mask(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    return _fake_quantized_with_mask(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), low, high)


def _learnt(b: RuleBuilder, zeros: Tensor, low: int, high: int) -> Tensor:
    """Take zero points, floats that are learnt, as the nearest whole numbers in range; halves go to even ones."""
    return b.elementwise([zeros], lambda z: z.round().maximum(low).minimum(high), dtypes.int64)


@linalg_rule("aten._fake_quantize_learnable_per_tensor_affine")
def fake_quantize_learnable(
    b: RuleBuilder, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, grad_factor: float
) -> Tensor:
    return _fake_quantized(b, x, _single(b, scale), _single(b, _learnt(b, zero, low, high)), low, high)


@linalg_rule("aten._fake_quantize_learnable_per_channel_affine")
def fake_quantize_learnable_per_channel(
    b: RuleBuilder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, grad_factor: float
) -> Tensor:
    whole = _learnt(b, zeros, low, high)
    return _fake_quantized(b, x, _along(b, x, scales, axis), _along(b, x, whole, axis), low, high)


# --- Scales from the data ---


def chosen_parameters(
    b: RuleBuilder, x: Tensor, low: int, high: int, eps: float, dtype: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Choose the scale, in f32, and the zero point for the range of a tensor, which always includes 0."""
    if x.dtype is not dtypes.float32:
        raise Unsupported(f"choosing a scale for {x.dtype}", "Convert the tensor to float32 first.")
    starts = [(float("inf"), x.dtype), (float("-inf"), x.dtype)]
    ends = b.reduce([x], range(x.rank), starts, lambda e, least, most: (least.minimum(e), most.maximum(e)))

    def parameters(least: Element, most: Element) -> tuple[Element, Element]:
        least, most = least.minimum(0), most.maximum(0)
        if symmetric:
            scale = ((-least).maximum(most) / ((high - low) / 2)).maximum(eps)
            return scale, least.like(128 if BY_CODE[dtype] is dtypes.uint8 else 0)
        scale = ((most - least) / (high - low)).maximum(eps)
        return scale, (low - (least / scale).round()).maximum(low).minimum(high)

    scale, zero = b.elementwise(ends, parameters, (dtypes.float32, dtypes.int64))
    return b.reshape(scale, [1]), b.reshape(zero, [1])


def _choose(symmetric: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    def choose(b: RuleBuilder, x: Tensor, low: int, high: int, eps: float, dtype: int) -> tuple[Tensor, Tensor]:
        scale, zero = chosen_parameters(b, x, low, high, eps, dtype, symmetric)
        return b.to(scale, b.out_dtype), zero

    return choose


linalg_rule(f"{LIBRARY}.choose_qparams.tensor")(_choose(False))
linalg_rule(f"{LIBRARY}.choose_qparams_symmetric.tensor")(_choose(True))
