"""Loops that write a tensor element by element: each is one dispatch.

WORKAROUND(iree==3.13): the compiler makes dispatches of linalg ops; a loop around single elements (`scf.for` with
`tensor.extract` and `tensor.insert`) stays on the host, where every element that is written is a copy of the tensor.
In a dispatch of its own the same loop is compiled as it stands, and writes in place. Three things help it: what the
loop reads is computed before, what it starts with is copied into the memory of its result, and the tensors that it
carries have no dims of size 1, around which the compiler would make ops that do not dominate their uses. It can go when
bench/engine_bugs.py says so of "a loop that writes elements", and the care about dims of size 1 when
`test_a_loop_that_writes_into_a_dim_of_size_1` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import scf, tensor
from xdsl.dialects.builtin import LocationAttr, ModuleOp, TensorType, UnregisteredOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from flambeau.dialects.linalg_named import segments
from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once, dtype_of
from flambeau.lowering.builder import Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder

_DISPATCH_NAME = "flow.dispatch.region"
_DISPATCH = UnregisteredOp.with_name(_DISPATCH_NAME)
_COPY = UnregisteredOp.with_name("bufferization.materialize_in_destination")
_KEEP = UnregisteredOp.with_name("util.optimization_barrier")
_RETURN = UnregisteredOp.with_name("flow.return")

_ON_ELEMENTS = (tensor.ExtractOp, tensor.InsertOp, tensor.EmptyOp, tensor.DimOp)
SCALAR_DIALECTS = ("arith.", "math.", "complex.", "scf.")


def is_serial(op: Operation) -> bool:
    """Tell whether an op is a loop that computes with single elements, and writes some."""
    if not isinstance(op, scf.ForOp) or not all(isinstance(r.type, TensorType) or not r.uses for r in op.results):
        return False
    inner = list(op.walk())
    return any(isinstance(i, tensor.InsertOp) for i in inner) and all(
        isinstance(i, _ON_ELEMENTS) or i.name.startswith(SCALAR_DIALECTS) for i in inner
    )


def _is_dispatch(op: Operation) -> bool:
    return isinstance(op, UnregisteredOp) and op.op_name.data == _DISPATCH_NAME


def is_dispatched(op: Operation) -> bool:
    """Tell whether an op is inside of a dispatch."""
    parent = op.parent_op()
    return parent is not None and (_is_dispatch(parent) or is_dispatched(parent))


def outermost_loops(module: ModuleOp) -> Iterator[Operation]:
    """Yield the loops that are to be dispatches: serial ones that are in no other, and in no dispatch yet."""

    def outermost(region: Region) -> Iterator[Operation]:
        for block in region.blocks:
            for op in block.ops:
                if _is_dispatch(op) or op.name.startswith("linalg."):
                    continue
                if is_serial(op):
                    yield op
                else:
                    for inner in op.regions:
                        yield from outermost(inner)

    yield from outermost(module.body)


def _dispatch(op: scf.ForOp) -> None:
    """Put a loop into a dispatch, whose results are the tensors that the loop gives."""
    assert op.parent is not None
    b = builder_before(op)
    tensors = [i for i, r in enumerate(op.results) if isinstance(r.type, TensorType) and not _leave_out(op, i)]
    _compute_before(b, op)
    wholes = [Tensor(op.iter_args[i], dtype_of(op.iter_args[i])) for i in tensors]
    sizes = [b.sizes(whole) for whole in wholes]
    for i, whole, own in zip(tensors, wholes, sizes, strict=True):
        narrow = [s for s in own if not (isinstance(s, int) and s == 1)]
        is_empty = isinstance(whole.value.owner, tensor.EmptyOp)
        start = b.empty(narrow, whole.dtype) if is_empty else b.reshape(whole, narrow)
        op.operands[3 + i] = start.value
    _drop_unit_dims(op, tensors)
    results, block = [op.results[i] for i in tensors], Block()
    open_sizes = [s for own in sizes for s in own if isinstance(s, SSAValue)]
    dispatch = _DISPATCH.create(
        operands=open_sizes,
        result_types=[r.type for r in results],
        properties={"operandSegmentSizes": segments(len(open_sizes), 0)},
        regions=[Region(block), Region()],
        location=op.location,
    )
    b.insert(dispatch)
    for old, new, own in zip(results, dispatch.results, sizes, strict=True):
        if not _is_read(old):
            # A result that nobody reads is dropped, and what the loop has in it is on the stack then.
            b.insert(_KEEP.create(operands=[new], result_types=[new.type], location=op.location))
        if old.uses:
            old.replace_all_uses_with(b.reshape(Tensor(new, dtype_of(new)), own).value)
    op.parent.detach_op(op)
    for i in tensors:
        op.operands[3 + i] = _start(block, op.iter_args[i], op.location)
    block.add_ops([op, _RETURN.create(operands=results, location=op.location)])


def _is_read(value: SSAValue) -> bool:
    """Tell whether anything comes of a value: what is only reshaped for nobody is not read."""
    seen, left = {value}, [value]
    while left:
        users = [use.operation for use in left.pop().uses]
        if not all(user.results for user in users):
            return True
        made = {r for user in users for r in user.results} - seen
        seen |= made
        left.extend(made)
    return False


def _compute_before(b: LinalgBuilder, op: scf.ForOp) -> None:
    """Keep the compiler from computing in the dispatch what the loop reads; it would be on the stack there."""
    inside = set(op.walk())
    for value in {v for inner in inside for v in inner.operands if isinstance(v.type, TensorType)}:
        made = value.owner
        if isinstance(made, Operation) and made not in inside and not isinstance(made, tensor.EmptyOp):
            uses = [u for u in value.uses if u.operation in inside]
            computed = computed_once(b, Tensor(value, dtype_of(value))).value
            for use in uses:
                use.operation.operands[use.index] = computed


def _leave_out(op: scf.ForOp, i: int) -> bool:
    """Take a tensor that no turn changes as it is; says whether it is one."""
    block = op.body.block
    assert block.last_op is not None
    start, carried = op.iter_args[i], block.args[1 + i]
    if block.last_op.operands[i] is not carried:
        return False
    carried.replace_all_uses_with(start)
    op.results[i].replace_all_uses_with(start)
    return True


def _drop_unit_dims(op: scf.ForOp, tensors: Sequence[int]) -> None:
    """Drop the dims of size 1 from the tensors that are made in a loop, and from the positions in them.

    Of those that the loop carries, `tensors` are the ones that it changes.
    """
    made = [v for i in tensors for v in (op.results[i], op.body.block.args[1 + i])]
    for inner in list(op.body.walk()):
        made += [*inner.results, *(a for r in inner.regions for block in r.blocks for a in block.args)]
    for value in made:
        type_ = value.type
        if not isinstance(type_, TensorType) or 1 not in (shape := type_.get_shape()):
            continue
        for use in value.uses if value.owner is not op else ():
            if isinstance(use.operation, (tensor.ExtractOp, tensor.InsertOp)):
                user, first = use.operation, use.index + 1
                kept = [v for v, n in zip(user.operands[first:], shape, strict=True) if n != 1]
                user.operands = [*user.operands[:first], *kept]
        Rewriter.replace_value_with_new_type(value, TensorType(type_.element_type, [n for n in shape if n != 1]))


def _start(block: Block, start: SSAValue, location: LocationAttr) -> SSAValue:
    """Make the start of a loop in a dispatch: the memory of its result, with what was computed before."""
    whole, inside = Tensor(start, dtype_of(start)), LinalgBuilder(block)
    inside.location = location
    empty = inside.empty(inside.sizes(whole), whole.dtype).value
    if isinstance(start.owner, tensor.EmptyOp):
        return empty
    copy = _COPY.create(operands=[start, empty], result_types=[start.type], location=location)
    inside.insert(copy)
    return copy.results[0]


REWRITE = Rewrite(outermost_loops, _dispatch)


def flags(module: ModuleOp) -> tuple[str, ...]:
    """Return flags for a program that has been rewritten: LLVM may vectorise the inner loops of its dispatches.

    Other programs have none: what the compiler has tiled already, LLVM's loop vectors may slow down.
    """
    has_loops = any(map(_is_dispatch, module.walk()))
    return ("--iree-llvmcpu-loop-vectorization",) if has_loops else ()
