"""StableHLO's ops on whole tensors, which the verbs of rules are put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, Size, Tensor, i64_array, is_same, static, tensor_type, wrap
from flambeau.lowering.element import Element
from flambeau.lowering.stablehlo.groups import Groups
from flambeau.lowering.stablehlo.vocabulary import CONVERSIONS, RULES, SAME, flipped
from flambeau.lowering.verbs import Body, Windows, window_lists
from flambeau.lowering.whole.builder import WholeBuilder
from flambeau.lowering.whole.target import TargetOps
from flambeau.lowering.whole.values import POSITION, element_of, reduction_of, shape_of

REDUCERS = {
    "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
    "xor": "xor",
}  # fmt: skip
"""The ops that combine two elements, by their kind in `combining.JOINS`."""

ROWS = stablehlo.scatter_dimension_numbers(
    update_window_dims=(1,),
    inserted_window_dims=(0,),
    input_batching_dims=(),
    scatter_indices_batching_dims=(),
    scatter_dims_to_operand_dims=(0,),
    index_vector_dim=1,
)
"""A scatter of rows [updates, width] into [rows, width], at indices [updates, 1]."""


def overwriting(dtype: DType) -> Region:
    """Make the region of a scatter in which the update wins."""
    block = Block(arg_types=[tensor_type((), dtype.builtin)] * 2)
    block.add_op(stablehlo.op("return").create(operands=[block.args[1]]))
    return Region(block)


class StablehloOps(TargetOps):
    """The ops of StableHLO, with its dynamic ones where sizes are not known."""

    name = "StableHLO"

    def __init__(self, b: WholeBuilder[Any], groups: Groups | None = None) -> None:
        super().__init__(b)
        self.broadcast_from: dict[SSAValue, SSAValue] = {}
        self.groups = groups or Groups()
        """The devices that process groups stand for."""
        self.channels = 0
        """How many exchanges between devices there are."""

    # --- Plumbing ---

    def on(
        self,
        name: str,
        operands: Sequence[SSAValue],
        element: Attribute,
        properties: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """Emit an op whose result has the shape of its last operand."""
        type_ = tensor_type(shape_of(operands[-1]), element)
        return self.b.emit(stablehlo.op(name), operands, (type_,), properties or {}).results[0]

    def make(
        self,
        name: str,
        operands: Sequence[SSAValue],
        type_: Attribute,
        properties: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> SSAValue:
        """Emit an op with one result."""
        return self.b.emit(stablehlo.op(name), operands, (type_,), properties or {}, regions=regions).results[0]

    def like(self, value: SSAValue, number: Any) -> SSAValue:
        """Make a constant of a value's shape and type."""
        dtype = self.b.dtype_of(element_of(value))
        shape = shape_of(value)
        made = self.splat(number, dtype, [1] * len(shape))
        return self.broadcast(made, [self.dim_of(value, i) for i in range(len(shape))])

    def dim_of(self, value: SSAValue, dim: int) -> Size:
        size = shape_of(value)[dim]
        return size if size is not None else self._dim(value, dim)

    def _dim(self, value: SSAValue, dim: int) -> SSAValue:
        return self.b.emit(tensor.DimOp, (value, self.b.index(dim)), (INDEX,)).results[0]

    def shape_operand(self, sizes: Sequence[Size]) -> SSAValue:
        """Build the 1-d i64 operand of a dynamic op from sizes."""
        parts = []
        for size in sizes:
            if isinstance(size, int):
                parts.append(self.b.constant(size, dtypes.int64))
            else:
                parts.append(self.b.emit(arith.IndexCastOp, (size,), (i64,)).results[0])
        return self.b.emit(tensor.FromElementsOp, parts, (TensorType(i64, [len(parts)]),)).results[0]

    # --- Elements ---

    def apply(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        if name in SAME:
            return self.on(SAME[name], operands, element)
        if name in CONVERSIONS:
            return operands[0] if element_of(operands[0]) == element else self.on("convert", operands, element)
        rule = RULES.get(name)
        if rule is None:
            raise Unsupported(f"StableHLO has no twin of {name}")
        return rule(self, operands, element, properties)

    def splat(self, value: Any, dtype: DType, shape: Sequence[int]) -> SSAValue:
        key = ("splat", repr(value), dtype, tuple(shape))
        return self.b.constant_op(key, lambda: _constant(value, dtype, shape))

    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        return self.make("constant", (), type_, {"value": attr})

    def from_scalar(self, value: SSAValue, dtype: DType) -> SSAValue:
        if value.type == INDEX:
            value = self.b.emit(arith.IndexCastOp, (value,), (i64,)).results[0]
        held = self.b.emit(tensor.FromElementsOp, (value,), (tensor_type((), value.type),)).results[0]
        type_ = tensor_type((), dtype.builtin)
        return held if value.type == dtype.builtin else self.make("convert", (held,), type_)

    # --- Shapes ---

    def broadcast(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have = shape_of(value)
        wanted = tuple(map(static, sizes))
        if have == wanted:
            # A dim that is dynamic on both sides is that of the loop already.
            return value
        # A broadcast of a broadcast is one, of where it began.
        source = self.broadcast_from.get(value, value)
        made = self._broadcast(source, shape_of(source), wanted, sizes)
        self.broadcast_from[made] = source
        return made

    def _broadcast(
        self, value: SSAValue, have: tuple[int | None, ...], wanted: tuple[int | None, ...], sizes: Sequence[Size]
    ) -> SSAValue:
        dims = {"broadcast_dimensions": i64_array(tuple(range(len(have))))}
        type_ = tensor_type(wanted, element_of(value))
        if None not in wanted:
            return self.make("broadcast_in_dim", (value,), type_, dims)
        dims["known_expanding_dimensions"] = i64_array(
            tuple(i for i, d in enumerate(have) if d == 1 and wanted[i] != 1)
        )
        dims["known_nonexpanding_dimensions"] = i64_array(tuple(i for i, d in enumerate(have) if d != 1))
        return self.make("dynamic_broadcast_in_dim", (value, self.shape_operand(sizes)), type_, dims)

    def reshape(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have, wanted = shape_of(value), tuple(map(static, sizes))
        type_ = tensor_type(wanted, element_of(value))
        if have == wanted and have.count(None) <= 1:
            return value
        if None not in wanted:
            return self.make("reshape", (value,), type_)
        return self.make("dynamic_reshape", (value, self.shape_operand(sizes)), type_)

    def transpose(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        shape = shape_of(value)
        type_ = tensor_type(tuple(shape[i] for i in order), element_of(value))
        return self.make("transpose", (value,), type_, {"permutation": i64_array(tuple(order))})

    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        type_ = tensor_type(tuple(map(static, sizes)), element_of(x.value))
        b, own = self.b, self.b.sizes(x)
        reach = [n if k == 1 else b.add(b.mul(b.sub(n, 1), k), 1) for n, k in zip(sizes, steps, strict=True)]
        limits = [b.add(s, r) for s, r in zip(starts, reach, strict=True)]
        limits = [n if is_same(lim, n) else lim for lim, n in zip(limits, own, strict=True)]
        groups = (starts, limits, steps)
        if all(isinstance(s, int) for group in groups for s in group) and None not in x.shape:
            names = ("start_indices", "limit_indices", "strides")
            properties = {n: i64_array(tuple(g)) for n, g in zip(names, groups, strict=True)}
            return self.make("slice", (x.value,), type_, properties)
        is_static = None not in x.shape and all(isinstance(n, int) for n in sizes)
        if is_static and all(isinstance(s, int) and s == 1 for s in steps):
            properties = {"slice_sizes": i64_array(type_.get_shape())}
            return self.make("dynamic_slice", (x.value, *map(self._place, starts)), type_, properties)
        return self.make("real_dynamic_slice", (x.value, *(self.shape_operand(g) for g in groups)), type_)

    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any, sizes: Sequence[Size]) -> SSAValue:
        type_ = tensor_type(tuple(map(static, sizes)), element_of(x.value))
        start = self.splat(value, x.dtype, []) if not isinstance(value, SSAValue) else self.from_scalar(value, x.dtype)
        if all(isinstance(p, int) for p in (*low, *high)):
            properties = {
                "edge_padding_low": i64_array(tuple(low)),
                "edge_padding_high": i64_array(tuple(high)),
                "interior_padding": i64_array((0,) * x.rank),
            }
            return self.make("pad", (x.value, start), type_, properties)
        zeros: list[Size] = [0] * x.rank
        amounts = [self.shape_operand(g) for g in (low, high, zeros)]
        return self.make("dynamic_pad", (x.value, start, *amounts), type_)

    def insert_slice(
        self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]
    ) -> SSAValue | None:
        """Emit `dynamic_update_slice`; None where the slice has gaps."""
        if any(s != 1 for s in steps):
            return None
        at = map(self._place, starts)
        return self.make("dynamic_update_slice", (into.value, source.value, *at), into.value.type)

    def _place(self, start: Size) -> SSAValue:
        """Convert a start to the 0-d operand of a slice of known size."""
        return self.splat(start, POSITION, []) if isinstance(start, int) else self.from_scalar(start, POSITION)

    def concatenate(self, values: Sequence[SSAValue], dim: int, type_: Attribute) -> SSAValue:
        full = [v for v in values if shape_of(v)[dim] != 0] or values[:1]
        if len(full) == 1:
            return self.cast(full[0], type_)
        return self.make("concatenate", full, type_, {"dimension": IntegerAttr(dim, i64)})

    def reverse(self, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        return self.make("reverse", (value,), value.type, {"dimensions": i64_array(tuple(dims))})

    def iota(self, size: Size) -> SSAValue:
        type_ = tensor_type((static(size),), i64)
        properties = {"iota_dimension": IntegerAttr(0, i64)}
        if isinstance(size, int):
            return self.make("iota", (), type_, properties)
        return self.make("dynamic_iota", (self.shape_operand([size]),), type_, properties)

    # --- Reductions and gathers ---

    def reduce(self, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
        if kind in ("maxu", "minu") and not dtype.is_bool:
            # Unsigned numbers in the order of signed ones.
            sign = -(1 << (dtype.bits - 1))
            signed = self.reduce(kind[:3], flipped(self, value), dims, wrap(int(init) ^ sign, dtype), dtype)
            return flipped(self, signed)
        kind = {"maxu": "or", "minu": "and"}.get(kind, kind)
        name = REDUCERS.get(kind)
        if name is None:
            raise Unsupported(f"a reduction ({kind}) of {dtype}")
        if dtype.is_bool and name in ("add", "multiply"):
            name = {"add": "or", "multiply": "and"}[name]
        shape = shape_of(value)
        kept = tuple(s for i, s in enumerate(shape) if i not in dims)
        start = self.splat(init, dtype, [])
        region = self.reducer(name, dtype)
        properties = {"dimensions": i64_array(tuple(dims))}
        return self.make("reduce", (value, start), tensor_type(kept, dtype.builtin), properties, [region])

    def reducer(self, name: str, dtype: DType) -> Region:
        """Build the region of a reduction: one op on two elements."""
        element = tensor_type((), dtype.builtin)
        block = Block(arg_types=[element, element])
        outer, self.b.block = self.b.block, block
        try:
            result = self.make(name, tuple(block.args), element)
            self.b.emit(stablehlo.op("return"), (result,))
        finally:
            self.b.block = outer
        return Region(block)

    def gather(self, x: Tensor, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
        rank = len(sizes)
        columns = [self.reshape(i, [*sizes, 1]) for i in indices]
        wanted = tuple(map(static, sizes))
        joined = self.concatenate(columns, rank, tensor_type((*wanted, len(columns)), i64))
        numbers = stablehlo.gather_dimension_numbers(
            offset_dims=(),
            collapsed_slice_dims=tuple(range(x.rank)),
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            start_index_map=tuple(range(x.rank)),
            index_vector_dim=rank,
        )
        properties: dict[str, Attribute] = {
            "dimension_numbers": numbers,
            "slice_sizes": i64_array((1,) * x.rank),
            "indices_are_sorted": IntegerAttr(0, 1),
        }
        return self.make("gather", (x.value, joined), tensor_type(wanted, element_of(x.value)), properties)

    def scatter(self, x: Tensor, rows: Tensor, updates: Tensor, combine: str | None) -> Tensor:
        """Scatter whole rows by `stablehlo.scatter`; indices that repeat are combined in any order."""
        if combine is None:
            region = overwriting(x.dtype)
        else:
            name = REDUCERS[combine]
            region = self.reducer(
                {"add": "or", "multiply": "and"}.get(name, name) if x.dtype.is_bool else name, x.dtype
            )
        properties: dict[str, Attribute] = {
            "scatter_dimension_numbers": ROWS,
            "indices_are_sorted": IntegerAttr(0, 1),
            "unique_indices": IntegerAttr(0, 1),
        }
        places = self.b.to(self.b.reshape(rows, [self.b.size(rows, 0), 1]), dtypes.int32)
        operands = (x.value, places.value, updates.value)
        return Tensor(self.make("scatter", operands, x.value.type, properties, [region]), x.dtype, x._sizes)

    # --- Contractions and windows ---

    def contract(self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any) -> Tensor:
        """Contract by `dot_general` (`matmul`, `batch_matmul`) or by `convolution`; zeros where an operand is empty."""
        dtype = ins[0].dtype.compute
        if any(0 in t.shape for t in ins):
            return self.b.full(sizes, 0, dtype)
        if name == "matmul":
            return self.dot(ins[0], ins[1], [], [], [1], [0], sizes, dtype)
        if name == "batch_matmul":
            return self.dot(ins[0], ins[1], [0], [0], [2], [1], sizes, dtype)
        n = ins[0].rank - 2
        strides, dilations = window_lists(properties)
        return self.convolve(ins[0], ins[1], strides, [(0, 0)] * n, [1] * n, dilations, 1, sizes, dtype)

    def dot(
        self,
        x: Tensor,
        y: Tensor,
        x_batch: Sequence[int],
        y_batch: Sequence[int],
        x_sum: Sequence[int],
        y_sum: Sequence[int],
        sizes: Sequence[Size],
        dtype: DType,
    ) -> Tensor:
        """Emit `stablehlo.dot_general`; the result has batch dims, then the rest of x, then the rest of y."""
        numbers = stablehlo.dot_dimension_numbers(tuple(x_batch), tuple(y_batch), tuple(x_sum), tuple(y_sum))
        type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
        value = self.make("dot_general", (x.value, y.value), type_, {"dot_dimension_numbers": numbers})
        return Tensor(value, dtype, sizes)

    def batched_product(self, x: Tensor, y: Tensor) -> Tensor | None:
        if 0 in x.shape or 0 in y.shape:
            return None
        xs, ys, n = self.b.sizes(x), self.b.sizes(y), x.rank - 2
        self.b.same_size(xs[-1], ys[-2], "mismatching contracting dimension")
        batch = list(range(n))
        return self.dot(x, y, batch, batch, [n + 1], [n], [*xs[:-1], ys[-1]], x.dtype.compute)

    def convolve(
        self,
        x: Tensor,
        weight: Tensor,
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        spread: Sequence[int],
        dilations: Sequence[int],
        groups: int,
        sizes: Sequence[Size],
        dtype: DType,
    ) -> Tensor:
        """Emit `stablehlo.convolution` of [batch, channel, *spatial] with [feature, channel, *window]."""
        n = x.rank - 2
        spatial = tuple(range(2, 2 + n))
        numbers = stablehlo.conv_dimension_numbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
        edges = DenseIntOrFPElementsAttr.from_list(TensorType(i64, [n, 2]), [p for pair in padding for p in pair])
        properties: dict[str, Attribute] = {
            "dimension_numbers": numbers,
            "window_strides": i64_array(tuple(strides)),
            "padding": edges,
            "lhs_dilation": i64_array(tuple(spread)),
            "rhs_dilation": i64_array(tuple(dilations)),
            "feature_group_count": IntegerAttr(groups, i64),
            "batch_group_count": IntegerAttr(1, i64),
        }
        type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
        return Tensor(self.make("convolution", (x.value, weight.value), type_, properties), dtype, sizes)

    def window_reduce(self, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor | None:
        b, kernel = self.b, [k for k in at.kernel if isinstance(k, int)]
        if len(kernel) < len(at.kernel):
            # There is an op for constant windows only.
            return None
        lead = x.rank - len(kernel)
        reach = [
            b.add(b.mul(b.sub(o, 1), s), b.add(b.mul(b.sub(k, 1), d), 1))
            for k, o, s, d in zip(kernel, at.out, at.strides, at.dilations, strict=True)
        ]
        x = b.slice(x, [0] * x.rank, [*b.sizes(x)[:lead], *reach], [1] * x.rank)
        (start, dtype), sizes = init, b.sizes(x)
        with b.frame(sizes):
            reduction = reduction_of(body(Element(b, x.value, x.dtype), b.accumulator(dtype)).value)
            name = REDUCERS.get(reduction.kind) if reduction is not None else None
            if reduction is None or name is None:
                return None
            term = b.spread(reduction.term, sizes)
        ones, wanted = (1,) * lead, [*sizes[:lead], *at.out]
        properties: dict[str, Attribute] = {
            "window_dimensions": i64_array((*ones, *kernel)),
            "window_strides": i64_array((*ones, *at.strides)),
            "window_dilations": i64_array((*ones, *at.dilations)),
        }
        type_ = tensor_type(tuple(map(static, wanted)), dtype.builtin)
        operands, region = (term, self.splat(start, dtype, [])), self.reducer(name, dtype)
        return Tensor(self.make("reduce_window", operands, type_, properties, [region]), dtype, wanted)


StablehloBuilder = WholeBuilder[StablehloOps]
"""Runs the bodies of rules as StableHLO."""


def _constant(value: Any, dtype: DType, shape: Sequence[int]) -> Any:
    type_ = tensor_type(tuple(shape), dtype.builtin)
    return stablehlo.op("constant").create(result_types=(type_,), properties={"value": splat_attr(value, dtype, shape)})


def splat_attr(value: Any, dtype: DType, shape: Sequence[int]) -> Attribute:
    """Make `dense<v>` of a shape."""
    type_ = tensor_type(tuple(shape), dtype.builtin)
    if dtype.is_complex:
        pair = complex(value)
        return DenseIntOrFPElementsAttr.from_list(type_, [(pair.real, pair.imag)])
    if dtype.is_integral:
        return DenseIntOrFPElementsAttr.from_list(
            type_, [int(bool(value)) if dtype.is_bool else wrap(int(value), dtype)]
        )
    return DenseIntOrFPElementsAttr.from_list(type_, [float(value.real if isinstance(value, complex) else value)])
