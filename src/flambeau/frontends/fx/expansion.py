"""Ops that only PyTorch's own decompositions cover, expanded one node at a time on fake tensors."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from flambeau.diagnostics import Unsupported

TRACING = threading.RLock()
"""Held while PyTorch traces: it keeps what it is doing in places that all threads share."""


@cache
def _table() -> dict[Any, Any]:
    """PyTorch's decompositions: the core ATen set, and all others that it has."""
    from torch._decomp import decomposition_table

    try:
        from torch._decomp import core_aten_decompositions

        return {**decomposition_table, **dict(core_aten_decompositions())}
    except ImportError:
        return dict(decomposition_table)


def expand(node: Node, target: Any) -> tuple[GraphModule, list[Any]] | None:
    """The graph of PyTorch's decomposition of a node and the node's inputs to it; None where there is none."""
    decomposition = _table().get(target)
    if decomposition is None:
        decomposition = target.decompose if _has_composite_kernel(target) else _python_kernel(target)
    if decomposition is None:
        return None
    traced = trace(node, decomposition)
    if traced is None or any(n.op == "call_function" and n.target is target for n in traced[0].graph.nodes):
        return None
    return traced


def trace(node: Node, decomposition: Callable[..., Any]) -> tuple[GraphModule, list[Any]] | None:
    """The graph of a function called with a node's arguments, and the nodes that are its inputs."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound

    inputs: list[Any] = []

    def lift(n: Node) -> Any:
        if n not in inputs:
            inputs.append(n)
        return n

    map_arg((node.args, node.kwargs), lift)
    metas = [n.meta.get("val") for n in inputs]
    if any(m is None for m in metas):
        return None
    mode = fake_mode_of(metas, node)

    def body(*values: Any) -> Any:
        by_node = dict(zip(inputs, values, strict=True))
        args, kwargs = _plain(map_arg((node.args, node.kwargs), lambda n: by_node[n]))
        result = decomposition(*args, **kwargs)
        # A named tuple would be a call of its class in the graph.
        return tuple(result) if isinstance(result, tuple) else result

    try:
        with TRACING, warnings.catch_warnings():
            # What PyTorch warns of is how it decomposes, which is no concern of the user's.
            warnings.simplefilter("ignore")
            # Without mkldnn, recurrent layers decompose to ATen ops and not to kernels of one CPU library. The region
            # of autocast that the caller stands in need not be that of the node.
            with (
                torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", enabled=False), mode
            ):  # fmt: skip
                traced = make_fx(body, tracing_mode="real", _allow_non_fake_inputs=True)(*metas)
    except (NotImplementedError, GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound):
        # Some decompositions look at values, which fake tensors do not have. The op stays whole, and whoever
        # cannot take it says so with its name.
        return None
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(
            f"PyTorch's own decomposition of it failed: {type(error).__name__}: {reason}",
            "Name the op in `keep` to leave it whole, or write it with other ops.",
        ) from error
    traced.graph.eliminate_dead_code()
    return traced, inputs


def batch_norm_in_training(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> tuple[Any, ...]:
    """`aten.batch_norm` writes its running statistics, which its schema does not say: here they are results."""
    if mean is None:
        return (torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)[0],)
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    result, _, _, *statistics = functional(x, weight, bias, mean, var, True, momentum, eps)
    return (result, *statistics)


def native_batch_norm_in_training(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """The three results, then the new statistics if there are such."""
    if not training:
        return tuple(torch.ops.aten._native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps))
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    return tuple(functional(x, weight, bias, mean, var, True, momentum, eps))


def batch_norm_with_update(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    result, saved, deviation, *statistics = native_batch_norm_in_training(
        x, weight, bias, mean, var, True, momentum, eps
    )
    # What some kernels keep for the backward pass; here there is nothing to keep.
    return (result, saved, deviation, x.new_empty(0, dtype=torch.uint8), *statistics)


def instance_norm_in_training(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float, cudnn: bool
) -> tuple[Any, ...]:
    """A batch norm in which each channel of each example is a channel of its own."""
    examples, channels = x.shape[:2]

    def each(v: Any) -> Any:
        return None if v is None else v.repeat(examples)

    flat = x.reshape(1, examples * channels, *x.shape[2:])
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    result, _, _, *statistics = functional(flat, *map(each, (weight, bias, mean, var)), True, momentum, eps)
    return (result.reshape(x.shape), *(s.reshape(examples, channels).mean(0) for s in statistics))


IN_TRAINING: dict[str, Callable[..., tuple[Any, ...]]] = {
    "aten.batch_norm": batch_norm_in_training,
    "aten.native_batch_norm": native_batch_norm_in_training,
    "aten._native_batch_norm_legit": native_batch_norm_in_training,
    "aten._batch_norm_with_update": batch_norm_with_update,
    "aten.instance_norm": instance_norm_in_training,
}
"""Norms as functions that also give their new statistics, last."""


def _plain(value: Any) -> Any:
    """FX's immutable lists and dictionaries as ordinary ones, which decompositions may change."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _has_composite_kernel(target: Any) -> bool:
    try:
        return bool(target._can_decompose())
    except (AttributeError, NotImplementedError):
        return False


def _python_kernel(target: Any) -> Any:
    """What PyTorch's library of quantised ops says an op is, in Python; None for ops of other libraries."""
    if getattr(target, "namespace", None) != "quantized_decomposed":
        return None
    library = import_module("torch.ao.quantization.fx._decomposed")
    base, overload = target._schema.name.split("::")[1], target._schema.overload_name
    return getattr(library, f"{base}_{overload}" if overload else base, None)


def kernel_of(target: Any) -> Callable[..., Any] | None:
    """The Python function of an op that was made with `torch.library.custom_op`; None for other ops."""
    from torch._library.custom_ops import OPDEFS

    found = OPDEFS.get(target._schema.name)
    return None if found is None else found._init_fn


def fake_mode_of(metas: list[Any], node: Node) -> Any:
    """The mode that a node's fake tensors belong to."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    def find(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return value.fake_mode
        if isinstance(value, (list, tuple)):
            return next((m for v in value if (m := find(v)) is not None), None)
        return None

    return find(metas) or find(node.meta.get("val")) or FakeTensorMode()
