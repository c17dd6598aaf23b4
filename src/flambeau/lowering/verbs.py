"""The verbs that rules are written with.

There are two kinds of builders under `RuleBuilder`: `linalg/builder.py` makes loop nests, `whole/builder.py` ops on
whole tensors. What differs between them is abstract here; what is put together from that is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering import loops
from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor, wrap
from flambeau.lowering.element import Element

Body = Callable[..., Any]

MapResult = int | None | tuple[tuple[int, int], ...]
"""One result of an indexing map: a loop, None for the constant 0, or a sum of (loop, factor)."""


Loops = Sequence[int]
"""The loop that each dim of an operand runs along."""

ZERO_DIVISION = "ZeroDivisionError: an integer is divided by zero"


@dataclass(frozen=True)
class Windows:
    """How windows lie on the last dims of a tensor."""

    kernel: Sequence[Size]
    """How many elements a window has along each dim."""
    out: Sequence[Size]
    """How many windows there are along each dim."""
    strides: Sequence[int]
    """How far each window is from the one before."""
    dilations: Sequence[int]
    """How far the elements of a window are from each other."""


class RuleBuilder(LoweringBuilder, ABC):
    """Builds what rules say, on tensors: an `Element` is what a rule's body computes with."""

    loads_are_cheap: ClassVar[bool]
    """Whether a body may load any element; where it may not, a load is a gather, and `reverse` is there."""

    # --- Inside of bodies ---

    def element(self, value: Any, dtype: DType) -> Element:
        """Convert a number, an index value or an Element to an Element of the given dtype."""
        if isinstance(value, Element):
            return value.to(dtype)
        if isinstance(value, SSAValue):
            return self.scalar(value).to(dtype)
        return Element(self, self.constant(value, dtype), dtype)

    def scalar(self, value: SSAValue) -> Element:
        """Wrap a scalar SSA value (index, i64, f64, i1) in an Element."""
        if value.type == INDEX:
            return Element(self, self.value(arith.IndexCastOp, (value,), i64), dtypes.int64)
        for dtype in (dtypes.int64, dtypes.float64, dtypes.bool_):
            if value.type == dtype.builtin:
                return Element(self, value, dtype)
        raise TypeError(f"not a scalar: {value.type}")

    def scalar_bool(self, condition: bool | SSAValue) -> Element:
        """Wrap a condition on sizes in an Element."""
        value = condition if isinstance(condition, SSAValue) else self.constant(condition, dtypes.bool_)
        return Element(self, value, dtypes.bool_)

    def as_index(self, element: Element) -> SSAValue:
        """Convert an integer element to an index."""
        wide = element.to(dtypes.int64)
        return self.value(arith.IndexCastOp, (wide.value,), INDEX)

    @abstractmethod
    def loop_index(self, dim: int) -> SSAValue:
        """Return, inside a body, the loop variable of a dimension."""

    @abstractmethod
    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        """Load, inside a body, an element of any tensor."""

    def store(self, x: Tensor, indices: Sequence[Size], value: Element) -> Tensor:
        """Replace the element at one position; for loops over elements, where loads are cheap."""
        raise NotImplementedError

    def count_below(self, ascending: Tensor, target: Element) -> Element | None:
        """Count, inside a body, the elements of a 1-d tensor below the target; None where a search is better."""
        return None

    # --- Loops over all elements ---

    def broadcast_sizes(self, *shapes: Sequence[Size]) -> list[Size]:
        """Return the sizes that all shapes broadcast to; mismatches are guarded at run time."""
        rank = max((len(s) for s in shapes), default=0)
        result: list[Size] = [1] * rank
        for sizes in shapes:
            offset = rank - len(sizes)
            for i, size in enumerate(sizes):
                at = offset + i
                have = result[at]
                if isinstance(size, int) and size == 1:
                    continue
                if isinstance(have, int) and have == 1:
                    result[at] = size
                else:
                    result[at] = self.same_size(have, size, "sizes of tensors do not match for broadcasting")
        return result

    def loop_sizes(self, tensors: Sequence[Tensor], sizes: Sequence[Size] | None) -> Sequence[Size]:
        """Return the sizes of a loop over broadcast tensors; where sizes are given, guard that all tensors fit."""
        shapes = [self.sizes(t) for t in tensors]
        if sizes is None:
            return self.broadcast_sizes(*shapes)
        for shape in shapes:
            for size, wanted in zip(shape, sizes[len(sizes) - len(shape) :], strict=True):
                if not isinstance(size, int) or (size != 1 and not isinstance(wanted, int)):
                    self.same_size(wanted, size, "sizes of tensors do not match for broadcasting")
        return sizes

    @abstractmethod
    def generic(
        self,
        ins: Sequence[Tensor],
        in_maps: Sequence[tuple[MapResult, ...]],
        outs: Sequence[Tensor],
        out_maps: Sequence[tuple[MapResult, ...]],
        loops: int,
        body: Body,
        reduced: Sequence[int] = (),
    ) -> list[Tensor]:
        """Emit a loop nest; `body` takes an Element for each operand and returns one for each result."""

    @abstractmethod
    def each(
        self,
        operands: Sequence[tuple[Tensor, Sequence[int]]],
        sizes: Sequence[Size],
        body: Body,
        types: Sequence[DType],
    ) -> list[Tensor]:
        """Emit one loop over all positions; dims of an operand that have size 1 are broadcast.

        `body` takes an Element for each operand and returns one for each of `types`, the dtypes of the results.
        """

    def elementwise(
        self, tensors: Sequence[Tensor], body: Body, dtype: DType | Sequence[DType], sizes: Sequence[Size] | None = None
    ) -> Any:
        """Apply `body` to each element; operands are broadcast, to `sizes` where these are given."""
        sizes = self.loop_sizes(tensors, sizes)
        operands = [(t, range(len(sizes) - t.rank, len(sizes))) for t in tensors]
        results = self.each(operands, sizes, body, [dtype] if isinstance(dtype, DType) else dtype)
        return results[0] if isinstance(dtype, DType) else tuple(results)

    def elementwise_over(
        self, operands: Sequence[tuple[Tensor, Loops]], sizes: Sequence[Size], body: Body, dtype: DType
    ) -> Tensor:
        """Apply `body` to each element; each operand comes with the loop dims that its own dims run along."""
        for t, dims in operands:
            for d, size in zip(dims, self.sizes(t), strict=True):
                self.same_size(sizes[d], size, f"an operand does not have the size of dimension {d}")
        return self.each(operands, sizes, body, [dtype])[0]

    def map_indexed(self, tensors: Sequence[Tensor], sizes: Sequence[Size], dtype: DType, body: Body) -> Tensor:
        """Apply `body(indices, *elements)` to each element of broadcast operands and its position."""

        def with_indices(*elements: Element) -> Any:
            return body([self.loop_index(i) for i in range(len(sizes))], *elements)

        return self.elementwise(tensors, with_indices, dtype, sizes)

    def generate(self, sizes: Sequence[Size], dtype: DType, body: Body) -> Tensor:
        """Make a tensor whose elements are a function of their position (index values)."""
        return self.map_indexed([], sizes, dtype, lambda indices: body(*indices))

    def to(self, x: Tensor, dtype: DType) -> Tensor:
        """Convert the elements of a tensor."""
        if x.dtype is dtype:
            return x
        if x.dtype.builtin == dtype.builtin:
            return Tensor(x.value, dtype, x._sizes)
        return self.elementwise([x], lambda e: e.to(dtype), dtype)

    # --- Filling and moving ---

    @abstractmethod
    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """Make a tensor with one value everywhere; the value is a number, an Element or a scalar SSA value."""

    @abstractmethod
    def initial(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """Make an accumulator that starts at one value everywhere."""

    @abstractmethod
    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Reshape: the same elements in the same row-major order under another shape."""

    @abstractmethod
    def collapse(self, x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        """Merge neighbouring dims; no elements move."""

    @abstractmethod
    def expand(self, x: Tensor, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> Tensor:
        """Split dims into several; no elements move."""

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        sizes = self.sizes(x)
        return self.reshape(x, [*sizes[:dim], 1, *sizes[dim:]])

    def squeeze(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        return self.reshape(x, [s for i, s in enumerate(self.sizes(x)) if i not in dims])

    @abstractmethod
    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Reorder dims."""

    @abstractmethod
    def broadcast_to(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Repeat size-1 dims (and add leading ones) up to the given sizes."""

    @abstractmethod
    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        """Take every step-th element from the starts on; `sizes` are those of the result."""

    @abstractmethod
    def insert_slice(self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        """Copy `into` with `source` written at the given place."""

    @abstractmethod
    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
        """Add a border of one value; amounts must not be negative."""

    def reverse(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Reverse the elements along some dims, where loads are not cheap."""
        raise NotImplementedError

    @abstractmethod
    def scatter(
        self,
        x: Tensor,
        dim: int,
        rows: Tensor,
        values: Callable[[list[Size], list[Size]], Element],
        combine: Callable[[Element, Element], Element],
        kind: str | None,
    ) -> Tensor:
        """Combine updates into a copy of x, in their order.

        `rows` has an index along the dim for each update; `values(update, other)` is the update at a position in the
        other dims. `combine(old, new)` is what is there then, and `kind` its name in `JOINS`.
        """

    # --- Reductions ---

    def reduce(
        self,
        tensors: Sequence[Tensor],
        dims: Sequence[int],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        keepdim: bool = False,
        indexed: bool = False,
    ) -> list[Tensor]:
        """Reduce over dims. `body(*elements, *accumulators)` gives the new accumulators, which start at `inits`.

        The first tensor has all dims; a further one of lower rank has those that are kept. With `indexed`, the body's
        first argument is the list of loop indices.
        """
        x = tensors[0]
        sizes = self.sizes(x)
        kept = [i for i in range(x.rank) if i not in dims]
        outs = [self.initial([sizes[i] for i in kept], value, dtype) for value, dtype in inits]

        def with_indices(*elements: Element) -> Any:
            return body([self.loop_index(i) for i in range(x.rank)], *elements)

        results = self.generic(
            tensors,
            [tuple(range(x.rank)) if t.rank == x.rank else tuple(kept) for t in tensors],
            outs,
            [tuple(kept)] * len(outs),
            x.rank,
            with_indices if indexed else body,
            reduced=dims,
        )
        if keepdim:
            shape = [1 if i in dims else s for i, s in enumerate(sizes)]
            results = [self.reshape(r, shape) for r in results]
        return results

    def covered(self, x: Tensor, at: Windows) -> Tensor:
        """Slice off the part of the last dims that windows do not reach.

        MLIR drops loops of one step, and then takes what a single window does not reach for a mistake in its size.
        """
        lead = x.rank - len(at.kernel)
        sizes = self.sizes(x)
        for i, (k, o, s, d) in enumerate(zip(at.kernel, at.out, at.strides, at.dilations, strict=True), lead):
            if isinstance(k, int) and isinstance(o, int) and k > 0 and o > 0:
                sizes[i] = (o - 1) * s + (k - 1) * d + 1
        return self.slice(x, [0] * x.rank, sizes, [1] * x.rank)

    def window_reduce(
        self,
        x: Tensor,
        at: Windows,
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        indexed: bool = False,
    ) -> list[Tensor]:
        """Reduce sliding windows over the last dims.

        `body(element, *accumulators)` gives the new accumulators, which start at `inits`. With `indexed`, its first
        argument is the list of loop indices: those of the result, then those inside the window.
        """
        x = self.covered(x, at)
        n, lead = len(at.kernel), x.rank - len(at.kernel)
        places = tuple(((lead + i, at.strides[i]), (x.rank + i, at.dilations[i])) for i in range(n))
        sizes = [*self.sizes(x)[:lead], *at.out]
        return self.windows([x], [(*range(lead), *places)], sizes, at.kernel, inits, body, indexed)

    @abstractmethod
    def windows(
        self,
        ins: Sequence[Tensor],
        in_maps: Sequence[tuple[MapResult, ...]],
        sizes: Sequence[Size],
        kernel: Sequence[Size],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        indexed: bool = False,
    ) -> list[Tensor]:
        """Reduce over a window of `kernel` steps for each element of a result of the given sizes."""

    # --- Named ops ---

    @abstractmethod
    def pool(self, name: str, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor:
        """Reduce windows over one or two dims after batch and channels: `name` is `max` or `sum`."""

    @abstractmethod
    def contract(
        self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: dict[str, Attribute] | None = None
    ) -> Tensor:
        """Emit a named contraction; 16-bit floats accumulate in f32, the result is in the accumulator's dtype."""

    def batched_product(self, x: Tensor, y: Tensor) -> Tensor | None:
        """Multiply [*batch, m, k] by [*batch, k, n] in one op; None where the target's op has one batch dim at most.

        Batch dims that stay apart can be split over devices each on its own.
        """
        return None

    # --- Loops ---

    loop = loops.loop
    nest = loops.nest
    branch = loops.branch
    while_loop = loops.while_loop

    def doublings(self, size: Size) -> Size:
        """Compute ceil(log2(size)), the number of passes of a parallel scan or sort."""
        if isinstance(size, int):
            return max(size - 1, 0).bit_length()
        limit, start = self.scalar(size), [self.element(n, dtypes.int64) for n in (0, 1)]
        passes = self.while_loop(start, lambda _, reach: reach < limit, lambda n, reach: (n + 1, reach + reach))
        return self.as_index(passes[0])

    # --- Contents as numbers, and guards on them ---

    def item(self, x: Tensor) -> SSAValue:
        """Extract the one element of a tensor as a scalar value."""
        return self.value(tensor.ExtractOp, (x.value, *[self.index(0)] * x.rank), x.dtype.builtin)

    def number_of(self, x: Tensor, dtype: DType) -> SSAValue:
        """Extract the one element of a tensor as a scalar of another dtype.

        Converted as a tensor and then taken out: engines compute with scalars of 32 and 64 bits.
        """
        return self.item(self.to(x, dtype))

    def known_integers(self, x: Tensor) -> list[int] | None:
        """Return the elements of a small integer constant; None where they are not known."""
        owner = x.value.owner
        attr = owner.properties.get("value") if isinstance(owner, Operation) else None
        if not x.dtype.is_int or not isinstance(attr, DenseIntOrFPElementsAttr) or len(attr.data.data) > 4096:
            return None
        return [int(v) for v in attr.get_values()]

    def check_range(self, indices: Tensor, size: Size, message: str, negative: bool = True) -> None:
        """Guard that every index is in [-size, size), or in [0, size) where the op takes no negative ones."""
        numbers = self.known_integers(indices)
        if numbers is not None and isinstance(size, int):
            self.guard(all((-size if negative else 0) <= n < size for n in numbers), message)
            return

        def in_range(e: Element) -> Element:
            bound = self.element(size, dtypes.int64)
            wide = e.to(dtypes.int64)
            return (wide < bound) & (wide >= (-bound if negative else 0))

        self.check_elements(indices, in_range, message)

    def check_elements(self, x: Tensor, holds: Callable[[Element], Element], message: str) -> None:
        """Guard that a condition holds for every element."""
        if 0 in x.shape:
            return
        x = x if x.rank else self.reshape(x, [1])
        every = self.reduce([x], range(x.rank), [(True, dtypes.bool_)], lambda e, acc: acc & holds(e))[0]
        self.guard(self.item(every), message)

    def check_divisor(self, dividend: Any, divisor: Any, dtype: DType) -> None:
        """Guard that no integer is divided by zero in a dtype; where there is nothing to divide, anything goes."""
        if not dtype.is_int:
            return
        if any(isinstance(v, Tensor) and 0 in v.shape for v in (dividend, divisor)):
            return
        if isinstance(divisor, Tensor):
            numbers = self.known_integers(divisor)
            if numbers is not None and all(wrap(n, dtype) for n in numbers):
                return
            # What is broadcast along an empty dim divides nothing.
            if isinstance(dividend, Tensor) and None in dividend.shape:
                divisor = self.broadcast_to(divisor, self.broadcast_sizes(self.sizes(dividend), self.sizes(divisor)))
            self.check_elements(divisor, lambda e: e.to(dtype) != 0, ZERO_DIVISION)
            return
        nothing = self.compare("eq", self.product(self.sizes(dividend)), 0)
        if not isinstance(divisor, SSAValue):
            self.guard(wrap(int(divisor), dtype) != 0 or nothing, ZERO_DIVISION)
            return
        is_fine = self.scalar_bool(nothing) | (self.scalar(divisor).to(dtype) != 0)
        self.guard(is_fine.value, ZERO_DIVISION)


def window_properties(strides: Sequence[int], dilations: Sequence[int]) -> dict[str, Attribute]:
    """Make the attributes of linalg's convolutions and poolings."""
    type_ = TensorType(i64, [len(strides)])
    return {
        "strides": DenseIntOrFPElementsAttr.from_list(type_, list(strides)),
        "dilations": DenseIntOrFPElementsAttr.from_list(type_, list(dilations)),
    }


def window_lists(properties: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Return the strides and dilations of attributes that `window_properties` made."""
    strides, dilations = ([int(v) for v in properties[key].get_values()] for key in ("strides", "dilations"))
    return strides, dilations
