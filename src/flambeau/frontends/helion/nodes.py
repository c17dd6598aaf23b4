"""One FX node as a function `@aten_op`: Helion's nodes are brought into the form that the importer expects."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.fx.exported import import_graph_module
from flambeau.ir.module import Signature, Weights

FUNCTION = "aten_op"
"""What the function of a node is called."""

Symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)


# --- Before the import ---


def synthesize_tensor_meta(value: torch.Tensor) -> dict[str, Any]:
    """Describe a tensor as FX does under `tensor_meta`."""
    return {
        "shape": tuple(value.shape),
        "dtype": value.dtype,
        "requires_grad": value.requires_grad,
        "stride": tuple(value.stride()),
        "memory_format": _memory_format(value),
        "is_quantized": value.is_quantized,
    }


def _memory_format(value: torch.Tensor) -> torch.memory_format:
    """Return the memory format; where a tensor is dense in several, the contiguous one counts."""
    by_rank = {4: torch.channels_last, 5: torch.channels_last_3d}
    other = by_rank.get(value.dim())
    if other is None or any(isinstance(d, torch.SymInt) for d in (*value.shape, *value.stride())):
        return torch.contiguous_format
    if value.is_contiguous() or not value.is_contiguous(memory_format=other):
        return torch.contiguous_format
    return other


def normalize_node(node: Node) -> Node:
    """Give a node what FX nodes of a traced graph have: fake values, and `tensor_meta` for them.

    The node is changed in place and returned. A tuple of tensors (`max.dim`) has a tuple of each.
    """
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        node.meta["val"] = fake(value)
        node.meta["tensor_meta"] = synthesize_tensor_meta(value)
    elif isinstance(value, (tuple, list)) and any(isinstance(v, torch.Tensor) for v in value):
        node.meta["val"] = tuple(fake(v) if isinstance(v, torch.Tensor) else v for v in value)
        node.meta["tensor_meta"] = tuple(
            synthesize_tensor_meta(v) if isinstance(v, torch.Tensor) else None for v in value
        )
    return node


_MODE = FakeTensorMode(allow_non_fake_inputs=True)


def fake(value: torch.Tensor) -> torch.Tensor:
    """Make a fake tensor of the same dtype, sizes and strides."""
    if isinstance(value, FakeTensor):
        return value
    if value.device.type == "meta":
        with _MODE:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
    return _MODE.from_tensor(value.detach(), static_shapes=True)


def fake_like(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make a fake tensor of this shape and dtype."""
    with _MODE:
        return torch.empty(tuple(shape), dtype=dtype)


def inputs_of(node: Node) -> list[Node]:
    """List the nodes that a node takes, from its args and then its kwargs, one for each place where it takes one."""
    found: list[Node] = []
    map_arg((node.args, node.kwargs), lambda n: found.append(n) or n)  # type: ignore[func-returns-value]
    return found


# --- The import ---


class NodeImporter:
    """Imports single nodes: a function `@aten_op` with an argument for each tensor that the node takes.

    This one stops at the torch dialect as imported; `flambeau.helion.NodeImporter` goes on to every output type.
    """

    def __init__(self, output_type: str = "raw") -> None:
        if output_type != "raw":
            raise ValueError(f"this importer stops at raw; flambeau.helion.NodeImporter({str(output_type)!r}) goes on")
        self.output_type = output_type

    def import_node(self, node: Node, inputs: Sequence[Any] | None = None) -> func.FuncOp:
        """Import a node as a function; `inputs` are what its `inputs_of` are: tensors, symbolic or plain numbers.

        A plain number stands in the function; everything else is an argument, in the order of `inputs`.
        Without `inputs`, they are what the nodes say in `meta["val"]`.
        """
        return self.import_function(node, inputs)[0]

    def import_function(self, node: Node, inputs: Sequence[Any] | None = None) -> tuple[func.FuncOp, Signature]:
        """Import a node as a function, with the signature that PyTorch infers for it."""
        if inputs is None:
            inputs = [normalize_node(n).meta.get("val") for n in inputs_of(node)]
        module, weights, signature = import_graph_module(minimal_graph(node, inputs), self.keeps, FUNCTION)
        module = self.lower(module, weights, signature)
        (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
        for i, argument in enumerate(function.body.block.args):
            argument.name_hint = f"arg{i}"
        return function, signature

    def keeps(self, name: str) -> bool:
        """Tell whether an op is left whole; the others are expanded by PyTorch's decompositions."""
        return True

    def lower(self, module: ModuleOp, weights: Weights, signature: Signature) -> ModuleOp:
        """Take the imported module to the output type."""
        return module


def minimal_graph(node: Node, inputs: Sequence[Any]) -> GraphModule:
    """Build a graph that calls the node's target on placeholders `input_0`, `input_1`, ... and returns each part."""
    taken = inputs_of(node)
    if len(inputs) != len(taken):
        raise ValueError(f"{node.name} takes {len(taken)} inputs, not {len(inputs)}")
    graph = Graph()
    values: list[Any] = []
    for i, value in enumerate(inputs):
        if isinstance(value, (torch.Tensor, *Symbolic)):
            placeholder = graph.placeholder(f"input_{i}")
            placeholder.meta["val"] = fake(value) if isinstance(value, torch.Tensor) else value
            normalize_node(placeholder)
            values.append(placeholder)
        elif value is None:
            raise _problem(node, f"input {i} has no meta['val'], so its shape and dtype are unknown")
        else:
            values.append(value)
    given: Iterator[Any] = iter(values)
    args, kwargs = map_arg((node.args, node.kwargs), lambda _: next(given))
    op = graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
    op.meta.update({k: node.meta[k] for k in ("stack_trace", "nn_module_stack") if k in node.meta})
    op.meta["val"] = evaluate(node, args, kwargs)
    normalize_node(op)
    result = op.meta["val"]
    if isinstance(result, (tuple, list)):
        parts = []
        for i, value in enumerate(result):
            part = graph.call_function(operator.getitem, (op, i))
            part.meta["val"] = value
            parts.append(normalize_node(part))
        graph.output(tuple(parts))
    else:
        graph.output(op)
    return GraphModule(torch.nn.Module(), graph)


def evaluate(node: Node, args: Any, kwargs: Any) -> Any:
    """Run the target on fake tensors; CompileError where it fails."""
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    args, kwargs = map_arg((args, kwargs), lambda n: n.meta["val"])
    modes = {v.fake_mode for v in _leaves((args, kwargs)) if isinstance(v, FakeTensor)}
    if not callable(target) or len(modes) > 1:
        raise _problem(node, "it is not an op on tensors of one fake mode")
    try:
        with modes.pop() if modes else _MODE:
            return target(*args, **kwargs)
    except (TypeError, RuntimeError, ValueError, IndexError) as error:
        raise _problem(node, str(error).strip().split("\n")[0]) from error


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _leaves(v)
    else:
        yield value


def _problem(node: Node, reason: str) -> CompileError:
    hint = "Give the node's inputs to import_node, or tensors in meta['val']."
    return CompileError([Diagnostic("import", f"{node.name}: {reason}", op=str(node.target), hint=hint)])
