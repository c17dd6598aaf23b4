"""Loop nests that copy rows from computed places, or backwards, as loops over single elements.

WORKAROUND(iree==3.13): the compiler makes vectors of a `linalg.generic` whose body has a `tensor.extract`. Where it
does not see that the loads are of neighbours, each element of a vector is a branch and a load: it does not see it of
rows that go backwards, nor of rows whose number is an element of another tensor. Flipping a million elements takes five
times as long as in PyTorch. Of a loop over single elements LLVM makes vectors. It can go when
bench/engine_bugs.py says so of "rows that go backwards".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp, IndexOp, YieldOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.engines.iree.serial_loops import SCALAR_DIALECTS, is_dispatched
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if isinstance(op, GenericOp) and _is_plain(op) and _copies_rows(op) and not is_dispatched(op):
            yield op


def _is_plain(op: GenericOp) -> bool:
    """Tell whether a loop nest is parallel, over numbers, with a body of scalar ops and loads."""
    expressions = [e for m in op.indexing_maps for e in m.data.results]
    return (
        all(i.data is IteratorType.PARALLEL for i in op.iterator_types)
        and all(isinstance(e, (AffineDimExpr, AffineConstantExpr)) for e in expressions)
        and len(op.iterator_types) > 0
        and not any(a.uses for a in op.body.block.args[len(op.inputs) :])
        and not any(dtype_of(v).is_bool or 0 in v.type.get_shape() for v in op.outputs)  # type: ignore[attr-defined]
        and all(isinstance(i, _OTHERS) or i.name.startswith(SCALAR_DIALECTS) for i in op.body.walk())
    )


_OTHERS = (tensor.ExtractOp, IndexOp, YieldOp)


def _copies_rows(op: GenericOp) -> bool:
    """Tell whether all loads of a body are of neighbours, and at least one so that the compiler does not see it."""
    block, steps = op.body.block, _steps(op)
    loads = [i for i in block.ops if isinstance(i, tensor.ExtractOp)]
    if not loads or any(isinstance(i, tensor.ExtractOp) for o in block.ops for r in o.regions for i in r.walk()):
        return False
    places = [[steps.get(v, 0) for v in load.indices] for load in loads]
    if not all(place and not any(place[:-1]) and place[-1] in (1, -1) for place in places):
        return False
    by_index = any(_is_read(v, block) for load in loads for v in load.indices)
    return by_index or any(place[-1] == -1 for place in places)


def _steps(op: GenericOp) -> dict[SSAValue, int | None]:
    """Map each number of a body to its growth per iteration of the innermost loop; None if not known."""
    last = len(op.iterator_types) - 1
    block = op.body.block
    steps: dict[SSAValue, int | None] = {}
    for argument, map_ in zip(block.args, op.indexing_maps, strict=True):
        steps[argument] = None if AffineDimExpr(last) in map_.data.results else 0
    for inner in block.ops:
        own = [steps.get(v, 0) for v in inner.operands]
        step = 0 if not any(s != 0 for s in own) and not inner.regions else None
        if isinstance(inner, IndexOp):
            step = int(inner.dim.value.data == last)
        elif None not in own and isinstance(inner, (arith.AddiOp, arith.SubiOp, arith.IndexCastOp)):
            first, second = [*own, 0][:2]
            step = (first or 0) + (second or 0) * (-1 if isinstance(inner, arith.SubiOp) else 1)
        steps.update(dict.fromkeys(inner.results, step))
    return steps


def _is_read(value: SSAValue, block: Block) -> bool:
    """Tell whether a number in a body depends on an element of an operand."""
    if isinstance(value, BlockArgument):
        return value.owner is block
    op = value.owner
    assert isinstance(op, Operation)
    return op.parent is block and any(_is_read(v, block) for v in op.operands)


def _as_loops(op: GenericOp) -> None:
    """Copy row by row: what all elements of a row have in common is computed once, before its loop."""
    b = builder_before(op)
    block, rank = op.body.block, len(op.iterator_types)
    outs = [_tensor(v) for v in op.outputs]
    sizes = b.sizes(outs[0])
    sources = [(a, _tensor(v), m.data) for a, v, m in zip(block.args, op.inputs, op.indexing_maps, strict=False)]
    steps = _steps(op)

    def compute(at: list[Size], values: dict[SSAValue, SSAValue]) -> dict[SSAValue, SSAValue]:
        """Compute the values of a body that depend only on the outer loops `at`, beside those known before."""
        known = dict(values)
        for argument, source, map_ in sources:
            if argument not in known and all(d < len(at) for d in map_.used_dims()):
                known[argument] = b.load(source, _position(map_, at)).value
        for inner in block.ops:
            if isinstance(inner, YieldOp) or any(r in known for r in inner.results):
                continue
            if isinstance(inner, IndexOp):
                if inner.dim.value.data < len(at):
                    known[inner.results[0]] = b.index(at[inner.dim.value.data])
            elif len(at) == rank or (
                _may_be_early(inner) and all(v in known or v not in steps for v in inner.operands)
            ):
                b.insert(inner.clone(known))
        return known

    def row(at: list[Size], *carried: Tensor) -> Sequence[Tensor]:
        before = compute(at, {})

        def turn(i: SSAValue, *carried: Tensor) -> list[Tensor]:
            values = compute([*at, i], before)
            new = [Element(b, values.get(v, v), dtype_of(r)) for v, r in zip(_yielded(op), op.results, strict=True)]
            return [b.store(t, [*at, i], e) for t, e in zip(carried, new, strict=True)]

        return b.loop(0, sizes[-1], carried, turn)

    for old, result in zip(op.results, b.nest(sizes[:-1], outs, row), strict=True):
        old.replace_all_uses_with(result.value)
    erase(op)


def _may_be_early(op: Operation) -> bool:
    """Tell whether an op may be computed for a row without elements, where nothing guards it."""
    return not (op.regions or isinstance(op, tensor.ExtractOp) or "div" in op.name or "rem" in op.name)


def _yielded(op: GenericOp) -> Sequence[SSAValue]:
    last = op.body.block.last_op
    assert last is not None
    return last.operands


def _tensor(value: SSAValue) -> Tensor:
    return Tensor(value, dtype_of(value))


def _position(map_: AffineMap, at: list[Size]) -> list[Size]:
    return [at[e.position] if isinstance(e, AffineDimExpr) else 0 for e in map_.results]


REWRITE = Rewrite(_found, _as_loops)
