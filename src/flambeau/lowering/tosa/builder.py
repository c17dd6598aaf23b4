"""The verbs of the rules as TOSA: reductions, products, windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from xdsl.dialects.builtin import f32, i1, i8, i32, i64
from xdsl.ir import Attribute, Block, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.generic import Body
from flambeau.lowering.tosa.access import COMBINE, AccessBuilder
from flambeau.lowering.tosa.vocabulary import element_of
from flambeau.lowering.whole.values import reduction_of, shape_of

_REDUCE = {"add": "reduce_sum", "mul": "reduce_product", "max": "reduce_max", "min": "reduce_min"}
_REDUCE_BOOL = {
    "add": "reduce_any", "or": "reduce_any", "max": "reduce_any", "maxu": "reduce_any", "mul": "reduce_all",
    "and": "reduce_all", "min": "reduce_all", "minu": "reduce_all",
}  # fmt: skip


class TosaBuilder(AccessBuilder):
    """Builds TOSA."""

    exact_extremes = True
    """Whether the maximum of nothing but -inf must be -inf; rules that only subtract it do without."""

    narrowed = MappingProxyType({dtypes.float64: dtypes.float32})

    points: tuple[int, int] | None = None
    """The zero points of both sides of a product of 8-bit integers, whose result has 32 bits."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.forms: dict[SSAValue, Any] = {}
        """Floats that are known to be integers times a scale; `lowering/tosa/quantized.py` has more."""

    def zero_points(self, element: Attribute) -> list[SSAValue]:
        """The zero points of both sides of a product as operands."""
        return [self._single(p, element, [1]) for p in self.points or (0, 0)]

    # --- Reductions ---

    def reduced(self, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
        shape = shape_of(value)
        element = element_of(value)
        names = _REDUCE_BOOL if element == i1 else _REDUCE
        narrow = element in (i8, dtypes.int16.builtin)
        if kind in names and not (kind == "mul" and dtype.is_int):
            work = self.converted(value, i32) if narrow else value
            source = work
            for dim in dims:
                work = self._reduced_along(names[kind], work, dim)
            if dtype.is_float and kind in ("max", "min") and self.exact_extremes:
                work = self._with_infinity(kind, source, work, dims)
            value = self.converted(work, element)
        else:
            for dim in dims:
                value = self._halved(kind, value, dim, dtype)
        sizes = [1 if i in dims else s for i, s in enumerate(shape)]
        neutral = {"add": 0, "or": 0, "xor": 0, "mul": 1, "and": dtype.max if dtype.is_bool else -1}
        neutral |= {"max": dtype.min, "min": dtype.max, "maxu": dtype.min, "minu": dtype.max}
        if init != neutral[kind]:
            with self.frame([1] * len(sizes)):
                both = COMBINE[kind](Element(self, value, dtype), init)
            value = both.value
        kept = [self._length(value, i) for i in range(len(shape)) if i not in dims]
        return self.reshaped(value, kept)

    def _with_infinity(self, kind: str, source: SSAValue, found: SSAValue, dims: Sequence[int]) -> SSAValue:
        """Engines start a maximum at the lowest number there is: where all elements are below it, that is put right."""
        limit = float("-inf") if kind == "max" else float("inf")
        end = self.number(source, limit)
        only = self.on("equal", (source, end), i1)
        for dim in dims:
            only = self._reduced_along("reduce_all", only, dim)
        return self.on("select", (only, self.number(found, limit), found), element_of(found))

    def _length(self, value: SSAValue, dim: int) -> Size:
        size = shape_of(value)[dim]
        return size if size is not None else self._dim_of([value], dim)

    def _reduced_along(self, name: str, value: SSAValue, dim: int) -> SSAValue:
        shape = shape_of(value)
        properties: dict[str, Attribute] = {"axis": tosa.axis(dim)}
        if name in ("reduce_max", "reduce_min"):
            properties["nan_mode"] = tosa.nan_mode()
        type_ = tensor_type(tuple(1 if i == dim else s for i, s in enumerate(shape)), element_of(value))
        return self.make(name, (value,), type_, properties)

    def _halved(self, kind: str, value: SSAValue, dim: int, dtype: DType) -> SSAValue:
        """Combine both halves of a dim until one element is left: for what TOSA has no reduction."""
        sizes = [self._length(value, i) for i in range(len(shape_of(value)))]
        count = sizes[dim]
        if not isinstance(count, int):
            raise Unsupported(f"TOSA has no reduction ({kind}) of {dtype} along a size that only the run time knows")
        x = Tensor(value, dtype, sizes)
        steps = [1] * x.rank
        while count > 1:
            half, odd = divmod(count, 2)
            lengths = self.sizes(x)
            lengths[dim] = half
            first, second = (
                self.slice(x, [s if i == dim else 0 for i in range(x.rank)], lengths, steps) for s in (0, half)
            )
            both = self.elementwise([first, second], COMBINE[kind], dtype, lengths)
            if odd:
                lengths = [*lengths[:dim], 1, *lengths[dim + 1 :]]
                last = self.slice(x, [count - 1 if i == dim else 0 for i in range(x.rank)], lengths, steps)
                shape = tuple(half + 1 if i == dim else static(s) for i, s in enumerate(lengths))
                type_ = tensor_type(shape, element_of(both.value))
                both = Tensor(self.concatenated([both.value, last.value], dim, type_), dtype)
            x, count = both, half + odd
        return x.value

    # --- Contractions and windows ---

    def contract(self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any = None) -> Tensor:
        """`matmul` and `batch_matmul`, accumulated as PyTorch accumulates."""
        dtype = ins[0].dtype.compute if self.points is None else dtypes.int32
        if any(0 in t.shape for t in ins):
            return self.full(sizes, 0, dtype)
        if name not in ("matmul", "batch_matmul"):
            raise Unsupported(f"linalg.{name} in TOSA")
        if dtype.is_bool:
            raise Unsupported("a product of boolean matrices")
        batched = [t if name == "batch_matmul" else self.unsqueeze(t, 0) for t in ins]
        if dtype.is_int and self.points is None:
            batched = [self.to(t, t.dtype if element_of(t.value) == i64 else dtypes.int32) for t in batched]
        zeros = self.zero_points(element_of(batched[0].value))
        shape = tuple(map(static, sizes if name == "batch_matmul" else [1, *sizes]))
        element = i32 if dtype.is_int and element_of(batched[0].value) != i64 else self.held(dtype.builtin)
        value = self.make("matmul", (*(t.value for t in batched), *zeros), tensor_type(shape, element))
        whole = sizes if name == "batch_matmul" else [1, *sizes]
        result = Tensor(value, dtypes.int32 if element == i32 and dtype.bits < 32 else dtype, whole)
        result = result if name == "batch_matmul" else self.reshape(result, sizes)
        return self.to(result, dtype)

    def window_reduce(
        self,
        x: Tensor,
        kernel: Sequence[Size],
        out: Sequence[Size],
        strides: Sequence[int],
        dilations: Sequence[int],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        indexed: bool = False,
    ) -> list[Tensor]:
        windows = [k for k in kernel if isinstance(k, int)]
        pooled = None
        if len(inits) == 1 and not indexed and len(windows) == len(kernel) <= 2 and all(d == 1 for d in dilations):
            pooled = self._pooled(x, windows, out, strides, inits[0], body)
        if pooled is not None:
            return [pooled]
        return super().window_reduce(x, kernel, out, strides, dilations, inits, body, indexed)

    def _pooled(
        self,
        x: Tensor,
        kernel: Sequence[int],
        out: Sequence[Size],
        strides: Sequence[int],
        start: tuple[Any, DType],
        body: Body,
    ) -> Tensor | None:
        """The maximum or the sum of windows as TOSA's poolings; None where they mean something else."""
        init, dtype = start
        lead = x.rank - len(kernel)
        sizes = self.sizes(x)
        if (
            not (dtype.is_float or dtype is dtypes.int8)
            or 0 in x.shape
            or (None in x.shape[lead:] and any(s > 1 for s in strides))
        ):
            return None
        with self.frame(sizes):
            result = body(Element(self, x.value, x.dtype), self._accumulator(dtype))
            reduction = reduction_of(result.value)
            neutral = {"max": dtype.min, "add": 0 if dtype.is_float else None}
            if reduction is None or neutral.get(reduction.kind) != init:
                return None
            x = Tensor(self.spread(reduction.term, sizes), dtype, sizes)
        # Windows end with the input.
        reach = [
            b if not isinstance(o, int) else (o - 1) * s + k
            for b, o, s, k in zip(sizes[lead:], out, strides, kernel, strict=True)
        ]
        x = self.slice(x, [0] * x.rank, [*sizes[:lead], *reach], [1] * x.rank)
        plane, places, window, steps = list(reach), list(out), list(kernel), list(strides)
        if len(kernel) == 1:
            plane, places, window, steps = [1, *plane], [1, *places], [1, *window], [1, *steps]
        # Batch and channels keep their places, other dims before the windows are one batch.
        channels = sizes[1] if lead == 2 else 1
        batch = sizes[0] if lead == 2 else self.product(sizes[:lead])
        last = self.transpose(self.reshape(x, [batch, channels, *plane]), [0, 2, 3, 1])
        wanted = [batch, *places, channels]
        type_ = tensor_type(tuple(map(static, wanted)), element_of(x.value))
        properties: dict[str, Attribute] = {
            "kernel": tosa.ints(window), "stride": tosa.ints(steps), "pad": tosa.ints([0] * 4),
        }  # fmt: skip
        if reduction.kind == "max":
            properties["nan_mode"] = tosa.nan_mode()
            value = self.make("max_pool2d", (last.value,), type_, properties)
            if dtype.is_float:
                # Engines start at the lowest number there is, where PyTorch starts at -inf.
                lowest = self.number(value, float(np.finfo(np.float32).min))
                below = self.on("greater_equal", (lowest, value), i1)
                value = self.on("select", (below, self.number(value, float("-inf")), value), element_of(value))
        else:
            zero = self.zero_point(element_of(x.value))
            properties["acc_type"] = f32
            mean = self.make("avg_pool2d", (last.value, zero, zero), type_, properties)
            value = self.product_of(mean, self.number(mean, float(math.prod(kernel))))
        back = self.transpose(Tensor(value, dtype, wanted), [0, 3, 1, 2])
        return self.reshape(back, [*sizes[:lead], *out])

    def named(self, name: str, ins: Sequence[Tensor], out: Tensor, body: Any, properties: Any = None) -> Tensor:
        """linalg's poolings as windows."""
        if not name.startswith("pooling_"):
            raise Unsupported(f"linalg.{name} in TOSA")
        x, window = ins
        strides, dilations = ([int(v) for v in properties[key].get_values()] for key in ("strides", "dilations"))
        inits = [(self.fills[out.value], out.dtype)]
        last = self.sizes(out)[-window.rank :]
        return self.window_reduce(
            x, self.sizes(window), last, strides, dilations, inits, lambda e, acc: body(e, e, acc)
        )[0]
