"""What all targets build with: tensors with their PyTorch dtype, sizes as Python ints or index values, guards."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from xdsl.dialects import arith, cf, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ComplexType,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    i1,
    i64,
)
from xdsl.dialects.complex import ConstantOp as ComplexConstantOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.builder import OpBuilder
from flambeau.ir.comparisons import CMPI, OF_CMPI, OPERATORS
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import DType

INDEX = IndexType()

Size = int | SSAValue
"""A dimension's size: a Python int, or an index value where only the run time knows it."""


@cache
def tensor_type(shape: tuple[int | None, ...], element: Attribute) -> TensorType[Any]:
    """Make the builtin tensor type; None is a dynamic dimension."""
    return TensorType(element, [DYNAMIC_INDEX if d is None else d for d in shape])


@cache
def i64_array(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, list(values))


@cache
def index_attr(value: int) -> IntegerAttr[Any]:
    return IntegerAttr(value, INDEX)


class Tensor:
    """A tensor value in the target's IR with what the IR does not say: its PyTorch dtype and its dynamic sizes."""

    __slots__ = ("_sizes", "dtype", "value")

    def __init__(self, value: SSAValue, dtype: DType, sizes: Sequence[Size | None] | None = None) -> None:
        self.value = value
        self.dtype = dtype
        self._sizes: list[Size | None] = list(sizes) if sizes is not None else list(self.shape)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The static shape; None where a size is dynamic."""
        type_ = self.value.type
        assert isinstance(type_, TensorType)
        return tuple(None if d == DYNAMIC_INDEX else d for d in type_.get_shape())

    @property
    def rank(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Tensor({'x'.join('?' if d is None else str(d) for d in self.shape)}, {self.dtype})"


def static(size: Size) -> int | None:
    return size if isinstance(size, int) else None


Factors = tuple[int, tuple[int, ...]]
"""A size as a product: of a number, and of sizes that are not known, by their ids in order."""


def multiply_factors(a: Factors, b: Factors) -> Factors:
    """Return the factors of the product of two sizes."""
    return (a[0] * b[0], tuple(sorted(a[1] + b[1])))


def is_same(a: Size, b: Size) -> bool:
    """Tell whether two sizes are known to be equal: one SSA value, or equal numbers."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


_NO_OVERFLOW_FLAGS = {"overflowFlags": arith.IntegerOverflowAttr("none")}

CMP_PROPERTIES = {name: {"predicate": IntegerAttr(code, i64)} for name, code in CMPI.items()}


@dataclass(frozen=True)
class RuleContext:
    """What a rule is asked for, besides the op's arguments. For another question there is another context."""

    results: tuple[tuple[tuple[int | None, ...], DType], ...] = ()
    """The shape and the dtype of each tensor that the op gives, as the program says."""
    length: int | None = None
    """How many elements of the list that the op gives are used; None where that is not known."""
    zero_points: tuple[int, int] | None = None
    """Those of both sides of a product of 8-bit integers, which is one of 32 bits; None for all other products."""
    exact_extremes: bool = True
    """Whether the maximum of nothing but -inf must be -inf; rules that only subtract it do without."""


class LoweringBuilder(OpBuilder):
    """Builds what does not depend on the target: constants, arithmetic on sizes, guards."""

    context: RuleContext = RuleContext()
    """What the rule of the op at hand is asked for; the driver sets it for each op."""

    rules: RuleTable
    """The rules of the target."""

    def call(self, op: str, *args: Any) -> Any:
        """Emit another op by the rule that the target has for it; return its results."""
        rule = self.rules.get(op)
        if rule is None:
            raise Unsupported(f"{op} has no rule")
        return rule(self, *args)

    narrowed: Mapping[DType, DType] = {}
    """Dtypes that the target does not have, and what rules may compute in instead."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.entry = block
        self._constants: dict[Any, SSAValue] = {}
        self._last_constant: Operation | None = None
        self._memo: dict[Any, Any] = {}
        self._ends: dict[SSAValue, Size] = {}
        """The counters of loops from 0, and the sizes that they stay below."""
        self._factors: dict[SSAValue, Factors] = {}
        self.symbols: dict[str, Size] = {}

    # --- The op at hand ---

    @property
    def out_dtype(self) -> DType:
        """The dtype that PyTorch says the first result has."""
        return self.context.results[0][1]

    @property
    def out_shape(self) -> tuple[int | None, ...]:
        return self.context.results[0][0]

    @contextmanager
    def within(self, context: RuleContext) -> Iterator[None]:
        """Set another context for the rules that are called inside the block."""
        outer, self.context = self.context, context
        try:
            yield
        finally:
            self.context = outer

    # --- Constants: each once, at the start of the function ---

    def constant_op(self, key: Any, make: Callable[[], Operation]) -> SSAValue:
        """Return the result of the constant that `make` makes once for each key, at the start of the function."""
        found = self._constants.get(key)
        if found is None:
            op = make()
            if self._last_constant is not None:
                self.entry.insert_ops_after((op,), self._last_constant)
            elif self.entry.first_op is not None:
                self.entry.insert_ops_before((op,), self.entry.first_op)
            else:
                self.entry.add_op(op)
            self._last_constant = op
            found = self._constants[key] = op.results[0]
        return found

    def constant(self, value: complex | float | int | bool, dtype: DType) -> SSAValue:
        """Return a scalar constant; numbers are converted as PyTorch converts them."""
        type_ = dtype.builtin
        if dtype.is_complex:
            number = complex(value)
            key = (repr(number), dtype)
            return self.constant_op(key, lambda: _complex_constant(number, dtype))
        if dtype.is_float:
            value = float(value.real if isinstance(value, complex) else value)
            key = (repr(value), dtype)
            return self.constant_op(
                key,
                lambda: arith.ConstantOp.create(result_types=(type_,), properties={"value": _float_attr(value, dtype)}),
            )
        assert not isinstance(value, complex)
        assert isinstance(type_, IntegerType)
        integer = int(bool(value)) if dtype.is_bool else wrap(int(value), dtype)
        attr = IntegerAttr(integer, type_)
        return self.constant_op(
            (integer, type_), lambda: arith.ConstantOp.create(result_types=(type_,), properties={"value": attr})
        )

    def index(self, size: Size) -> SSAValue:
        """Return a size as an index value."""
        if isinstance(size, SSAValue):
            return size
        return self.constant_op(
            (size, INDEX),
            lambda: arith.ConstantOp.create(result_types=(INDEX,), properties={"value": index_attr(size)}),
        )

    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        """Emit a tensor constant."""
        return self.value(arith.ConstantOp, (), type_, {"value": attr})

    # --- Index arithmetic, folded where it can be ---

    def _arith(self, op: type[Operation], a: Size, b: Size, properties: Any = None) -> SSAValue:
        key = (op, a, b)
        found = self._memo.get(key) if self.block is self.entry else None
        if found is None:
            found = self.value(op, (self.index(a), self.index(b)), INDEX, properties or {})
            if self.block is self.entry:
                self._memo[key] = found
        return found

    def add(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 and isinstance(a, int):
            return b
        if b == 0 and isinstance(b, int):
            return a
        return self._arith(arith.AddiOp, a, b, _NO_OVERFLOW_FLAGS)

    def sub(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if isinstance(b, int) and b == 0:
            return a
        if a is b:
            return 0
        return self._arith(arith.SubiOp, a, b, _NO_OVERFLOW_FLAGS)

    def mul(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int) and b in (0, 1):
            return a if b == 1 else 0
        product = self._arith(arith.MuliOp, a, b, _NO_OVERFLOW_FLAGS)
        self._factors[product] = multiply_factors(self.factors(a), self.factors(b))
        return product

    def floordiv(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int) and b != 0:
            return a // b
        if isinstance(b, int) and b == 1:
            return a
        return self._arith(arith.FloorDivSIOp, a, self._divisor(b))

    def ceildiv(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int) and b != 0:
            return -(-a // b)
        if isinstance(b, int) and b == 1:
            return a
        return self._arith(arith.CeilDivSIOp, a, self._divisor(b))

    def _divisor(self, size: Size) -> Size:
        """Replace a dynamic divisor that is zero at run time by 1: a processor would trap."""
        return size if isinstance(size, int) else self.select(self.compare("eq", size, 0), 1, size)

    def mod(self, a: Size, b: Size) -> Size:
        """Compute a - floor(a / b) * b, Python's `%`: the sign is the divisor's."""
        if isinstance(a, int) and isinstance(b, int) and b != 0:
            return a % b
        divisor = self._divisor(b)
        return self.sub(a, self.mul(self._arith(arith.FloorDivSIOp, a, divisor), divisor))

    def maximum(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return a if a is b else self._arith(arith.MaxSIOp, a, b)

    def minimum(self, a: Size, b: Size) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return a if a is b else self._arith(arith.MinSIOp, a, b)

    def compare(self, predicate: str, a: Size, b: Size) -> bool | SSAValue:
        """Compare signed sizes by `eq`, `ne`, `slt`, `sle`, `sgt` or `sge`; a bool where both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return bool(OPERATORS[OF_CMPI[CMPI[predicate]]](a, b))
        if a is b:
            return predicate in ("eq", "sle", "sge")
        if predicate in ("slt", "sge") and self._is_below(a, b) is not None:
            return self._is_below(a, b) is (predicate == "slt")
        return self.value(arith.CmpiOp, (self.index(a), self.index(b)), i1, CMP_PROPERTIES[predicate])

    def counts_to(self, counter: SSAValue, end: Size) -> None:
        """Note that a value is the counter of a loop from 0, and below `end`."""
        self._ends[counter] = end

    def _is_below(self, a: Size, b: Size) -> bool | None:
        """Tell whether the counter of a loop is less than a size; None where that is not known."""
        end = self._ends.get(a) if isinstance(a, SSAValue) else None
        if end is None:
            return None
        if isinstance(b, int) and b <= 0:
            return False
        return True if end is b or (isinstance(end, int) and isinstance(b, int) and end <= b) else None

    def select(self, condition: bool | SSAValue, a: Size, b: Size) -> Size:
        if isinstance(condition, bool):
            return a if condition else b
        if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
            return a
        return self.value(arith.SelectOp, (condition, self.index(a), self.index(b)), INDEX)

    def product(self, sizes: Sequence[Size]) -> Size:
        total: Size = 1
        for size in sizes:
            total = self.mul(total, size)
        return total

    def factors(self, size: Size) -> Factors:
        """Factor a size into a static factor and the sorted ids of its dynamic factors."""
        if isinstance(size, int):
            return (size, ())
        return self._factors.get(size, (1, (id(size),)))

    def divide_exact(self, numerator: Sequence[Size], denominator: Sequence[Size]) -> Size:
        """Divide a product of sizes by another that it is a multiple of; equal factors cancel without a division."""
        (whole, symbols), (part, others) = self._factors_of(numerator), self._factors_of(denominator)
        if symbols == others and part and whole % part == 0:
            return whole // part
        top, bottom = list(numerator), list(denominator)
        for size in denominator:
            match = next((i for i, s in enumerate(top) if is_same(s, size)), None)
            if match is not None:
                top.pop(match)
                bottom.pop(next(i for i, s in enumerate(bottom) if is_same(s, size)))
        constant = math.prod([s for s in bottom if isinstance(s, int)])
        dynamic = [s for s in bottom if isinstance(s, SSAValue)]
        static_top = math.prod([s for s in top if isinstance(s, int)])
        rest: list[Size] = [s for s in top if isinstance(s, SSAValue)]
        if not dynamic and constant and static_top % constant == 0:
            return self.product([*rest, static_top // constant])
        return self.floordiv(self.product(top), self.product(bottom))

    def is_same_product(self, a: Sequence[Size], b: Sequence[Size]) -> bool:
        """Tell whether two products of sizes are known to be equal."""
        return self._factors_of(a) == self._factors_of(b)

    def _factors_of(self, sizes: Sequence[Size]) -> Factors:
        nothing: Factors = (1, ())
        return reduce(multiply_factors, map(self.factors, sizes), nothing)

    # --- Guards ---

    def guard(self, condition: bool | SSAValue, message: str) -> None:
        """Make the program fail with `message` unless the condition holds; nothing is emitted for what is known."""
        if condition is True:
            return
        if condition is False:
            raise Unsupported(message)
        assert isinstance(condition, SSAValue)
        self.emit(cf.AssertOp, (condition,), (), {"msg": StringAttr(message)})

    def same_size(self, a: Size, b: Size, message: str) -> Size:
        """Guard that two sizes agree; gives the one that is known better."""
        if a is b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            if a != b:
                raise Unsupported(f"{message}: {a} and {b}")
            return a
        if isinstance(a, SSAValue) and isinstance(b, SSAValue) and self.factors(a) == self.factors(b):
            return a
        key = ("same", *sorted(id(x) if isinstance(x, SSAValue) else x for x in (a, b)))
        if key not in self._memo:
            if self.block is self.entry:
                self._memo[key] = True
            self.guard(self.compare("eq", a, b), message)
        return a if isinstance(a, int) else b if isinstance(b, int) else a

    # --- Tensors ---

    def size(self, x: Tensor, dim: int) -> Size:
        """Return the size of a dimension (negative counts from the end), an index value if it is dynamic."""
        dim = dim % x.rank if x.rank else 0
        known = x._sizes[dim]
        if known is None:
            known = self.value(tensor.DimOp, (x.value, self.index(dim)), INDEX)
            owner = x.value.owner
            # In a branch or a loop, the size of a tensor outside is not known outside.
            if (owner if isinstance(owner, Block) else owner.parent) is self.block:
                x._sizes[dim] = known
        return known

    def sizes(self, x: Tensor) -> list[Size]:
        return [self.size(x, i) for i in range(x.rank)]

    def empty(self, sizes: Sequence[Size], dtype: DType) -> Tensor:
        """Emit `tensor.empty`, a tensor without contents; equal ones at the top level are one."""
        type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
        dynamic = [s for s in sizes if isinstance(s, SSAValue)]
        key = ("empty", tuple(sizes), dtype)
        found = self._memo.get(key) if self.block is self.entry else None
        if found is None:
            found = self.value(tensor.EmptyOp, dynamic, type_)
            if self.block is self.entry:
                self._memo[key] = found
        return Tensor(found, dtype, sizes)

    def cast(self, x: Tensor, shape: Sequence[int | None]) -> Tensor:
        """Cast a tensor to another static shape, where None is dynamic."""
        if tuple(shape) == x.shape:
            return x
        type_ = tensor_type(tuple(shape), x.dtype.builtin)
        sizes = [s if n is None else n for s, n in zip(x._sizes, shape, strict=True)]
        return Tensor(self.value(tensor.CastOp, (x.value,), type_), x.dtype, sizes)

    def bind_symbols(self, x: Tensor, expressions: Sequence[str | int]) -> None:
        """Share one index value between dims with the same symbolic expression, since they have the same size."""
        for i, (known, expression) in enumerate(zip(x._sizes, expressions, strict=True)):
            if isinstance(known, int) or isinstance(expression, int):
                continue
            found = self.symbols.get(expression)
            if found is None and self.block is not self.entry:
                # In a branch or a loop: what is made here cannot be used outside.
                continue
            if found is None:
                self.symbols[expression] = self.size(x, i)
            else:
                x._sizes[i] = found

    def dim(self, dim: int, rank: int) -> int:
        """Normalise a dim, negative ones counted from the end; 0-d tensors take 0 and -1 as PyTorch does."""
        bound = max(rank, 1)
        if not -bound <= dim < bound:
            raise Unsupported(f"dim {dim} is out of range for a tensor of rank {rank}")
        return dim % bound

    def dims(self, dims: Sequence[int] | int | None, rank: int) -> list[int]:
        """Normalise dims; None and the empty list mean all."""
        if dims is None or (isinstance(dims, Sequence) and len(dims) == 0):
            return list(range(rank))
        return [self.dim(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]


def wrap(value: int, dtype: DType) -> int:
    """Wrap an integer to its type's range, as signless MLIR integers print it (two's complement, signed)."""
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _float_attr(value: float, dtype: DType) -> Attribute:
    if dtype is dtypes.float32:
        # Round to f32 here, so that the attribute prints the value that it has.
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return FloatAttr(value, dtype.builtin)  # type: ignore[call-overload]


def _complex_constant(value: complex, dtype: DType) -> Operation:
    from xdsl.dialects.builtin import ArrayAttr

    part = dtype.real
    attr = ArrayAttr([_float_attr(value.real, part), _float_attr(value.imag, part)])
    assert isinstance(dtype.builtin, ComplexType)
    return ComplexConstantOp.create(result_types=(dtype.builtin,), properties={"value": attr})
