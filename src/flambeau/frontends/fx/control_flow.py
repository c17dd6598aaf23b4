"""Higher-order ops: `cond`, `while_loop`, `scan` and `map` as branches and loops, others as PyTorch defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch._C import DispatchKey
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves
from xdsl.ir import Block, Region, SSAValue

from flambeau.dialects.torch.ops import IfOp, IfYieldOp, LoopConditionOp, LoopOp
from flambeau.dialects.torch.types import BOOL, INT, TensorType, VTensorType, vtensor
from flambeau.frontends.fx.aliasing import analyze
from flambeau.frontends.fx.autocast import Autocast, autocast_of
from flambeau.frontends.fx.expansion import trace
from flambeau.frontends.fx.guards import emit_size, sizes_of
from flambeau.frontends.fx.operands import map_values
from flambeau.frontends.fx.operators import inline_expansion
from flambeau.frontends.fx.regions import attribute_of, without_regions
from flambeau.frontends.fx.types import Problem, type_of
from flambeau.ir.dtypes import INT64_MAX

if TYPE_CHECKING:
    from flambeau.frontends.fx.importer import GraphImporter


def import_cond(importer: GraphImporter, node: Node, owner: Any) -> None:
    """Import `torch.cond` as a `torch.prim.If` with a region for each branch."""
    flag, *branches, operands = node.args
    arguments = importer.resolve(operands)
    regions = []
    for branch in branches:
        block = Block()
        results = _in_region(importer, block, owner, branch, arguments, autocast_of(node))
        with importer.inside(block):
            importer.emitter.emit(IfYieldOp, results)
        regions.append(Region(block))
    types = [type_of(m) for m in _metas(node)]
    for region in regions:
        end = region.block.last_op
        assert end is not None
        with importer.inside(region.block):
            importer.emitter.before = end
            end.operands = [importer.emitter.cast(v, t) for v, t in zip(end.operands, types, strict=True)]
            importer.emitter.before = None
    op = importer.emitter.emit(IfOp, (_flag(importer, importer.resolve(flag)),), types, regions=regions)
    importer.values[node] = _bound(importer, node, op.results)


def import_while_loop(importer: GraphImporter, node: Node, owner: Any) -> None:
    """Import `torch.while_loop` as a `torch.prim.Loop` that runs while its condition holds."""
    condition, body, carried, extra = (*node.args, ())[:4]
    first, more = (
        map_values(importer.resolve(carried), importer.value),
        map_values(importer.resolve(extra), importer.value),
    )
    types = [type_of(m) for m in _metas(node)]
    inits = [importer.emitter.cast(v, t) for v, t in zip(first, types, strict=True)]
    autocast = autocast_of(node)
    (going,) = _import_body(importer, owner, condition, [*inits, *more], autocast)
    start = _flag(importer, going)
    block = Block(arg_types=[INT, *types])
    nexts = _in_region(importer, block, owner, body, [*block.args[1:], *more], autocast)
    with importer.inside(block):
        nexts = [importer.emitter.cast(v, t) for v, t in zip(nexts, types, strict=True)]
        (going,) = _import_body(importer, owner, condition, [*nexts, *more], autocast)
        importer.emitter.emit(LoopConditionOp, (_flag(importer, going), *nexts))
    trip = importer.emitter.constant(INT64_MAX)
    op = importer.emitter.emit(LoopOp, (trip, start, *inits), types, regions=[Region(block)])
    importer.values[node] = _bound(importer, node, op.results)


def import_scan(importer: GraphImporter, node: Node, owner: Any) -> None:
    """Import `scan(combine, init, xs)` as a `torch.prim.Loop` over the first dim of `xs`.

    A turn takes the carried values and one slice of each of `xs`; it gives the carried values anew, and one slice of
    each result.
    """
    combine, init, xs, extra = (*node.args, ())[:4]
    _import_rows(importer, node, owner, combine, init, xs, extra)


def import_map(importer: GraphImporter, node: Node, owner: Any) -> None:
    """Import `map(body, xs)` as a `torch.prim.Loop` over the first dim of `xs`: a `scan` that carries nothing."""
    body, xs, extra = (*node.args, ())[:3]
    _import_rows(importer, node, owner, body, (), xs, extra)


def _import_rows(importer: GraphImporter, node: Node, owner: Any, body: Any, init: Any, xs: Any, extra: Any) -> None:
    """Import a loop over the first dim of `xs` that carries `init` and, behind it, the results that it fills."""
    emitter = importer.emitter
    first, rows, more = (map_values(importer.resolve(v), importer.value) for v in (init, xs, extra))
    metas = _metas(node)
    count, types = len(first), [type_of(m) for m in metas]
    sizes = sizes_of(tree_leaves((init, xs, extra)), importer.values)
    inits = [emitter.cast(v, t) for v, t in zip(first, types[:count], strict=True)]
    inits += [_empty(importer, meta, sizes) for meta in metas[count:]]
    block = Block(arg_types=[INT, *types])
    turn, *carried = block.args
    with importer.inside(block):
        zero = emitter.constant(0)
        slices = [emitter.op("aten.select.int", (x, zero, turn), [_row_type(x.type)])[0] for x in rows]
    values = _in_region(importer, block, owner, body, [*carried[:count], *slices, *more], autocast_of(node))
    with importer.inside(block):
        nexts = [emitter.cast(v, t) for v, t in zip(values[:count], types[:count], strict=True)]
        for result, value in zip(carried[count:], values[count:], strict=True):
            operands = (result, emitter.cast(value, _row_type(result.type)), zero, turn)
            nexts += emitter.op("aten.select_scatter", operands, [result.type])
        emitter.emit(LoopConditionOp, (emitter.constant(True), *nexts))
    trip = emitter.size_along(rows[0], 0)
    op = emitter.emit(LoopOp, (trip, emitter.constant(True), *inits), types, regions=[Region(block)])
    importer.values[node] = _bound(importer, node, op.results)


def _row_type(type_: Any) -> VTensorType:
    """Return the type of one slice of a tensor along its first dim."""
    return vtensor(type_.shape[1:], type_.element_type)


def _empty(importer: GraphImporter, meta: Any, sizes: Mapping[Any, Any]) -> SSAValue:
    """Emit a tensor of a fake tensor's shape and dtype, whose contents are not set yet."""
    emitter = importer.emitter
    shape = [n if isinstance(n, int) else emit_size(emitter, n.node.expr, sizes) for n in meta.shape]
    if None in shape:
        raise Problem(f"a result of shape {list(meta.shape)}, of which a size cannot be computed before the loop", "")
    type_ = type_of(meta)
    assert isinstance(type_, TensorType)
    assert type_.dtype is not None
    rest = [emitter.constant(v) for v in (type_.dtype.code, None, None, None, None)]
    return emitter.op("aten.empty.memory_format", (emitter.ints(shape), *rest), [type_])[0]


def _in_region(
    importer: GraphImporter, block: Block, owner: Any, body: Any, arguments: Sequence[Any], autocast: Autocast
) -> list[SSAValue]:
    with importer.inside(block):
        return [importer.operand(v) for v in _import_body(importer, owner, body, arguments, autocast)]


def _import_body(
    importer: GraphImporter, owner: Any, body: Any, arguments: Sequence[Any], autocast: Autocast
) -> list[Any]:
    """Import a graph where the emitter stands; gives its outputs."""
    module = attribute_of(owner, str(body.target))
    graph = without_regions(module.graph, module, autocast)
    aliasing = analyze(graph)
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") and aliasing.is_mutable(node):
            raise Problem(
                f"a branch or the body of a loop writes to {node.name!r}, which is not its own",
                "Return the new value and write it outside, or clone() before writing.",
            )
    inner = [n for n in graph.nodes if n.op == "placeholder"]
    for placeholder, value in zip(inner, arguments, strict=True):
        # The body sees what is there when it is entered.
        importer.values[placeholder] = map_values(value, importer.value)
    location = importer.emitter.location
    results = importer.resolve(importer.import_nodes(graph, module, aliasing))
    importer.emitter.location = location
    found = map_values(results, importer.value)
    return found if isinstance(found, list) else [found]


def _flag(importer: GraphImporter, value: Any) -> SSAValue:
    """Convert a condition to a `!torch.bool`; a tensor goes through `aten.Bool.Tensor`."""
    value = importer.operand(value)
    return (
        importer.emitter.op("aten.Bool.Tensor", (value,), (BOOL,))[0] if isinstance(value.type, TensorType) else value
    )


def _bound(importer: GraphImporter, node: Node, results: Sequence[SSAValue]) -> list[SSAValue]:
    for value, meta in zip(results, _metas(node), strict=True):
        importer.bind_shape(value, meta)
    return list(results)


def _metas(node: Node) -> list[Any]:
    """List the fake values, as in `meta["val"]`, of each result of a node."""
    meta = node.meta.get("val")
    return list(meta) if isinstance(meta, (list, tuple)) else [meta]


def import_definition(importer: GraphImporter, node: Node, owner: Any) -> None:
    """Import a higher-order op (`flex_attention`, its backward pass) as the ops of PyTorch's own definition of it."""
    target: Any = node.target
    name, definition = _name(node), target.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    graphs = {
        n: graph
        for n in node.all_input_nodes
        if n.op == "get_attr" and isinstance(graph := attribute_of(owner, str(n.target)), GraphModule)
    }
    traced = None if definition is None else trace(node, definition, graphs)
    if traced is None:
        hint = "Write it with ops of ATen's, or with cond, while_loop, scan or map."
        raise Problem(f"PyTorch has no definition of the higher-order op {name} that can be traced", hint)
    inline_expansion(importer, node, *traced)


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", str(node.target))


HIGHER_ORDER: dict[str, Callable[[GraphImporter, Node, Any], None]] = {
    "cond": import_cond,
    "map_impl": import_map,
    "scan": import_scan,
    "while_loop": import_while_loop,
}
"""The higher-order ops that are branches and loops, by PyTorch's names for them.

Those that are put in place are in regions.py; all others go through `import_definition`.
"""
