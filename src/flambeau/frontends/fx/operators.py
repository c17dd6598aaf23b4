"""Calls of ATen ops: each by its schema, or by what PyTorch expands it to."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node
from xdsl.ir import SSAValue

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import NonValueTensorType
from flambeau.frontends.fx.aliasing import (
    DEPEND_ON_STRIDES,
    HARMLESS,
    PERHAPS_VIEWS,
    RESHAPING,
    UNSAFE_VIEWS,
    analyze,
    gives_back,
    is_view,
    is_written_later,
    op_name,
    overlaps,
    statistics_of,
    updates_statistics,
)
from flambeau.frontends.fx.autocast import autocast_of, call_in_region, under_autocast
from flambeau.frontends.fx.complex_numbers import WITH_NUMBERS
from flambeau.frontends.fx.expansion import IN_TRAINING, expand, kernel_of, trace
from flambeau.frontends.fx.factors import WITH_FACTORS, uses_factors
from flambeau.frontends.fx.gradients import rrelu_with_noise
from flambeau.frontends.fx.guards import emit_rank_guards, emit_view_guards
from flambeau.frontends.fx.operands import argument_operand, emit_op, map_values
from flambeau.frontends.fx.schemas import SEVERAL_VIEWS, first_argument, foreign_schema, without_out, writes_results
from flambeau.frontends.fx.shape_changes import refuse_shape_change
from flambeau.frontends.fx.strided import SCATTERED, STRIDED, require_order, strided_arguments
from flambeau.frontends.fx.types import Problem, type_of
from flambeau.frontends.fx.view_or_copy import deciding_dims, layout_sources, makes_difference

if TYPE_CHECKING:
    from flambeau.frontends.fx.importer import GraphImporter


_FACTS = frozenset({
    "aten._assert_tensor_metadata", "aten.sym_constrain_range", "aten.sym_constrain_range_for_size",
    "aten._functional_assert_async.msg", "aten._assert_async", "aten._assert_async.msg",
})  # fmt: skip
"""Ops that state facts which held when the program was exported. They compute nothing."""

_ON_SYMBOLS = {"aten.sym_size.int": "aten.size.int", "aten.sym_numel": "aten.numel"}
"""Ops on symbolic sizes, and those that give the same as numbers of the program."""


def import_operator(importer: GraphImporter, node: Node, target: Any) -> None:
    """Import a call of an op that has a schema."""
    name = op_name(target)
    if name in _FACTS:
        importer.values[node] = None
        return
    if name in HARMLESS:
        importer.values[node] = importer.resolve(node.args[0])
        return
    if name == "aten.sym_storage_offset":
        importer.values[node] = _offset_that_is_only_checked(node)
        return
    refuse_shape_change(node, name)
    schema, given = _bound_call(importer, node, name, target)
    mutable = importer.aliasing.is_mutable(node)
    if schema.name in STRIDED:
        given = strided_arguments(node, given, importer.values, importer.emitter, mutable)
    elif schema.name in SCATTERED:
        require_order(given[0])
    if _looked_into(importer, node, schema, target):
        return
    if mutable and schema.name in STRIDED:
        importer.lying.add(first_argument(node))
    shares = mutable
    if schema.name in DEPEND_ON_STRIDES and importer.aliasing.written:
        # What nobody tells from a copy can be one.
        shares = _require_same_view(importer, schema.name, node) and mutable
    of_view = shares and not schema.is_mutable and _is_perhaps_view(schema, node)
    # What is given back as it is can as well be a copy, if nobody writes to it any more.
    of_view = of_view and (schema.is_view or is_written_later(node, importer.aliasing))
    if of_view and _as_view(importer, node):
        return
    if schema.name.startswith("aten.squeeze"):
        emit_rank_guards(importer.emitter, node, importer.resolve(node.args[0]))
    aliased = of_view or (shares and schema.is_view and is_view(node, first_argument(node)))
    if not _expanded(importer, node, target, schema, given, of_view, aliased):
        _emit_call(importer, node, schema, given, of_view, aliased)
        if name in RESHAPING and isinstance(node.args[0], Node):
            importer.values[node.args[0]] = importer.values[node]


def _bound_call(importer: GraphImporter, node: Node, name: str, target: Any) -> tuple[Schema, list[Any]]:
    """Choose the schema that a call is imported by; return it with the call's arguments in its order."""
    name = RESHAPING.get(name, name)
    if importer.aliasing.is_mutable(node):
        name = UNSAFE_VIEWS.get(name, name)
    name = _ON_SYMBOLS.get(name, name)
    schema = registry.schema(name)
    given = schema.bind(node.args, node.kwargs) if schema is not None else None
    if schema is None or given is None:
        schema, given = foreign_schema(name, target, node)
    return registry.scalar_twin(schema, given)


def _looked_into(importer: GraphImporter, node: Node, schema: Schema, target: Any) -> bool:
    """Import what a call consists of, where the op itself does not say what it does; False for other calls."""
    if updates_statistics(schema, node):
        _norm_in_training(importer, schema, node)
    elif schema.name == "aten.rrelu_with_noise" and not (*node.args, False, False, False)[4]:
        inner = trace(node, rrelu_with_noise)
        assert inner is not None
        inline_expansion(importer, node, *inner)
    elif uses_factors(schema.name, node):
        inner = trace(node, WITH_FACTORS[schema.name])
        assert inner is not None
        inline_expansion(importer, node, *inner)
    elif writes_results(schema):
        _write_results(importer, schema, node, target)
    elif schema.is_mutable and (kernel := kernel_of(target)) is not None:
        # Nobody knows what it writes but its own kernel.
        inner = trace(node, under_autocast(autocast_of(node), kernel))
        if inner is None:
            raise Problem("its kernel looks at the values of tensors", "Write it with ops of PyTorch.")
        inline_expansion(importer, node, *inner, aliased=True)
    elif autocast_of(node) is not None:
        inner = trace(node, call_in_region(node))
        if inner is None:
            raise Problem(
                "it looks at the values of tensors, and what autocast does inside of it is not known",
                "Call it in a region of its own: with torch.autocast('cpu', enabled=False).",
            )
        inline_expansion(importer, node, *inner)
    else:
        return False
    return True


def _offset_that_is_only_checked(node: Node) -> int:
    """Return 0 for an offset in memory of which the program only asks whether it is at least 0, as exports do."""
    if any(user.target is not operator.ge or user.args[1] != 0 for user in node.users):
        raise Problem("the program computes with the place of a tensor in memory", "Use its sizes instead.")
    return 0


_WRONGLY_TYPED = frozenset({"aten.embedding_bag.padding_idx"})
"""Ops whose results have other shapes than PyTorch says, and that it expands to others."""


def _expanded(
    importer: GraphImporter, node: Node, target: Any, schema: Schema, given: list[Any], of_view: bool, aliased: bool
) -> bool:
    """Import PyTorch's own decomposition of an op that nothing downstream takes; False where the op stays."""
    hidden = of_view and not schema.is_view
    several = importer.aliasing.is_mutable(node) and schema.name in SEVERAL_VIEWS
    # The dialect has no complex numbers for arguments; PyTorch's decompositions make tensors of them.
    numbers = [v for a, v in zip(schema.arguments, given, strict=True) if not a.type.is_tensor]
    is_taken = importer.keep(_spelled(schema, of_view)) and schema.name not in _WRONGLY_TYPED
    if any(isinstance(n, complex) for n in numbers):
        is_taken = False
        if target in WITH_NUMBERS and (traced := trace(node, WITH_NUMBERS[target])) is not None:
            inline_expansion(importer, node, *traced, aliased=aliased)
            return True
    if schema.is_mutable or (is_taken and not hidden and not several):
        return False
    expanded = expand(node, target)
    if expanded is None:
        if hidden:
            raise Problem("it gives its argument back, and somebody writes to it", "clone() its result.")
        return False
    inline_expansion(importer, node, *expanded, aliased=aliased)
    if "output_mask" in schema.index:  # Some decompositions compute what was not asked for.
        mask = given[schema.index["output_mask"]]
        importer.values[node] = [v if m else None for v, m in zip(importer.values[node], mask, strict=True)]
    return True


def _spelled(schema: Schema, of_view: bool) -> str:
    """Return the name that an op is emitted by: a `reshape` that shares storage is a `view`, which says so."""
    return "aten.view" if of_view and schema.name == "aten.reshape" else schema.name


def _emit_call(
    importer: GraphImporter, node: Node, schema: Schema, given: list[Any], of_view: bool, aliased: bool
) -> None:
    """Emit the op itself."""
    is_alias = schema.is_mutable or aliased
    written = [v for a, v in zip(schema.arguments, given, strict=True) if a.is_written]
    operands = []
    for argument, value in zip(schema.arguments, given, strict=True):
        keep_mutable = is_alias and not overlaps(value, written, importer.aliasing)
        operands.append(argument_operand(importer, argument, importer.resolve(value), keep_mutable))
    if schema.is_mutable:
        operands = [importer.mutable(o) for o in operands]
    importer.values[node] = emit_op(importer, node, _spelled(schema, of_view), schema, operands, is_alias)


def _require_same_view(importer: GraphImporter, name: str, node: Node) -> bool:
    """Note that an op must give a view at run time if it did so where it was traced, and a copy if it did not.

    Gives whether that makes a difference.
    """
    source = first_argument(node)
    if not makes_difference(node, source, importer.aliasing, importer.written_outside):
        return False
    importer.lying |= layout_sources(source)
    emit_view_guards(importer.emitter, name, importer.resolve(source), deciding_dims(node, source))
    return True


def _is_perhaps_view(schema: Schema, node: Node) -> bool:
    """Tell whether an op that may return a view or a copy returns a view here."""
    if schema.name in PERHAPS_VIEWS:
        return is_view(node, first_argument(node))
    if schema.is_view or not any(gives_back(schema, node, n) for n in node.all_input_nodes):
        return False
    if node.all_input_nodes != [node.args[0]] or not isinstance(node.meta.get("val"), torch.Tensor):
        raise Problem("it gives a part of its arguments back, and somebody writes to it", "clone() its result.")
    return True


def _as_view(importer: GraphImporter, node: Node) -> bool:
    """Import an op that turns out to give a view (a `reshape`, a `to` of the same dtype) as one that is."""
    source = importer.resolve(node.args[0])
    old, new = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    if old.shape == new.shape and old.stride() == new.stride():
        importer.values[node] = source
        return True
    if not all(isinstance(d, int) for d in new.shape):
        return False
    if old.numel() != new.numel() or (old.is_contiguous() and not new.is_contiguous()):
        raise Problem("it gives a part of its argument back, and somebody writes to it", "clone() its result.")
    operands = (importer.mutable(source), importer.emitter.ints([int(d) for d in new.shape]))
    importer.values[node] = importer.emitter.op("aten.view", operands, [type_of(new, value_semantics=False)])[0]
    return True


def _write_results(importer: GraphImporter, schema: Schema, node: Node, target: Any) -> None:
    """Import an op with `out=`, as `torch.add(x, y, out=z)`: compute the results, then copy them into the arguments."""
    written = [a.name for a in schema.arguments if a.is_written]
    expanded = trace(node, lambda *args, **kwargs: without_out(target, written)(*args, **kwargs))
    if expanded is None:
        raise Problem("an op with `out` whose input types are unknown", "Trace the graph with torch.export.")
    inline_expansion(importer, node, *expanded)
    results = importer.values[node] if isinstance(importer.values[node], list) else [importer.values[node]]
    places = []
    for name, result in zip(written, results, strict=True):
        place = importer.mutable(importer.resolve(node.kwargs[name]))
        result = importer.value(result)
        shapes = [str(importer.shapes.get(v, v.type.shape)) for v in (place, result)]  # type: ignore[attr-defined]
        if place.type.shape != result.type.shape or shapes[0] != shapes[1]:  # type: ignore[attr-defined]
            raise Problem("`out` does not have the shape of the result", "Give it one of the right shape.")
        importer.emitter.op("aten.copy_", [place, result, importer.emitter.constant(False)], [place.type])
        places.append(place)
    importer.values[node] = places[0] if len(places) == 1 else places


def _norm_in_training(importer: GraphImporter, schema: Schema, node: Node) -> None:
    """Import a norm with its new statistics as results, and write them, which its schema does not say it does."""
    expanded = trace(node, IN_TRAINING[schema.name])
    if expanded is None:
        raise Problem("a norm whose input types are unknown", "Trace the graph with torch.export.")
    inline_expansion(importer, node, *expanded)
    count = len(schema.returns)
    results, statistics = importer.values[node][:count], importer.values[node][count:]
    for written, new in zip(statistics_of(schema, node), statistics):
        old = importer.resolve(written)
        importer.emitter.op("aten.copy_", [old, importer.mutable(new), importer.emitter.constant(False)], [old.type])
    importer.values[node] = results if count > 1 else results[0]


def inline_expansion(
    importer: GraphImporter, node: Node, graph_module: GraphModule, arguments: Sequence[Any], aliased: bool = False
) -> None:
    """Import PyTorch's own decomposition of a node in its place; `aliased` if it is a view that is written."""
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    for placeholder, argument in zip(placeholders, arguments, strict=True):
        value = importer.resolve(argument)
        if isinstance(value, SSAValue) and isinstance(value.type, NonValueTensorType) and not aliased:
            value = importer.read(value)
        importer.values[placeholder] = value
    location = importer.emitter.location
    for inner in graph_module.graph.nodes:
        inner.meta["stack_trace"] = node.meta.get("stack_trace")
        inner.meta["nn_module_stack"] = node.meta.get("nn_module_stack")
    outside = placeholders if aliased else ()
    inner = analyze(graph_module.graph, outside)
    result = importer.resolve(importer.import_nodes(graph_module.graph, graph_module, inner, outside))
    importer.emitter.location = location
    if importer.aliasing.is_mutable(node):
        result = map_values(result, importer.mutable)
    importer.values[node] = result
