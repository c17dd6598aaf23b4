"""`torch.cond` and `torch.while_loop` as branches and loops of the torch dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import Node
from xdsl.ir import Block, Region, SSAValue

from flambeau.dialects.torch.ops import IfOp, IfYieldOp, LoopConditionOp, LoopOp
from flambeau.dialects.torch.types import BOOL, INT, TensorType
from flambeau.frontends.fx.aliasing import analyze
from flambeau.frontends.fx.autocast import Autocast, autocast_of
from flambeau.frontends.fx.operands import map_values
from flambeau.frontends.fx.regions import attribute_of, without_regions
from flambeau.frontends.fx.types import Problem, type_of

if TYPE_CHECKING:
    from flambeau.frontends.fx.importer import GraphImporter


def import_cond(importer: GraphImporter, node: Node, owner: Any) -> None:
    """`torch.cond` as a branch."""
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
    """`torch.while_loop` as a loop that goes on while its condition holds."""
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
    trip = importer.emitter.constant((1 << 63) - 1)
    op = importer.emitter.emit(LoopOp, (trip, start, *inits), types, regions=[Region(block)])
    importer.values[node] = _bound(importer, node, op.results)


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
    """A condition as a bool; it may be a tensor."""
    value = importer.operand(value)
    return (
        importer.emitter.op("aten.Bool.Tensor", (value,), (BOOL,))[0] if isinstance(value.type, TensorType) else value
    )


def _bound(importer: GraphImporter, node: Node, results: Sequence[SSAValue]) -> list[SSAValue]:
    for value, meta in zip(results, _metas(node), strict=True):
        importer.bind_shape(value, meta)
    return list(results)


def _metas(node: Node) -> list[Any]:
    """What PyTorch knows of each result of a node."""
    meta = node.meta.get("val")
    return list(meta) if isinstance(meta, (list, tuple)) else [meta]
