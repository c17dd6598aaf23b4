"""What `torch.autocast` does to the ops of a region.

PyTorch records the ops of such a region without the casts that it makes of their operands. An op for which autocast has
a rule gets its operands cast. One that has none, but consists of ops that have one (`einsum` is a `bmm` in the end),
must be looked into: the importer traces it in the region and takes what it finds in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from flambeau.diagnostics import Unsupported
from flambeau.frontends.fx.expansion import TRACING, fake_mode_of, kernel_of
from flambeau.ir import dtypes

Autocast = tuple[Any, ...] | None
"""Device, dtype and whether it is on: what `torch.autocast` is called with. None outside of such a region."""

ENTER, EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
BOUNDS = frozenset({ENTER, EXIT})
"""Where a region begins and ends that PyTorch has not made a graph of its own: there is a branch or a loop in it."""

_KEY = torch._C.DispatchKey.AutocastCPU
_NOTE = "flambeau_autocast"


def ambient_autocast() -> Autocast:
    """Return the autocast region that the caller is in, as device, dtype and enabled flag; None outside of one."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    return ("cpu", torch.get_autocast_dtype("cpu"), True)


def entered(arguments: Sequence[Any], outer: Autocast) -> Autocast:
    """Return the region that a call of `torch.autocast` opens: `outer` for other devices, None if it disables."""
    device, dtype, enabled = (*arguments, None, None)[:3]
    if device != "cpu":
        return outer
    return (device, dtype, enabled) if enabled else None


def autocast_of(node: Node) -> Autocast:
    """Return the autocast region in which a node has to be expanded; None if it can be imported as it is."""
    return node.meta.get(_NOTE)


def under_autocast(autocast: Autocast, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs in a region."""
    if autocast is None:
        return function
    device, dtype, enabled = autocast

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False):
            return function(*args, **kwargs)

    return wrapped


def apply_autocast(flat: Graph, node: Node, autocast: tuple[Any, ...]) -> None:
    """Cast the operands of an op as autocast does, or note that the op must be looked into."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None or (schema.is_mutable and kernel_of(node.target) is not None):
        node.meta[_NOTE] = autocast  # A branch or a loop, or a kernel that the importer looks into in any case.
        return
    if schema.is_mutable or schema.name in ("aten::to", "aten::_to_copy", "aten::type_as"):
        return
    metas: dict[Node, Any] = {n: n.meta.get("val") for n in node.all_input_nodes}
    floats = {m.dtype for m in metas.values() if isinstance(m, torch.Tensor) and m.is_floating_point()}
    if floats <= {torch.float64}:  # which autocast leaves alone
        return
    casts = _casts(node, metas, autocast)
    if casts and node.target.has_kernel_for_dispatch_key(_KEY):  # type: ignore[union-attr]
        own: Any = ()
        if any(isinstance(a, torch.dtype) for a in (*node.args, *node.kwargs.values())):
            own = _casts(node, metas, (*autocast[:2], False)) or ()  # The op casts by itself.
        _insert_casts(flat, node, metas, dict(c for c in casts if c not in own))
    elif casts:
        # Some ops cast wherever they are. Operands of several dtypes are more than most take without autocast.
        own = _casts(node, metas, (*autocast[:2], False)) if len(floats) == 1 else None
        if own is None or [dtype for _, dtype in casts] != [dtype for _, dtype in own]:
            node.meta[_NOTE] = autocast
    elif casts is None or schema.name in _KERNELS or _is_mistold(node, autocast):
        node.meta[_NOTE] = autocast


def _insert_casts(flat: Graph, node: Node, metas: dict[Node, Any], casts: dict[int, torch.dtype]) -> None:
    """Cast the operands of an op, which are given by the ids of their metas."""
    replaced: dict[Node, Node] = {}
    with flat.inserting_before(node):
        for source, meta in metas.items():
            if id(meta) in casts:
                dtype = casts[id(meta)]
                replaced[source] = made = flat.call_function(torch.ops.aten.to.dtype, (source, dtype))
                made.meta = {**node.meta, "val": meta.to(dtype)}
    node.args = map_arg(node.args, lambda n: replaced.get(n, n))
    node.kwargs = map_arg(node.kwargs, lambda n: replaced.get(n, n))


class _Casts(TorchDispatchMode):
    """Records which of some tensors are cast before an op's kernel is reached."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is not None:
            self.seen.append((args[0], kwargs["dtype"]))
        return func(*args, **kwargs)


def _casts(node: Node, metas: dict[Node, Any], autocast: tuple[Any, ...]) -> list[tuple[int, torch.dtype]] | None:
    """List what is cast while an op runs, a tensor by its id; None if the op looks at values, which are not there."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    args, kwargs = map_arg((node.args, node.kwargs), lambda n: metas[n])
    run = under_autocast(autocast, node.target)  # type: ignore[arg-type]
    try:
        with TRACING, torch.no_grad(), fake_mode_of(list(metas.values()), node), _Casts() as casts:
            run(*args, **kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return None
    return [(id(tensor), to) for tensor, to in casts.seen if dtypes.from_torch(to) is not None]


# Kernels that call ops for which autocast has a rule. Where PyTorch traces, it does not see what they call.


def _bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    """Compute `aten.bilinear`: two products that autocast casts, given back in the dtype of the first operand."""
    partial = torch.einsum("...i,oij->...oj", x, weight)
    result = torch.einsum("...oj,...j->...o", partial, y).to(x.dtype)
    return result if bias is None else result + bias


_KERNELS: dict[str, Callable[..., Any]] = {"aten::bilinear": _bilinear}
"""What such a kernel does, in terms of ops that it calls."""

_MISTOLD = frozenset({"aten::affine_grid_generator", "aten::linalg_pinv"})
"""Kernels whose results have another dtype than PyTorch says where it traces, and so all that is made of them."""


def _is_mistold(node: Node, autocast: tuple[Any, ...]) -> bool:
    """Tell whether an op under autocast yields another dtype at run time than the graph records for it."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    if schema.name in _MISTOLD:
        return node.meta["val"].dtype is not (autocast[1] or torch.get_autocast_dtype("cpu"))
    if schema.name != "aten::lstm" or schema.overload_name != "input" or not torch.backends.mkldnn.is_available():
        return False
    # Without a projection, oneDNN computes all of it in the dtype of the region, but not where PyTorch traces.
    x, (hidden, cell, *_) = (map_arg(a, lambda n: n.meta["val"]) for a in cast("Any", node.args[:2]))
    return bool(x.dtype is torch.float32 and hidden.shape[-1] == cell.shape[-1])


def call_in_region(node: Node) -> Callable[..., Any]:
    """Give a function of an op's operands that is to be traced in place of an op that must be looked into."""
    autocast = autocast_of(node)
    assert autocast is not None
    if _is_mistold(node, autocast):
        raise Unsupported(
            "in a region of autocast, PyTorch gives another dtype than it tells while it traces",
            "Call it in a region of its own: with torch.autocast('cpu', enabled=False).",
        )
    target: Any = node.target
    return under_autocast(autocast, _KERNELS.get(target._schema.name, target))
