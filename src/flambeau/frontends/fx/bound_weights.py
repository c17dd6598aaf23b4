"""Weights of a captured graph as the program's own: an engine packs them once, and not in every call.

Dynamo passes the parameters and buffers of a model as arguments. Those that are large, and that the graph does not
write, become weights of the compiled program. Neither the address of a tensor nor its version counter tells for certain
whether its contents are still the same (`p.data.copy_()` changes none of the two), so that each call compares the
contents, unless the user says that the two will do.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

from flambeau.frontends.tensors import PARAMETER_BYTES

_RESTLESS = 4
"""So many changes of weights, in at least each second call, and they are arguments again."""


class Rebindable(Protocol):
    """A program that can be had with other weights, without compiling it again."""

    weights: Mapping[str, Any]

    def __call__(self, *args: Any) -> Any: ...

    def with_weights(self, weights: Mapping[str, Any]) -> Rebindable: ...


class Held(NamedTuple):
    """The contents of a weight that is bound, and where they come from."""

    contents: torch.Tensor
    source: torch.Tensor
    """The tensor that they were copied from. While it lives no other can be at its address."""
    version: int | None
    """PyTorch's count of the writes to it then; None if they are not counted."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Held:
        version = None if tensor.is_inference() else tensor._version
        return cls(_contents(tensor).clone(), tensor.detach(), version)

    def is_untouched(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is the source itself and its version counter shows no write since."""
        if self.version is None or tensor.is_inference():
            return self.equals(tensor)
        is_there = tensor.data_ptr() == self.source.data_ptr() and tensor.stride() == self.source.stride()
        return is_there and tensor._version == self.version

    def equals(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor has the same dtype, shape and bytes: a NaN equals itself, and 0.0 is not -0.0."""
        held = self.contents
        if tensor.dtype != held.dtype or tensor.shape != held.shape:
            return False
        contents = _contents(tensor)
        return _MEMCMP(contents.data_ptr(), held.data_ptr(), held.nbytes) == 0


def weights_to_bind(inputs: Sequence[Any], examples: Sequence[Any]) -> dict[int, Held]:
    """Find the arguments that can be bound as weights; map their positions to their contents.

    `inputs` are AOTAutograd's (fake) arguments of the graph, `examples` are Dynamo's, which are real. Where the two do
    not correspond nothing is lost but time: calls compare what they pass.
    """
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(inputs) != len(examples) or len(metadata.input_info) != len(inputs):
        return {}
    found = {}
    for i in metadata.static_input_indices:
        example, information = examples[i], metadata.input_info[i]
        if information.mutates_data or information.mutates_metadata or not _is_plain(example):
            continue
        if example.nbytes > PARAMETER_BYTES and example.shape == inputs[i].shape and example.dtype == inputs[i].dtype:
            found[i] = Held.of(example)
    return found


def _is_plain(tensor: Any) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and not isinstance(tensor, FakeTensor)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
    )


def with_attributes(graph_module: GraphModule, weights: Mapping[int, Held]) -> tuple[GraphModule, dict[int, str]]:
    """Copy a graph with the arguments at these positions turned into attributes, whose names are the second result."""
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    output = graph.graph_copy(graph_module.graph, copied)
    original = next(n for n in reversed(graph_module.graph.nodes) if n.op == "output")
    graph.output(output).meta = original.meta
    owner = GraphModule(graph_module, graph)
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    names = {}
    for i, weight in weights.items():
        node = copied[placeholders[i]]
        name = names[i] = f"bound_{node.name}"
        setattr(owner, name, torch.nn.Buffer(weight.contents, persistent=False))
        with graph.inserting_before(node):
            attribute = graph.get_attr(name)
        attribute.meta = dict(node.meta)
        node.replace_all_uses_with(attribute)
        graph.erase_node(node)
    owner.recompile()
    return owner, names


class _Bound(NamedTuple):
    """A program, and what is bound to it by the positions of the arguments that it comes in."""

    run: Rebindable
    held: dict[int, Held]


class BoundProgram:
    """A program that takes some of its arguments as weights, and follows them when they change.

    `trusts_versions` says that a weight which PyTorch has counted no write to has not changed; otherwise the contents
    are compared. `compile_plainly` gives the program without weights, for those that change in every call.
    """

    def __init__(
        self, run: Rebindable, held: dict[int, Held], compile_plainly: Callable[[], Any], trusts_versions: bool
    ) -> None:
        addresses = {weight.data_ptr(): name for name, weight in run.weights.items()}
        self._names = {i: addresses[weight.contents.data_ptr()] for i, weight in held.items()}
        self._bound = _Bound(run, held)
        self._is_same = Held.is_untouched if trusts_versions else Held.equals
        self._compile_plainly = compile_plainly
        self._plain: Callable[..., Any] | None = None
        self._calls = self._changes = 0

    def __call__(self, *arguments: Any) -> Any:
        if self._plain is not None:
            return self._plain(*arguments)
        bound = self._bound  # another thread may put a new one there
        self._calls += 1
        changed = [i for i, weight in bound.held.items() if not self._is_same(weight, arguments[i])]
        if changed:
            self._changes += 1
            if self._changes >= _RESTLESS and 2 * self._changes >= self._calls:
                self._plain = self._compile_plainly()
                return self._plain(*arguments)
            bound = self._bound = self._rebound(bound, {i: Held.of(arguments[i]) for i in changed})
        return bound.run(*(a for i, a in enumerate(arguments) if i not in bound.held))

    def _rebound(self, bound: _Bound, new: dict[int, Held]) -> _Bound:
        weights = {**bound.run.weights, **{self._names[i]: weight.contents for i, weight in new.items()}}
        return _Bound(bound.run.with_weights(weights), {**bound.held, **new})


def _contents(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


# No function of PyTorch or numpy compares memory at the speed of memory.
_MEMCMP = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).memcmp
_MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
