"""Padding and upsampling: results whose elements are elements of the input at computed positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.scalars import as_float, whole
from flambeau.lowering.verbs import RuleBuilder

# --- Padding ---


def resize_border(b: RuleBuilder, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
    """Add a border of one value; negative amounts crop."""
    padded = b.pad(x, [b.maximum(p, 0) for p in low], [b.maximum(p, 0) for p in high], value)
    starts = [b.maximum(b.sub(0, p), 0) for p in low]
    sizes = _padded_sizes(b, b.sizes(x), low, high)
    return b.slice(padded, starts, sizes, [1] * x.rank)


def _padded_sizes(b: RuleBuilder, old: Sequence[Size], low: Sequence[Size], high: Sequence[Size]) -> list[Size]:
    """Add a border to sizes; guard that no more is cropped than there is."""
    sizes = [b.add(s, b.add(lo, hi)) for s, lo, hi in zip(old, low, high, strict=True)]
    for size, amounts in zip(sizes, zip(low, high, strict=True), strict=True):
        if not all(isinstance(p, int) and p >= 0 for p in amounts):
            b.guard(b.compare("sge", size, 0), "more is cropped than there is")
    return sizes


def _borders(amounts: Sequence[Size], rank: int) -> tuple[list[Size], list[Size]]:
    """Split PyTorch's list, last dim first and (low, high) by turns, into one list of each for all dims."""
    if len(amounts) % 2 or len(amounts) > 2 * rank:
        raise Unsupported(f"{len(amounts)} padding amounts for a tensor of rank {rank}")
    low, high = list(amounts[0::2])[::-1], list(amounts[1::2])[::-1]
    rest: list[Size] = [0] * (rank - len(low))
    return rest + low, rest + high


@linalg_rule("aten.constant_pad_nd")
def constant_pad_nd(b: RuleBuilder, x: Tensor, pad: Sequence[Size], value: Any) -> Tensor:
    low, high = _borders(pad, x.rank)
    for size, lo, hi in zip(b.sizes(x), low, high, strict=True):
        # PyTorch crops first: what is added on one side does not make up for it.
        cropped = b.add(b.minimum(lo, 0), b.minimum(hi, 0))
        if cropped != 0:
            b.guard(b.compare("sge", b.add(size, cropped), 0), "more is cropped than there is")
    return resize_border(b, x, low, high, value)


Position = Callable[[RuleBuilder, Size, Size], Size]
"""Where an element of the padded tensor comes from: its place relative to the input's start, and the input's size."""


def _reflect(b: RuleBuilder, at: Size, size: Size) -> Size:
    last = b.sub(size, 1)
    mirrored = b.maximum(at, b.sub(0, at))
    beyond = b.sub(last, mirrored)
    return b.sub(last, b.maximum(beyond, b.sub(0, beyond)))


def _replicate(b: RuleBuilder, at: Size, size: Size) -> Size:
    return b.minimum(b.maximum(at, 0), b.sub(size, 1))


def _circular(b: RuleBuilder, at: Size, size: Size) -> Size:
    return b.mod(at, size)


_MODES: dict[str, Position] = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}


def _pad_from_input(b: RuleBuilder, x: Tensor, pad: Sequence[Size], mode: str) -> Tensor:
    low, high = _borders(pad, x.rank)
    if mode == "circular":
        for size, *amounts in zip(b.sizes(x), low, high, strict=True):
            for amount in amounts:
                if not (isinstance(amount, int) and amount <= 0):
                    b.guard(b.compare("sle", amount, size), "padding wraps around more than once")
        # What is cropped does not come round again.
        x = resize_border(b, x, [b.minimum(p, 0) for p in low], [b.minimum(p, 0) for p in high], 0)
        low, high = [b.maximum(p, 0) for p in low], [b.maximum(p, 0) for p in high]
    old = b.sizes(x)
    if mode == "reflect":
        for size, lo, hi in zip(old, low, high, strict=True):
            for amount in (lo, hi):
                if not (isinstance(amount, int) and amount <= 0):
                    b.guard(b.compare("slt", amount, size), "reflection padding must be less than the dimension")
    new = _padded_sizes(b, old, low, high)
    if mode != "circular" and pad:
        most = reduce(b.maximum, new[x.rank - len(pad) // 2 :])
        b.guard(b.compare("sgt", most, 0), "padding by less than nothing leaves no elements")
    padded = [i for i in range(x.rank) if not (low[i] == 0 and high[i] == 0)]
    position = _MODES[mode]
    is_wide = all(isinstance(p, int) and p >= 0 for p in (low[-1], high[-1]))
    if b.loads_are_cheap and x.rank - 1 in padded and is_wide and 0 not in x.shape:
        return _pad_rows(b, x, new, low, [i for i in padded if i < x.rank - 1], position)

    def at(*indices: Size) -> Element:
        places = list(indices)
        for i in padded:
            places[i] = position(b, b.sub(indices[i], low[i]), old[i])
        return b.load(x, places)

    return b.generate(new, x.dtype, at)


def _pad_rows(
    b: RuleBuilder, x: Tensor, new: list[Size], low: Sequence[Size], padded: Sequence[int], position: Position
) -> Tensor:
    """Pad the last dim, and others, row by row: a border, a row of the input, which is copied as it is, a border."""
    stored = b.to(x, dtypes.uint8) if x.dtype.is_bool else x
    old, start = b.sizes(x), low[-1]
    end = b.add(start, old[-1])

    def row(at: list[Size], into: Tensor) -> list[Tensor]:
        places = list(at)
        for i in padded:
            places[i] = position(b, b.sub(at[i], low[i]), old[i])

        def border(j: SSAValue, into: Tensor) -> list[Tensor]:
            place = position(b, b.sub(j, start), old[-1])
            return [b.store(into, [*at, j], b.load(stored, [*places, place]))]

        def middle(j: SSAValue, into: Tensor) -> list[Tensor]:
            return [b.store(into, [*at, j], b.load(stored, [*places, b.sub(j, start)]))]

        for first, last, body in ((0, start, border), (start, end, middle), (end, new[-1], border)):
            [into] = b.loop(first, last, [into], body)
        return [into]

    return b.to(b.nest(new[:-1], [b.empty(new, stored.dtype)], row)[0], x.dtype)


@linalg_rule("aten.pad")
def pad(b: RuleBuilder, x: Tensor, pad: Sequence[Size], mode: str, value: Any) -> Tensor:
    if mode == "constant":
        return constant_pad_nd(b, x, pad, 0 if value is None else value)
    return _pad_from_input(b, x, pad, mode)


@linalg_rule("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def reflection_pad(b: RuleBuilder, x: Tensor, padding: Sequence[Size]) -> Tensor:
    return _pad_from_input(b, x, padding, "reflect")


@linalg_rule("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def replication_pad(b: RuleBuilder, x: Tensor, padding: Sequence[Size]) -> Tensor:
    return _pad_from_input(b, x, padding, "replicate")


@linalg_rule("aten._pad_circular")
def pad_circular(b: RuleBuilder, x: Tensor, pad: Sequence[Size]) -> Tensor:
    return _pad_from_input(b, x, pad, "circular")


# --- Upsampling ---


def _output_sizes(b: RuleBuilder, x: Tensor, sizes: Sequence[Size] | None, scales: Sequence[Any] | None) -> list[Size]:
    """Compute the sizes of the last dims of an upsampled tensor, given as such or as factors."""
    if sizes:
        return list(sizes)
    assert scales is not None
    old = b.sizes(x)[-len(scales) :]
    return [_scaled(b, size, scale) for size, scale in zip(old, scales, strict=True)]


def _scaled(b: RuleBuilder, size: Size, scale: float) -> Size:
    if isinstance(size, int):
        return int(size * scale)
    if float(scale).is_integer():
        return b.mul(size, int(scale))
    return whole(b, (as_float(b, size) * scale).floor())


def _require_pixels(b: RuleBuilder, sizes: Sequence[Size]) -> None:
    """Guard that an image has pixels: nothing can be resized to, or made from, an empty one."""
    for size in sizes:
        b.guard(b.compare("sgt", size, 0), "an image without pixels cannot be resized")


def _ratio(b: RuleBuilder, old: Size, new: Size, scale: float | None, dtype: DType) -> Element:
    """Compute how far one step in the result goes in the input, rounded to the dtype as PyTorch rounds it."""
    if scale is not None and scale > 0:
        return b.element(1.0 / scale, dtype)
    return b.scalar(b.index(old)).to(dtype) / b.scalar(b.index(new)).to(dtype)


def _upsample_nearest(
    b: RuleBuilder, x: Tensor, new: Sequence[Size], scales: Sequence[float | None], shift: float = 0.0
) -> Tensor:
    lead = x.rank - len(new)
    old = b.sizes(x)
    _require_pixels(b, [*old[lead:], *new])
    factors = [_whole_factor(o, n, s, shift) for o, n, s in zip(old[lead:], new, scales, strict=True)]
    if all(f is not None for f in factors):
        return _repeat(b, x, [f or 1 for f in factors])
    ratios = [_ratio(b, o, n, s, dtypes.float32) for o, n, s in zip(old[lead:], new, scales, strict=True)]

    def at(*indices: Size) -> Element:
        places = list(indices)
        for i, ratio in enumerate(ratios, lead):
            step = b.scalar(b.index(indices[i])).to(dtypes.float32)
            source = b.as_index((((step + shift) if shift else step) * ratio).floor())
            places[i] = b.minimum(source, b.sub(old[i], 1))
        return b.load(x, places)

    return b.generate([*old[:lead], *new], x.dtype, at)


def _whole_factor(old: Size, new: Size, scale: float | None, shift: float) -> int | None:
    """Return how often each element is repeated if PyTorch's float arithmetic comes to just that; else None."""
    import numpy as np

    if scale is not None and float(scale).is_integer() and not isinstance(new, int):
        # Powers of two scale floats exactly, whatever the size is.
        return int(scale) if int(scale) & (int(scale) - 1) == 0 else None
    if not (isinstance(old, int) and isinstance(new, int)) or old == 0 or new % old:
        return None
    step = np.float32(1.0 / scale) if scale else np.float32(old) / np.float32(new)
    source = np.floor((np.arange(new, dtype=np.float32) + np.float32(shift)) * step)
    return new // old if (source == np.arange(new) // (new // old)).all() else None


def _repeat(b: RuleBuilder, x: Tensor, factors: Sequence[int]) -> Tensor:
    """Repeat each element of the last dims so many times in a row."""
    lead = x.rank - len(factors)
    sizes = b.sizes(x)
    split: list[Size] = sizes[:lead] + [s for size in sizes[lead:] for s in (size, 1)]
    wide: list[Size] = sizes[:lead] + [s for pair in zip(sizes[lead:], factors, strict=True) for s in pair]
    groups = [[i] for i in range(lead)] + [[lead + 2 * i, lead + 2 * i + 1] for i in range(len(factors))]
    return b.collapse(b.broadcast_to(b.expand(x, groups, split), wide), groups)


@linalg_rule("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d")
def upsample_nearest(b: RuleBuilder, x: Tensor, output_size: Sequence[Size], *scales: float | None) -> Tensor:
    return _upsample_nearest(b, x, output_size, scales)


@linalg_rule("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def upsample_nearest_vec(b: RuleBuilder, x: Tensor, output_size: Any, scale_factors: Any) -> Tensor:
    new = _output_sizes(b, x, output_size, scale_factors)
    return _upsample_nearest(b, x, new, scale_factors or [None] * len(new))


@linalg_rule("aten._upsample_nearest_exact1d", "aten._upsample_nearest_exact2d", "aten._upsample_nearest_exact3d")
def upsample_nearest_exact(b: RuleBuilder, x: Tensor, output_size: Sequence[Size], *scales: float | None) -> Tensor:
    return _upsample_nearest(b, x, output_size, scales, shift=0.5)


@linalg_rule(
    "aten._upsample_nearest_exact1d.vec", "aten._upsample_nearest_exact2d.vec", "aten._upsample_nearest_exact3d.vec"
)  # fmt: skip
def upsample_nearest_exact_vec(b: RuleBuilder, x: Tensor, output_size: Any, scale_factors: Any) -> Tensor:
    new = _output_sizes(b, x, output_size, scale_factors)
    return _upsample_nearest(b, x, new, scale_factors or [None] * len(new), shift=0.5)


def _linear_ratio(b: RuleBuilder, old: Size, new: Size, scale: float | None, align: bool, dtype: DType) -> Element:
    if not align:
        return _ratio(b, old, new, scale, dtype)
    # The corners coincide: n - 1 steps in the input are m - 1 steps in the result.
    steps = b.maximum(b.sub(new, 1), 1)
    ratio = b.scalar(b.index(b.sub(old, 1))).to(dtype) / b.scalar(b.index(steps)).to(dtype)
    if isinstance(new, int):
        return ratio if new > 1 else b.element(0, dtype)
    return (b.scalar(new) > 1).select(ratio, 0)


def _upsample_linear(
    b: RuleBuilder, x: Tensor, new: Sequence[Size], align: bool, scales: Sequence[float | None]
) -> Tensor:
    if not x.dtype.is_float:
        raise Unsupported(f"linear interpolation of {x.dtype}")
    lead = x.rank - len(new)
    old = b.sizes(x)
    _require_pixels(b, [*old[lead:], *new])
    dtype = x.dtype.compute
    ratios = [_linear_ratio(b, o, n, s, align, dtype) for o, n, s in zip(old[lead:], new, scales, strict=True)]
    # A dim that keeps its size is not blended: its neighbours have no part in it, which infinities would show.
    kept = [b.compare("eq", o, n) for o, n in zip(old[lead:], new, strict=True)]

    def blend(places: list[Size], sources: list[Element], i: int) -> Element:
        """Interpolate between the two neighbours in dim i of what the dims after it give."""
        if i == x.rank:
            return b.load(x, places).to(dtype)
        source = sources[i - lead]
        floor = b.as_index(source)
        left = b.minimum(floor, b.sub(old[i], 1))
        right = b.select(kept[i - lead], left, b.minimum(b.add(left, 1), b.sub(old[i], 1)))
        weight = source - b.scalar(b.index(left)).to(dtype)
        weight = weight.maximum(0).minimum(1)
        low = blend([*places[:i], left, *places[i + 1 :]], sources, i + 1)
        high = blend([*places[:i], right, *places[i + 1 :]], sources, i + 1)
        return (1 - weight) * low + weight * high

    def at(*indices: Size) -> Element:
        sources = []
        for index, ratio, same in zip(indices[lead:], ratios, kept, strict=True):
            step = b.scalar(b.index(index)).to(dtype)
            source = step * ratio if align else ((step + 0.5) * ratio - 0.5).maximum(0)
            sources.append(
                step if same is True else source if same is False else b.scalar_bool(same).select(step, source)
            )
        return blend(list(indices), sources, lead)

    return b.generate([*old[:lead], *new], x.dtype, at)


@linalg_rule("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d")
def upsample_linear(
    b: RuleBuilder, x: Tensor, output_size: Sequence[Size], align_corners: bool, *scales: float | None
) -> Tensor:
    return _upsample_linear(b, x, output_size, align_corners, scales)


@linalg_rule("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec")
def upsample_linear_vec(b: RuleBuilder, x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor:
    new = _output_sizes(b, x, output_size, scale_factors)
    return _upsample_linear(b, x, new, align_corners, scale_factors or [None] * len(new))
