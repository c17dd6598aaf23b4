"""What must hold for StableHLO's ops, one short function per rule."""

from __future__ import annotations

import re
from typing import Any

from xdsl.dialects.builtin import (
    ComplexType,
    DenseIntOrFPElementsAttr,
    IntegerType,
    Signedness,
    SymbolRefAttr,
    f32,
    f64,
    i1,
    i32,
)
from xdsl.dialects.func import FuncOp
from xdsl.traits import SymbolTable

from flambeau.dialects.declared.checks import Check
from flambeau.dialects.declared.ops import DeclaredOp, agree, category, elements_type, fits, shape, show
from flambeau.dialects.stablehlo.attributes import ConvDimensionNumbers, Layout, Numbers


def same_operand_types(op: DeclaredOp) -> None:
    """Check that all operands have one type."""
    first = op.tensor(0)
    for type_ in op.operand_types:
        if not agree(first, type_):
            op.wrong(f"operands have one type, got {first} and {type_}")


def results_as_operands(op: DeclaredOp) -> None:
    """Check that there is a result of each operand's type."""
    got, wanted = tuple(op.result_types), tuple(op.operand_types)
    if len(got) != len(wanted) or not all(map(agree, got, wanted)):
        op.wrong("results have the types of the operands")


def same_element(op: DeclaredOp) -> None:
    """Check that the result's elements are the first operand's."""
    op.expect_element(op.tensor(0).element_type)


def boolean_result(op: DeclaredOp) -> None:
    """Check that the result is a tensor of i1."""
    op.expect_element(i1)


def real_result(op: DeclaredOp) -> None:
    """Check that the result's elements have the type of a complex operand's parts."""
    of_operand = op.tensor(0).element_type
    op.expect_element(of_operand.element_type if isinstance(of_operand, ComplexType) else of_operand)


def complex_result(op: DeclaredOp) -> None:
    """Check that the result's elements are complex, with parts of the operands' type, f32 or f64."""
    got = op.result_tensor()
    if op.tensor(0).element_type not in (f32, f64):
        op.wrong(f"complex numbers have parts of f32 or f64, got {op.tensor(0)}")
    if not isinstance(got.element_type, ComplexType) or got.element_type.element_type != op.tensor(0).element_type:
        op.wrong(f"the elements of the result are complex<{op.tensor(0).element_type}>, got {got}")


def has_sign(op: DeclaredOp) -> None:
    """Check that the operand is not of unsigned integers."""
    type_ = op.tensor(0)
    if isinstance(type_.element_type, IntegerType) and type_.element_type.signedness.data is Signedness.UNSIGNED:
        op.wrong(f"is for numbers that have a sign, got {type_}")


def scalars(*indices: int) -> Check:
    """Make the check that these operands are tensors of rank 0."""

    def check(op: DeclaredOp) -> None:
        for index in indices:
            if shape(op.tensor(index)) != ():
                op.wrong(f"operand {index} has rank 0, got {op.tensor(index)}")

    return check


def integers_of_rank(index: int, rank: int) -> Check:
    """Make the check that an operand is a tensor of integers of this rank: indices or sizes."""

    def check(op: DeclaredOp) -> None:
        type_ = op.tensor(index)
        if category(type_.element_type) not in "i?" or len(type_.get_shape()) != rank:
            op.wrong(f"operand {index} is a tensor of rank {rank} of integers, got {type_}")

    return check


def numbers_of(op: DeclaredOp, name: str) -> Any:
    """Return the lists of dimensions of a property, in the order of its fields."""
    value = op.properties[name]
    assert isinstance(value, Numbers)
    return value.data


# --- Single ops ---


def clamp(op: DeclaredOp) -> None:
    operand = op.tensor(1)
    if not agree(operand, op.result_tensor()):
        op.wrong(f"operand and result have one type, got {operand} and {op.result_tensor()}")
    for index in (0, 2):
        bound = op.tensor(index)
        if bound.element_type != operand.element_type or (shape(bound) and not fits(shape(bound), shape(operand))):
            op.wrong(f"a bound is a scalar or as {operand}, got {bound}")


def select(op: DeclaredOp) -> None:
    condition, on_true, on_false = (op.tensor(i) for i in range(3))
    if condition.element_type != i1:
        op.wrong(f"the condition is of booleans, got {condition}")
    if not agree(on_true, on_false) or not agree(on_true, op.result_tensor()):
        op.wrong(f"both choices and the result have one type, got {on_true}, {on_false}, {op.result_tensor()}")
    if shape(condition) and not fits(shape(condition), shape(on_true)):
        op.wrong(f"the condition is a scalar or has the shape of the choices, got {condition} for {on_true}")


def constant(op: DeclaredOp) -> None:
    type_ = elements_type(op.properties["value"])
    if type_ != op.results[0].type:
        op.wrong(f"the value is {type_}, the result {op.results[0].type}")


def broadcast_in_dim(op: DeclaredOp) -> None:
    dims, operand, result = op.ints("broadcast_dimensions") or (), op.tensor(0), op.result_tensor()
    if len(dims) != len(operand.get_shape()):
        op.wrong(f"there is one dimension for each of {operand}, got {list(dims)}")
    sizes = shape(result) or ()
    op.expect_dimensions(dims, len(sizes))
    for size, dim in zip(shape(operand) or (), dims, strict=True):
        if size not in (None, 1) and sizes[dim] not in (None, size):
            op.wrong(f"{operand} does not broadcast along {list(dims)} to {result}")


def concatenate(op: DeclaredOp) -> None:
    if not op.operands:
        op.wrong("takes at least one operand")
    sizes = [shape(op.tensor(i)) or () for i in range(len(op.operands))]
    dim, rank = op.integer("dimension"), len(sizes[0])
    op.expect_dimension(dim, rank)
    for i, other in enumerate(sizes):
        rest = (*other[:dim], None, *other[dim + 1 :])
        if not fits((*sizes[0][:dim], None, *sizes[0][dim + 1 :]), rest):
            op.wrong(f"operands differ in dimension {dim} only, got {op.tensor(0)} and {op.tensor(i)}")
        if op.tensor(i).element_type != op.tensor(0).element_type:
            op.wrong(f"operands have the same elements, got {op.tensor(0)} and {op.tensor(i)}")
    along = [s[dim] for s in sizes]
    total = None if None in along else sum(s for s in along if s is not None)
    op.expect_shape((*sizes[0][:dim], total, *sizes[0][dim + 1 :]))


def iota(op: DeclaredOp) -> None:
    if category(op.result_tensor().element_type) not in "ifc":
        op.wrong(f"is for numbers, got {op.result_tensor()}")
    op.expect_dimension(op.integer("iota_dimension"), len(op.result_tensor().get_shape()))


def pad(op: DeclaredOp) -> None:
    sizes = shape(op.tensor(0)) or ()
    for name in ("edge_padding_low", "edge_padding_high", "interior_padding"):
        op.expect_length(name, len(sizes))
    low, high, interior = (op.ints(n) or () for n in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    if any(i < 0 for i in interior):
        op.wrong(f"interior padding is not negative, got {list(interior)}")
    if op.tensor(1).element_type != op.tensor(0).element_type:
        op.wrong(f"the padding has the elements of {op.tensor(0)}, got {op.tensor(1)}")
    padded = zip(sizes, low, high, interior, strict=True)
    op.expect_shape(None if s is None else a + s + max(s - 1, 0) * i + b for s, a, b, i in padded)


def reverse(op: DeclaredOp) -> None:
    op.expect_dimensions(op.ints("dimensions") or (), len(op.tensor(0).get_shape()))


def slice_(op: DeclaredOp) -> None:
    sizes = shape(op.tensor(0)) or ()
    names = ("start_indices", "limit_indices", "strides")
    for name in names:
        op.expect_length(name, len(sizes))
    found = list(zip(sizes, *(op.ints(name) or () for name in names), strict=True))
    for size, start, limit, stride in found:
        if not 0 <= start <= limit or stride < 1 or (size is not None and limit > size):
            op.wrong(f"{start}:{limit}:{stride} is no slice of a dimension of {'?' if size is None else size}")
    op.expect_shape(-(-(limit - start) // stride) for _, start, limit, stride in found)


def transpose(op: DeclaredOp) -> None:
    sizes, order = shape(op.tensor(0)) or (), op.ints("permutation") or ()
    if sorted(order) != list(range(len(sizes))):
        op.wrong(f"{list(order)} is no permutation of the dimensions of {op.tensor(0)}")
    op.expect_shape(sizes[d] for d in order)


def dynamic_slice(op: DeclaredOp) -> None:
    sizes, taken = shape(op.tensor(0)) or (), op.ints("slice_sizes") or ()
    op.expect_length("slice_sizes", len(sizes))
    _starts(op, 1, len(sizes))
    for size, part in zip(sizes, taken, strict=True):
        if part < 0 or (size is not None and part > size):
            op.wrong(f"a slice of {list(taken)} does not fit into {op.tensor(0)}")
    op.expect_shape(taken)


def dynamic_update_slice(op: DeclaredOp) -> None:
    sizes, update = shape(op.tensor(0)) or (), op.tensor(1)
    _starts(op, 2, len(sizes))
    parts = shape(update) or ()
    too_large = len(parts) != len(sizes) or any(
        p is not None and s is not None and p > s for p, s in zip(parts, sizes, strict=True)
    )
    if too_large or update.element_type != op.tensor(0).element_type:
        op.wrong(f"{update} does not fit into {op.tensor(0)}")
    op.expect_shape(sizes)


def _starts(op: DeclaredOp, first: int, rank: int) -> None:
    if len(op.operands) - first != rank:
        op.wrong(f"there is one index for each of {rank} dimensions, got {len(op.operands) - first}")
    scalars(*range(first, len(op.operands)))(op)


def result_rank(op: DeclaredOp) -> None:
    """Check that the last operand, the result's sizes, has one number for each dimension."""
    sizes = shape(op.tensor(len(op.operands) - 1)) or ()
    rank = len(op.result_tensor().get_shape())
    if sizes and sizes[0] not in (None, rank):
        op.wrong(f"the sizes are one for each of {rank} dimensions, got {op.tensor(len(op.operands) - 1)}")


def dynamic_pad(op: DeclaredOp) -> None:
    if len(op.result_tensor().get_shape()) != len(op.tensor(0).get_shape()):
        op.wrong(f"operand and result have one rank, got {op.tensor(0)} and {op.result_tensor()}")


def get_dimension_size(op: DeclaredOp) -> None:
    op.expect_dimension(op.integer("dimension"), len(op.tensor(0).get_shape()))
    op.expect_shape(())
    op.expect_element(i32)


def dot_general(op: DeclaredOp) -> None:
    lhs, rhs = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    lhs_batch, rhs_batch, lhs_sum, rhs_sum = numbers_of(op, "dot_dimension_numbers")
    for batch, summed, sizes in ((lhs_batch, lhs_sum, lhs), (rhs_batch, rhs_sum, rhs)):
        op.expect_dimensions((*batch, *summed), len(sizes))
    for what, a, b in (("batching", lhs_batch, rhs_batch), ("contracting", lhs_sum, rhs_sum)):
        if len(a) != len(b) or not fits(tuple(lhs[d] for d in a), tuple(rhs[d] for d in b)):
            op.wrong(f"the {what} dimensions {list(a)} of {op.tensor(0)} and {list(b)} of {op.tensor(1)} differ")
    op.expect_shape(
        [
            *(lhs[d] for d in lhs_batch),
            *(s for d, s in enumerate(lhs) if d not in (*lhs_batch, *lhs_sum)),
            *(s for d, s in enumerate(rhs) if d not in (*rhs_batch, *rhs_sum)),
        ]
    )


def window(size: int | None, kernel: int, stride: int, low: int, high: int, base: int, dilation: int) -> int | None:
    """Count the windows of a kernel that fit into a padded dimension; None if its size is dynamic."""
    if size is None:
        return None
    padded = low + (0 if size == 0 else (size - 1) * base + 1) + high
    covered = 0 if kernel == 0 else (kernel - 1) * dilation + 1
    return 0 if padded == 0 or covered > padded else (padded - covered) // stride + 1


def padding_of(op: DeclaredOp, rank: int) -> list[tuple[int, int]]:
    value = op.properties.get("padding")
    if not isinstance(value, DenseIntOrFPElementsAttr):
        return [(0, 0)] * rank
    numbers = [int(v) for v in value.get_values()]
    if shape(value.get_type()) != (rank, 2):
        op.wrong(f"'padding' is a pair for each of {rank} dimensions, got {value.get_type()}")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def convolution(op: DeclaredOp) -> None:
    numbers = op.properties["dimension_numbers"]
    assert isinstance(numbers, ConvDimensionNumbers)
    sizes = [shape(op.tensor(0)) or (), shape(op.tensor(1)) or (), shape(op.result_tensor()) or ()]
    for what, layout, got in zip(("input", "kernel", "output"), numbers.data, sizes, strict=True):
        dims = (layout.first, layout.feature, *layout.spatial)
        if sorted(dims) != list(range(len(got))):
            op.wrong(f"{numbers.show()} does not name the dimensions of the {what} {show(got)}")
    lhs, kernel, out = (_parts(layout, s) for layout, s in zip(numbers.data, sizes, strict=True))
    groups, batches = op.integer("feature_group_count", 1), op.integer("batch_group_count", 1)
    if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
        op.wrong(f"of the group counts {groups} and {batches}, both are positive and one is 1")
    if lhs[1] is not None and kernel[1] is not None and lhs[1] != kernel[1] * groups:
        op.wrong(f"{groups} groups of {kernel[1]} input features make {kernel[1] * groups}, the input has {lhs[1]}")
    if kernel[0] is not None and kernel[0] % (groups * batches):
        op.wrong(f"{kernel[0]} output features do not fall into {groups * batches} groups")
    if lhs[0] is not None and lhs[0] % batches:
        op.wrong(f"a batch of {lhs[0]} does not fall into {batches} groups")
    rank = len(lhs[2])
    for name in ("window_strides", "lhs_dilation", "rhs_dilation", "window_reversal"):
        op.expect_length(name, rank)
    strides, base, dilation = (op.ints(n) or (1,) * rank for n in ("window_strides", "lhs_dilation", "rhs_dilation"))
    check_positive(op, *strides, *base, *dilation)
    static = op.name == "stablehlo.convolution"
    padding = padding_of(op, rank) if static else []
    spatial = [
        None if k is None else window(s, k, strides[i], *padding[i], base[i], dilation[i]) if static else None
        for i, (s, k) in enumerate(zip(lhs[2], kernel[2], strict=True))
    ]
    wanted = [None if lhs[0] is None else lhs[0] // batches, kernel[0], *spatial]
    if not fits(tuple(wanted), (out[0], out[1], *out[2])):
        op.wrong(f"the result has batch, features and sizes {show(wanted)}, got {op.result_tensor()}")


def _parts(layout: Layout, sizes: tuple[int | None, ...]) -> tuple[int | None, int | None, list[int | None]]:
    return sizes[layout.first], sizes[layout.feature], [sizes[d] for d in layout.spatial]


def check_positive(op: DeclaredOp, *values: int) -> None:
    if any(v < 1 for v in values):
        op.wrong("strides, dilations and window sizes are positive")


def fft(op: DeclaredOp) -> None:
    sizes, length = list(shape(op.tensor(0)) or ()), list(op.ints("fft_length") or ())
    n, kind = len(length), op.word("fft_type")
    if not 1 <= n <= min(3, len(sizes)):
        op.wrong(f"transforms 1 to 3 of the dimensions of {op.tensor(0)}, got lengths {length}")
    half = [*length[:-1], length[-1] // 2 + 1 if length[-1] else 0]
    operand, result = {"RFFT": (length, half), "IRFFT": (half, length)}.get(kind, (length, length))
    if not fits(tuple(sizes[-n:]), tuple(operand)):
        op.wrong(f"{kind} of {length} takes the sizes {operand}, got {op.tensor(0)}")
    letters = category(op.tensor(0).element_type), category(op.result_tensor().element_type)
    if letters != {"RFFT": ("f", "c"), "IRFFT": ("c", "f")}.get(kind, ("c", "c")):
        op.wrong(f"{kind} does not take {op.tensor(0)} to {op.result_tensor()}")
    op.expect_shape([*sizes[:-n], *result])


def gather(op: DeclaredOp) -> None:
    operand, indices = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    offset, collapsed, batching, index_batching, index_map, vector = numbers_of(op, "dimension_numbers")
    result_rank_ = len(op.result_tensor().get_shape())
    op.expect_dimensions((*collapsed, *batching), len(operand))
    op.expect_dimensions(index_map, len(operand))
    op.expect_dimensions(offset, result_rank_)
    op.expect_dimensions(index_batching, len(indices))
    check_index_vector(op, indices, vector, len(index_map))
    sizes = op.ints("slice_sizes")
    if sizes is None:
        return
    op.expect_length("slice_sizes", len(operand))
    for size, part in zip(operand, sizes, strict=True):
        if part < 0 or (size is not None and part > size):
            op.wrong(f"slices of {list(sizes)} do not fit into {op.tensor(0)}")
    if any(sizes[d] > 1 for d in (*collapsed, *batching)):
        op.wrong(f"slices of {list(sizes)} have more than one element in a collapsed or batching dimension")
    kept = [s for d, s in enumerate(sizes) if d not in (*collapsed, *batching)]
    batch = [s for d, s in enumerate(indices) if d != vector]
    if len(kept) != len(offset) or result_rank_ != len(kept) + len(batch):
        op.wrong(f"slices of rank {len(kept)} for indices of rank {len(batch)} do not make {op.result_tensor()}")
    places = dict(zip(sorted(offset), kept, strict=True))
    rest = iter(batch)
    op.expect_shape(places[d] if d in places else next(rest) for d in range(result_rank_))


def check_index_vector(op: DeclaredOp, indices: tuple[int | None, ...], vector: int, length: int) -> None:
    if not 0 <= vector <= len(indices):
        op.wrong(f"index_vector_dim {vector} is out of range for rank {len(indices)}")
    got = indices[vector] if vector < len(indices) else 1
    if got is not None and got != length:
        op.wrong(f"an index has {length} numbers, dimension {vector} of {op.tensor(1)} has {got}")


def top_k(op: DeclaredOp) -> None:
    sizes = shape(op.tensor(0)) or ()
    if not sizes:
        op.wrong(f"needs a dimension to choose from, got {op.tensor(0)}")
    for i, type_ in enumerate((op.tensor(0).element_type, i32)):
        op.expect_shape((*sizes[:-1], op.integer("k")), i)
        op.expect_element(type_, i)


_NAME = re.compile(r"[a-zA-Z]\w*(\.[\w$]+)+")


def composite(op: DeclaredOp) -> None:
    """Check that the name has a namespace, and that the decomposition is a function with the op's types."""
    if _NAME.fullmatch(op.word("name")) is None:
        op.wrong(f"the name has a namespace, got '{op.word('name')}'")
    symbol = op.properties["decomposition"]
    assert isinstance(symbol, SymbolRefAttr)
    found = SymbolTable.lookup_symbol(op, symbol)
    if not isinstance(found, FuncOp):
        op.wrong(f"the decomposition {symbol} is not a function of the module")
    type_ = found.function_type
    for what, own, others in (
        ("takes", tuple(op.operand_types), type_.inputs.data),
        ("gives", tuple(op.result_types), type_.outputs.data),
    ):
        if len(own) != len(others) or not all(map(agree, own, others)):
            shown = [", ".join(map(str, types)) for types in (others, own)]
            op.wrong(f"the decomposition {symbol} {what} ({shown[0]}), and the op ({shown[1]})")
