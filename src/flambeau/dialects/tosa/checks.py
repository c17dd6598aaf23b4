"""What must hold for TOSA's ops, one short function per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, TensorType, i1, i32, i64
from xdsl.ir import Attribute, Operation

from flambeau.dialects.declared.checks import same_count
from flambeau.dialects.declared.ops import DeclaredOp, Shape, agree, category, elements_type, fits, shape
from flambeau.dialects.tosa.attributes import ShapeType

Check = Callable[[DeclaredOp], None]


def broadcast(*indices: int) -> Check:
    """Make the check that these operands have one rank and the result the shape that they broadcast to."""

    def check(op: DeclaredOp) -> None:
        types = [op.tensor(i) for i in indices]
        wanted: Shape = shape(types[0]) or ()
        for type_ in types[1:]:
            sizes = shape(type_) or ()
            if len(sizes) != len(wanted):
                op.wrong(f"operands have one rank, got {types[0]} and {type_}")
            if any(None not in (a, b) and a != b and 1 not in (a, b) for a, b in zip(wanted, sizes, strict=True)):
                op.wrong(f"{types[0]} and {type_} do not broadcast")
            wanted = tuple(_wider(a, b) for a, b in zip(wanted, sizes, strict=True))
        op.expect_shape(wanted)

    return check


def _wider(a: int | None, b: int | None) -> int | None:
    if a == 1:
        return b
    if b == 1 or b is None:
        # Against 1, an unknown size is the result's; against another, it is that one or 1.
        return a
    return b


def same_elements(*indices: int) -> Check:
    """Make the check that these operands have the same element type."""

    def check(op: DeclaredOp) -> None:
        first = op.tensor(indices[0])
        for i in indices[1:]:
            if op.tensor(i).element_type != first.element_type:
                op.wrong(f"operands have the same elements, got {first} and {op.tensor(i)}")

    return check


def result_element(index: int) -> Check:
    """Make the check that the result has this operand's element type."""
    return lambda op: op.expect_element(op.tensor(index).element_type)


def boolean_result(op: DeclaredOp) -> None:
    """Check that the result is a tensor of i1."""
    op.expect_element(i1)


def element_is(index: int, wanted: Attribute) -> Check:
    """Make the check that an operand has this element type."""

    def check(op: DeclaredOp) -> None:
        if op.tensor(index).element_type != wanted:
            op.wrong(f"operand {index} is of {wanted}, got {op.tensor(index)}")

    return check


def rank(index: int, wanted: int) -> Check:
    """Make the check that an operand has this rank."""

    def check(op: DeclaredOp) -> None:
        if len(op.tensor(index).get_shape()) != wanted:
            op.wrong(f"operand {index} has rank {wanted}, got {op.tensor(index)}")

    return check


def single(*indices: int) -> Check:
    """Make the check that these operands have one element: zero points, shifts, what padding is filled with."""

    def check(op: DeclaredOp) -> None:
        for i in indices:
            if not fits(shape(op.tensor(i)), (1,)):
                op.wrong(f"operand {i} has the shape [1], got {op.tensor(i)}")

    return check


def as_input(op: DeclaredOp) -> None:
    """Check that the result has the type of the first operand, whatever the others are."""
    if not agree(op.tensor(0), op.result_tensor()):
        op.wrong(f"input and result have one type, got {op.tensor(0)} and {op.result_tensor()}")


def result_shape(op: DeclaredOp) -> None:
    """Check that the result has the shape of the first operand."""
    op.expect_shape(shape(op.tensor(0)) or ())


def result_of_numbers(op: DeclaredOp) -> None:
    """Check that the result's elements are booleans, integers or floats."""
    if category(op.result_tensor().element_type) not in "bif":
        op.wrong(f"gives booleans, integers or floats, got {op.result_tensor()}")


def wide(op: DeclaredOp) -> None:
    """Check that the operands' elements are i32 or i64, the integers that TOSA divides."""
    if op.tensor(0).element_type not in (i32, i64):
        op.wrong(f"is for i32 or i64, got {op.tensor(0)}")


# --- Shapes as operands ---


def sizes_of(op: DeclaredOp, index: int, length: int) -> tuple[int, ...]:
    """Return the numbers of a `!tosa.shape` operand; fail unless they are `length` many, from a `tosa.const_shape`."""
    operand = op.operands[index]
    if operand.type != ShapeType(length):
        op.wrong(f"operand {index} is a !tosa.shape<{length}>, got {operand.type}")
    owner = operand.owner
    value = owner.properties.get("values") if isinstance(owner, Operation) else None
    if not isinstance(value, DenseIntOrFPElementsAttr):
        op.wrong(f"operand {index} comes from a tosa.const_shape")
    return tuple(int(v) for v in value.get_values())


def _known(sizes: Iterable[int]) -> Shape:
    """Convert sizes to a shape: a negative one is dynamic."""
    return tuple(None if s < 0 else s for s in sizes)


def reshape(op: DeclaredOp) -> None:
    op.expect_shape(_known(sizes_of(op, 1, len(shape(op.result_tensor()) or ()))))
    same_count(op)


def pad(op: DeclaredOp) -> None:
    before = shape(op.tensor(0)) or ()
    padding = _known(sizes_of(op, 1, 2 * len(before)))
    both = zip(before, padding[::2], padding[1::2], strict=True)
    op.expect_shape(None if s is None or low is None or high is None else low + s + high for s, low, high in both)


def slice_(op: DeclaredOp) -> None:
    before = shape(op.tensor(0)) or ()
    start, size = sizes_of(op, 1, len(before)), sizes_of(op, 2, len(before))
    for total, first, count in zip(before, start, size, strict=True):
        if count == 0 or (total is not None and first >= 0 and first + max(count, 0) > total):
            op.wrong(f"{list(size)} from {list(start)} is no slice of {op.tensor(0)}")
    op.expect_shape(_known(size))


def tile(op: DeclaredOp) -> None:
    before = shape(op.tensor(0)) or ()
    times = _known(sizes_of(op, 1, len(before)))
    op.expect_shape(None if s is None or n is None else s * n for s, n in zip(before, times, strict=True))


def resize(op: DeclaredOp) -> None:
    before = shape(op.tensor(0)) or ()
    scale, offset, border = sizes_of(op, 1, 4), sizes_of(op, 2, 2), sizes_of(op, 3, 2)
    if any(s < 1 for s in scale):
        op.wrong(f"scales are positive, got {list(scale)}")
    spatial = [
        None if size is None else _windows(op, (size - 1) * scale[2 * i] - offset[i] + border[i], scale[2 * i + 1])
        for i, size in enumerate(before[1:3])
    ]
    op.expect_shape([before[0], *spatial, before[3]])


# --- Single ops ---


def clamp(op: DeclaredOp) -> None:
    low, high = op.properties["min_val"], op.properties["max_val"]
    for value in (low, high):
        if not isinstance(value, IntegerAttr | FloatAttr) or value.type != op.tensor(0).element_type:
            op.wrong(f"the bounds are of {op.tensor(0).element_type}, got {value}")
    if low.value.data > high.value.data:  # type: ignore[attr-defined]
        op.wrong(f"the bounds are in order, got {low} and {high}")


def table(op: DeclaredOp) -> None:
    """Check a table: i8 looks up one of 256 entries, i16 interpolates between two of 513."""
    entries = {"8": (256,), "16": (513,)}.get(str(op.tensor(0).element_type).removeprefix("i"))
    if entries is None or not fits(shape(op.tensor(1)), entries):
        op.wrong(f"{op.tensor(0)} is not looked up in {op.tensor(1)}")
    result_shape(op)


def mul(op: DeclaredOp) -> None:
    same_elements(0, 1)(op)
    wanted = op.tensor(0).element_type
    if category(wanted) != "i" or op.result_tensor().element_type != i32:
        op.expect_element(wanted)


def const(op: DeclaredOp) -> None:
    type_ = elements_type(op.properties["values"])
    if type_ != op.results[0].type:
        op.wrong(f"the value is {type_}, the result {op.results[0].type}")


def const_shape(op: DeclaredOp) -> None:
    value = op.properties["values"]
    sizes = shape(value.get_type()) if isinstance(value, DenseIntOrFPElementsAttr) else None
    if sizes is None or len(sizes) != 1 or op.results[0].type != ShapeType(sizes[0] or 0):
        op.wrong(f"the value is a vector with the sizes of {op.results[0].type}, got {value}")


def transpose(op: DeclaredOp) -> None:
    sizes, order = shape(op.tensor(0)) or (), op.ints("perms") or ()
    if sorted(order) != list(range(len(sizes))):
        op.wrong(f"{list(order)} is no permutation of the dimensions of {op.tensor(0)}")
    op.expect_shape(sizes[d] for d in order)


def concat(op: DeclaredOp) -> None:
    if not op.operands:
        op.wrong("takes at least one operand")
    types = [op.tensor(i) for i in range(len(op.operands))]
    sizes = [shape(t) or () for t in types]
    axis = _axis(op)
    for type_, other in zip(types, sizes, strict=True):
        if not fits(_without(sizes[0], axis), _without(other, axis)) or len(other) != len(sizes[0]):
            op.wrong(f"operands differ in dimension {axis} only, got {types[0]} and {type_}")
        if type_.element_type != types[0].element_type:
            op.wrong(f"operands have the same elements, got {types[0]} and {type_}")
    along = [s[axis] for s in sizes]
    total = None if None in along else sum(s for s in along if s is not None)
    op.expect_shape((*sizes[0][:axis], total, *sizes[0][axis + 1 :]))


def _without(sizes: Shape, axis: int) -> Shape:
    return sizes[:axis] + sizes[axis + 1 :]


def _axis(op: DeclaredOp) -> int:
    axis = op.integer("axis")
    op.expect_dimension(axis, len(op.tensor(0).get_shape()))
    return axis


def reverse(op: DeclaredOp) -> None:
    _axis(op)


def reduce(op: DeclaredOp) -> None:
    axis, sizes = _axis(op), shape(op.tensor(0)) or ()
    op.expect_shape((*sizes[:axis], 1, *sizes[axis + 1 :]))


def argmax(op: DeclaredOp) -> None:
    axis = _axis(op)
    op.expect_shape(_without(shape(op.tensor(0)) or (), axis))
    if category(op.result_tensor().element_type) != "i":
        op.wrong(f"the result is of integers, got {op.result_tensor()}")


def gather(op: DeclaredOp) -> None:
    values, indices = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    if not fits(values[:1], indices[:1]):
        op.wrong(f"values and indices have one batch size, got {op.tensor(0)} and {op.tensor(1)}")
    op.expect_shape((values[0], indices[1], values[2]))


def scatter(op: DeclaredOp) -> None:
    values, indices = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    if not fits(shape(op.tensor(2)), (values[0], indices[1], values[2])) or not fits(values[:1], indices[:1]):
        op.wrong(f"{op.tensor(2)} is not what {op.tensor(1)} puts into {op.tensor(0)}")
    op.expect_shape(values)


def matmul(op: DeclaredOp) -> None:
    a, b = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    if not fits((a[0], a[2]), (b[0], b[1])):
        op.wrong(f"{op.tensor(0)} and {op.tensor(1)} have no product")
    op.expect_shape((a[0], a[1], b[2]))


def _windows(op: DeclaredOp, length: int, stride: int) -> int:
    """Count the windows in a length by a stride; fail unless the last one ends with the input, as TOSA demands."""
    if length < 0 or length % stride:
        op.wrong(f"the last window does not end with the input: a length of {length} in steps of {stride}")
    return length // stride + 1


def _spatial(
    op: DeclaredOp, sizes: Iterable[int | None], kernel: Iterable[int | None], dilation: Iterable[int]
) -> list[int | None]:
    sizes = list(sizes)
    n = len(sizes)
    op.expect_length("pad", 2 * n)
    op.expect_length("stride", n)
    pads, strides = op.ints("pad") or (), op.ints("stride") or ()
    if any(s < 1 for s in (*strides, *dilation)) or any(p < 0 for p in pads):
        op.wrong("strides and dilations are positive, paddings not negative")
    found: list[int | None] = []
    for i, (size, k, d) in enumerate(zip(sizes, kernel, dilation, strict=True)):
        known = size is not None and k is not None
        length = size - 1 + pads[2 * i] + pads[2 * i + 1] - (k - 1) * d if known else 0  # type: ignore[operator]
        found.append(_windows(op, length, strides[i]) if known else None)
    return found


def convolution(op: DeclaredOp) -> None:
    x, weight = shape(op.tensor(0)) or (), shape(op.tensor(1)) or ()
    n = len(x) - 2
    depthwise = op.name == "tosa.depthwise_conv2d"
    # The kernel is [output, ..., input], a depthwise one [height, width, input, multiplier].
    kernel = weight[:2] if depthwise else weight[1:-1]
    taken = weight[2] if depthwise else weight[-1]
    if len(kernel) != n or not fits((x[-1],), (taken,)):
        op.wrong(f"a kernel {op.tensor(1)} is not for {op.tensor(0)}")
    if depthwise:
        features = None if weight[2] is None or weight[3] is None else weight[2] * weight[3]
    else:
        features = weight[0]
    bias = shape(op.tensor(2)) or ()
    if len(bias) != 1 or (features is not None and bias[0] not in (None, 1, features)):
        op.wrong(f"the bias has 1 or {features} elements, got {op.tensor(2)}")
    if op.name == "tosa.transpose_conv2d":
        spatial = _transposed(op, x[1:-1], kernel)
    else:
        op.expect_length("dilation", n)
        spatial = _spatial(op, x[1:-1], kernel, op.ints("dilation") or ())
    op.expect_shape((x[0], *spatial, features))


def _transposed(op: DeclaredOp, sizes: Shape, kernel: Shape) -> list[int | None]:
    op.expect_length("out_pad", 4)
    op.expect_length("stride", 2)
    pads, strides = op.ints("out_pad") or (), op.ints("stride") or ()
    if any(s < 1 for s in strides):
        op.wrong(f"strides are positive, got {list(strides)}")
    return [
        None if s is None or k is None else (s - 1) * strides[i] + pads[2 * i] + pads[2 * i + 1] + k
        for i, (s, k) in enumerate(zip(sizes, kernel, strict=True))
    ]


def pool(op: DeclaredOp) -> None:
    x, kernel = shape(op.tensor(0)) or (), op.ints("kernel") or ()
    op.expect_length("kernel", 2)
    if any(k < 1 for k in kernel):
        op.wrong(f"a kernel's sizes are positive, got {list(kernel)}")
    if any(p >= k for p, k in zip(op.ints("pad") or (), (kernel[0], kernel[0], kernel[1], kernel[1]), strict=False)):
        op.wrong(f"paddings are smaller than the kernel {list(kernel)}, got {list(op.ints('pad') or ())}")
    op.expect_shape((x[0], *_spatial(op, x[1:-1], kernel, (1, 1)), x[-1]))


def fft(op: DeclaredOp) -> None:
    """Check `fft2d` and `rfft2d`, whose results are the real and the imaginary part."""
    sizes = shape(op.tensor(0)) or ()
    if op.name == "tosa.rfft2d":
        sizes = (*sizes[:2], None if sizes[2] is None else sizes[2] // 2 + 1)
    elif not agree(op.tensor(0), op.tensor(1)):
        op.wrong(f"both parts have one type, got {op.tensor(0)} and {op.tensor(1)}")
    for i in range(2):
        op.expect_shape(sizes, i)
        op.expect_element(op.tensor(0).element_type, i)


def rescale(op: DeclaredOp) -> None:
    wide = bool(op.integer("scale32"))
    if category(op.tensor(1).element_type) != "i" or (op.tensor(1).element_type == i32) != wide:
        op.wrong(f"the multiplier is of {'i32' if wide else 'i16'}, got {op.tensor(1)}")
    channels = (shape(op.tensor(0)) or (1,))[-1] if op.integer("per_channel") else 1
    for i in (1, 2):
        if not fits(shape(op.tensor(i)), (channels,)):
            op.wrong(f"operand {i} has {channels} elements, got {op.tensor(i)}")


def cond_if(op: DeclaredOp) -> None:
    condition = op.tensor(0)
    if condition.element_type != i1 or any(s not in (None, 1) for s in shape(condition) or ()):
        op.wrong(f"chooses by one boolean, got {condition}")
    for i in range(2):
        if op.regions[i].blocks[0].args or len(op.operands) > 1:
            op.expect_arguments(i, op.operand_types[1:])
        op.expect_terminator(i, op.result_types)


def while_loop(op: DeclaredOp) -> None:
    if len(op.operands) != len(op.results) or not all(map(agree, op.operand_types, op.result_types)):
        op.wrong("results have the types of the operands")
    for i in range(2):
        op.expect_arguments(i, op.operand_types)
    last = op.regions[0].blocks[0].last_op
    given = list(last.operand_types) if last is not None else []
    if len(given) != 1 or not isinstance(given[0], TensorType) or given[0].element_type != i1:
        op.wrong("the condition gives one boolean")
    op.expect_terminator(1, op.result_types)
