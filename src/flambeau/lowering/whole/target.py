"""What a target with ops on whole tensors gives: the ops that the verbs of rules are put together from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.dialects import tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.verbs import Body, Windows
from flambeau.lowering.whole.values import element_of

if TYPE_CHECKING:
    from flambeau.lowering.whole.builder import WholeBuilder


class TargetOps(ABC):
    """The ops of one target, on SSA values.

    They bear the names of the builder's verbs: `b.reshape` is on tensors, and asks `b.target.reshape` for the value.
    Methods that are not abstract stand for what only some targets have; None means that the builder does without.
    """

    name: ClassVar[str]
    """What messages call the target."""
    repeats_ones: ClassVar[bool] = False
    """Whether elementwise ops take operands of size 1 along a dim where others are longer."""
    has_empty: ClassVar[bool] = True
    """Whether there are tensors without elements."""
    narrowed: ClassVar[Mapping[DType, DType]] = MappingProxyType({})
    """Dtypes that the target does not have, and what rules may compute in instead."""

    def __init__(self, b: WholeBuilder[Any]) -> None:
        self.b = b

    # --- Elements ---

    @abstractmethod
    def apply(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        """Build an op of `arith`, `math` or `complex` on tensors of one shape; `element` is the type of its result."""

    @abstractmethod
    def splat(self, value: Any, dtype: DType, shape: Sequence[int]) -> SSAValue:
        """Build a constant with one number everywhere."""

    @abstractmethod
    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        """Build a constant from an attribute."""

    @abstractmethod
    def from_scalar(self, value: SSAValue, dtype: DType) -> SSAValue:
        """Build a tensor without dims from a number that the run time computes."""

    def fold(
        self, op_class: type[Operation], operands: Sequence[SSAValue], type_: Attribute, properties: Any
    ) -> SSAValue | None:
        """Compute an op on scalars while compiling; None leaves it to the engine."""
        return None

    def prepare(self, op: Operation) -> None:
        """Make an op's operands results of other ops, before it is inserted."""
        return

    # --- Shapes ---

    def cast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        """Give a tensor the shape of a type, with more or fewer known sizes; its elements stay what they are."""
        assert isinstance(type_, TensorType)
        wanted = TensorType(element_of(value), type_.get_shape())
        return value if value.type == wanted else self.b.emit(tensor.CastOp, (value,), (wanted,)).results[0]

    @abstractmethod
    def broadcast(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        """Repeat dims of size 1 up to the given sizes."""

    @abstractmethod
    def reshape(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        """Keep the elements and their order under another shape."""

    @abstractmethod
    def transpose(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        """Reorder dims: dim i of the result is dim `order[i]` of the operand."""

    @abstractmethod
    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        """Take every step-th element from the starts on; `sizes` are those of the result."""

    @abstractmethod
    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any, sizes: Sequence[Size]) -> SSAValue:
        """Add a border of one number; `sizes` are those of the result."""

    @abstractmethod
    def concatenate(self, values: Sequence[SSAValue], dim: int, type_: Attribute) -> SSAValue:
        """Join tensors along a dim to one of the given type."""

    @abstractmethod
    def reverse(self, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        """Turn the order of elements around along some dims."""

    @abstractmethod
    def iota(self, size: Size) -> SSAValue:
        """Build 0, 1, 2, ... in 64-bit integers, which count positions."""

    def empty(self, sizes: Sequence[Size], dtype: DType) -> SSAValue | None:
        """Build a tensor of which nothing but the sizes are read; None where one of zeros does."""
        return None

    def insert_slice(
        self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]
    ) -> SSAValue | None:
        """Copy `into` with `source` at a place; None where it is padded and chosen instead."""
        return None

    def measure(self, x: Tensor) -> None:
        """Take note of a tensor's sizes, for when only its value is at hand."""
        return

    # --- Reductions, products, computed positions ---

    @abstractmethod
    def reduce(self, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
        """Combine the elements along dims, which are dropped; `kind` is one of `JOINS`."""

    @abstractmethod
    def contract(self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any) -> Tensor:
        """Multiply and add as linalg's op of that name does, accumulated as PyTorch accumulates."""

    @abstractmethod
    def gather(self, x: Tensor, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
        """Build x[indices[0], indices[1], ...] for tensors of indices, one for each dim of x, in range."""

    @abstractmethod
    def scatter(self, x: Tensor, rows: Tensor, updates: Tensor, combine: str | None) -> Tensor:
        """Write [updates, width] into the rows of [rows, width]; later ones win where nothing combines them."""

    def batched_product(self, x: Tensor, y: Tensor) -> Tensor | None:
        """Multiply the matrices of two batches of any rank; None if there is no op for it."""
        return None

    def load(self, x: Tensor, indices: Sequence[SSAValue], common: Sequence[Size]) -> SSAValue | None:
        """Read x at indices inside a body; None where it is gathered."""
        return None

    def window_reduce(self, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor | None:
        """Reduce sliding windows as `b.window_reduce` does; None where each step of the window is taken in turn."""
        return None

    # --- Contents as numbers ---

    def item(self, x: Tensor) -> SSAValue:
        """Take the one element of a tensor out, as a scalar of the tensor's dtype."""
        op = self.b.emit(tensor.ExtractOp, (x.value, *[self.b.index(0)] * x.rank), (x.dtype.builtin,))
        return op.results[0]

    def number_of(self, x: Tensor, dtype: DType) -> SSAValue:
        """Take the one element of a tensor out, as a scalar of another dtype."""
        return self.item(self.b.to(x, dtype))

    def known_integers(self, x: Tensor) -> list[int] | None:
        """Give the elements of a tensor that is known while compiling; None for all others."""
        return None
