"""Ops that only PyTorch's own decompositions cover, expanded one node at a time on fake tensors."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from flambeau.diagnostics import Unsupported
from flambeau.frontends.fx.gradients import BACKWARD
from flambeau.frontends.fx.packed_weights import weight_int4pack_mm

TRACING = threading.RLock()
"""Held while PyTorch traces: it keeps what it is doing in places that all threads share."""


@cache
def _table() -> dict[Any, Any]:
    """Collect PyTorch's decompositions: the core ATen set, and all others that it has; and what only it can unpack."""
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    ours = {
        aten._weight_int4pack_mm_for_cpu.default: weight_int4pack_mm,
        aten._efficientzerotensor.default: _zeros,
        **BACKWARD,
    }
    try:
        from torch._decomp import core_aten_decompositions

        return {**decomposition_table, **dict(core_aten_decompositions()), **ours}
    except ImportError:
        return {**decomposition_table, **ours}


def _zeros(size: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Let PyTorch trace ops of ATen, and not those of a library for one CPU."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@contextmanager
def plain_ops() -> Iterator[None]:
    """Let autograd record ops of ATen that have gradients of the same kind, and not kernels for one CPU."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with plain_kernels(), sdpa_kernel(SDPBackend.MATH):
        yield


def expand(node: Node, target: Any) -> tuple[GraphModule, list[Any]] | None:
    """Trace PyTorch's decomposition of a node to a graph and its input nodes; None where there is no decomposition."""
    decomposition = _table().get(target)
    if decomposition is None:
        decomposition = target.decompose if _has_composite_kernel(target) else _python_kernel(target)
    if decomposition is None:
        return None
    traced = trace(node, decomposition)
    if traced is None or any(n.op == "call_function" and n.target is target for n in traced[0].graph.nodes):
        return None
    return traced


def trace(
    node: Node, decomposition: Callable[..., Any], graphs: Mapping[Node, GraphModule] | None = None
) -> tuple[GraphModule, list[Any]] | None:
    """Trace a function of a node's arguments; return the graph and its input nodes, None if it cannot be traced.

    `graphs` are the arguments of a higher-order op that are graphs of their own, and are called.
    """
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound

    inputs: list[Any] = []
    called: Mapping[Node, Any] = graphs or {}

    def lift(n: Node) -> Any:
        if n not in inputs and n not in called:
            inputs.append(n)
        return n

    map_arg((node.args, node.kwargs), lift)
    metas = [n.meta.get("val") for n in inputs]
    if any(m is None for m in metas):
        return None
    mode = fake_mode_of(metas, node)

    def body(*values: Any) -> Any:
        by_node = {**called, **dict(zip(inputs, values, strict=True))}
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
    """Decompose `aten.batch_norm` so that the running statistics, which it writes in place, are results."""
    if mean is None:
        return (torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)[0],)
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    result, _, _, *statistics = functional(x, weight, bias, mean, var, True, momentum, eps)
    return (result, *statistics)


def native_batch_norm_in_training(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Compute the op's three results, and in training the new running mean and variance after them."""
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
    """Compute an instance norm as a batch norm over N*C channels; new statistics are the mean over the batch."""
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
    """Copy FX's immutable lists and dictionaries to ordinary ones, which decompositions may change."""
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
    """Return the Python definition of an op that PyTorch itself wrote in Python; None for ops of other libraries."""
    if getattr(target, "namespace", None) != "quantized_decomposed":
        kernel = kernel_of(target) if hasattr(target, "_schema") else None
        return kernel if kernel is not None and kernel.__module__.split(".")[0] == "torch" else None
    library = import_module("torch.ao.quantization.fx._decomposed")
    base, overload = target._schema.name.split("::")[1], target._schema.overload_name
    return getattr(library, f"{base}_{overload}" if overload else base, None) or getattr(library, base, None)


def kernel_of(target: Any) -> Callable[..., Any] | None:
    """Return the Python function of an op made with `torch.library.custom_op`; None for other ops."""
    from torch._library.custom_ops import OPDEFS

    found = OPDEFS.get(target._schema.name)
    return None if found is None else found._init_fn


def fake_mode_of(metas: list[Any], node: Node) -> Any:
    """Find the fake tensor mode of a node's operands or result; make a new one where there is none."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    def find(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return value.fake_mode
        if isinstance(value, (list, tuple)):
            return next((m for v in value if (m := find(v)) is not None), None)
        return None

    return find(metas) or find(node.meta.get("val")) or FakeTensorMode()
