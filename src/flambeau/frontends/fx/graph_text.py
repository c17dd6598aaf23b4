"""A graph as text that says all that a program compiled of it depends on: an artefact on disk is named by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

_NAMESPACES = ("aten", "prims", "prim")
"""Ops whose meaning is PyTorch's own. That of a custom op is in Python code, which may change without its name."""
_MODULES = ("_operator", "math", "builtins", "torch")
_HIGHER_ORDER = ("cond", "while_loop", "scan", "associative_scan", "map_impl", "invoke_subgraph", "flex_attention")
"""Higher-order ops that have their parts as graphs."""
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class NoText(Exception):
    """A graph contains something of which no text says what it is."""


def graph_text(owner: GraphModule, open_attributes: Collection[str] = ()) -> str:
    """Spell a graph out, with the types of all values and the contents of its tensors; raises NoText.

    Of `open_attributes` the contents do not matter.
    """
    lines = list(_lines(owner, open_attributes))
    return "\n".join([*lines, *_sizes(owner)])


def _lines(owner: GraphModule, open_attributes: Collection[str] = ()) -> Iterator[str]:
    storages: dict[int, int] = {}
    for node in owner.graph.nodes:
        if node.op == "get_attr":
            text = "open" if node.target in open_attributes else _attribute(_at(owner, str(node.target)))
        elif node.op == "call_function":
            text = _target(node.target)
        elif node.op in ("placeholder", "output"):
            text = ""
        else:
            raise NoText(f"a node {node.op}")
        values = "" if node.op == "output" else _value(node.meta.get("val"), storages)
        yield f"%{node.name} = {node.op} {text}({_argument(node.args)}, {_argument(node.kwargs)}) : {values}"


def _at(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def _attribute(value: Any) -> str:
    if isinstance(value, GraphModule):
        return "{\n" + "\n".join(_lines(value)) + "\n}"
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or value.layout is not torch.strided:
        raise NoText(f"an attribute of type {type(value).__name__}")
    if value.device.type != "cpu" or value.is_quantized:
        raise NoText("an attribute that is no plain tensor on the CPU")
    data = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{_type(value)} {hashlib.sha256(data.tobytes()).hexdigest()}"


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in _NAMESPACES:
            raise NoText(f"the op {target.name()}")
        return target.name()
    if isinstance(target, torch._ops.HigherOrderOperator):
        if target.name() not in _HIGHER_ORDER:
            raise NoText(f"the op {target.name()}")
        return target.name()
    module = getattr(target, "__module__", None) or ""
    if module.split(".")[0] not in _MODULES or "<" in target.__qualname__:
        raise NoText(f"a call of {target!r}")
    return f"{module}.{target.__qualname__}"


def _argument(value: Any) -> str:
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return f"{type(value).__name__} {value.node.expr}"
    if type(value) in (int, float, complex):
        return repr(value)
    if isinstance(value, _NAMED):
        return str(value)
    if isinstance(value, torch._ops.OpOverload):
        return _target(value)
    if isinstance(value, slice):
        return f"slice({_argument((value.start, value.stop, value.step))})"
    if isinstance(value, (list, tuple)):
        return f"{'[' if isinstance(value, list) else '('}{', '.join(map(_argument, value))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_argument(item)}" for key, item in value.items()) + "}"
    raise NoText(f"an argument of type {type(value).__name__}")


def _value(meta: Any, storages: dict[int, int]) -> str:
    """Spell out what is known of a value; tensors with one number share their storage."""
    if isinstance(meta, torch.Tensor):
        if type(meta) not in (FakeTensor, torch.Tensor, torch.nn.Parameter) or meta.layout is not torch.strided:
            raise NoText(f"a value of type {type(meta).__name__}, layout {meta.layout}")
        storage = storages.setdefault(meta.untyped_storage()._cdata, len(storages))
        return f"{_type(meta)} in {storage}"
    if isinstance(meta, (list, tuple)):
        return f"({', '.join(_value(m, storages) for m in meta)})"
    return _argument(meta)


def _type(tensor: torch.Tensor) -> str:
    flags = f"{tensor.is_conj():d}{tensor.is_neg():d}"
    sizes = ", ".join(map(str, tensor.shape))
    strides = ", ".join(map(str, tensor.stride()))
    return f"{tensor.dtype}[{sizes}]({strides})+{tensor.storage_offset()} {tensor.device} {flags}"


def _sizes(owner: GraphModule) -> Iterator[str]:
    """Say what is known of symbols: their ranges, the sizes that were captured with, and what follows from guards."""
    environments = {}
    for node in owner.graph.nodes:
        metas = node.meta.get("val")
        for meta in metas if isinstance(metas, (list, tuple)) else [metas]:
            for size in meta.shape if isinstance(meta, torch.Tensor) else [meta]:
                if isinstance(size, torch.SymInt):
                    environments[id(size.node.shape_env)] = size.node.shape_env
    for environment in environments.values():
        yield from sorted(f"{symbol} in {known}" for symbol, known in environment.var_to_range.items())
        yield from sorted(f"{symbol} = {value}" for symbol, value in environment.backed_var_to_val.items())
        yield from sorted(f"guard {guard.expr}" for guard in environment.guards)
