"""What Helion knows about a kernel that is bound to arguments: its graphs, its blocks, its sizes.

Helion's own Device IR is prepared for its code generators: arguments that the generated code does not read are gone
from the nodes, and reductions are split. So the graphs are traced anew, with Helion's tracer, and left as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from helion._compiler.compile_environment import CompileEnvironment
from helion._compiler.device_ir import DeviceIR, WalkHostAST
from helion._compiler.host_function import HostFunction
from helion._compiler.inductor_lowering_extra import patch_inductor_lowerings
from helion._compiler.variable_origin import (
    BlockSizeOrigin,
    GridOrigin,
    TileBeginOrigin,
    TileCountOrigin,
    TileEndOrigin,
    TileExtentOrigin,
    TileIdOrigin,
)
from helion.runtime.config import Config
from torch.fx import Graph, Node

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported
from flambeau.frontends.helion.nodes import fake_like


class Program:
    """A bound kernel. Sizes are those of the arguments that it is bound to, block sizes those of the config."""

    def __init__(self, kernel: Any, args: Sequence[Any], config: Any = None) -> None:
        self.kernel = kernel
        self.bound = kernel.bind(tuple(args))
        self.environment: CompileEnvironment = self.bound.env
        self.host: HostFunction = self.bound.host_function
        self.config = self._config(config)
        with self.active():
            self.blocks = [self._block_size(info) for info in self.environment.block_sizes]
            device_ir = _trace(self.host)
        self.graphs: list[Any] = device_ir.graphs
        self.roots = [device_ir.graphs[i].graph for i in device_ir.root_ids]
        self.grids = device_ir.grid_block_ids

    @contextmanager
    def active(self) -> Iterator[None]:
        """Enter Helion's context: it looks up what is being compiled in variables of the thread."""
        with self.environment, self.host:
            yield

    def _config(self, config: Any) -> Config:
        if config is None and len(self.kernel.configs) == 1:
            (config,) = self.kernel.configs
        if config is None:
            with self.active():
                return self.environment.config_spec.default_config()
        return config if isinstance(config, Config) else Config(**config)

    def _block_size(self, info: Any) -> int:
        """Return the size of a block: from the config, or the whole dim if it is not tiled."""
        if info.reduction:
            return int(info.size_hint())
        try:
            size = info.from_config_assert(self.config)
        except IndexError:
            reason = (
                f"the config has {len(self.config.block_sizes)} block sizes, and block {info.block_id} is not there"
            )
            raise CompileError([Diagnostic("import", reason, hint="Give a block size for each tile.")]) from None
        return size if isinstance(size, int) else self.environment.size_hint(size)

    # --- Symbols ---

    def block_of(self, size: Any) -> int | None:
        """Return the block whose size this is; None if it is not the size of a tile."""
        if not isinstance(size, torch.SymInt):
            return None
        origin = self._origin(expression_of(size))
        if not isinstance(origin, BlockSizeOrigin) or self.environment.block_sizes[origin.block_id].reduction:
            return None
        return origin.block_id

    def place_of(self, symbol: Any) -> tuple[int, str] | None:
        """Return the block a symbol is about and `begin`, `end`, `extent`, `count` or `id`; None for other symbols."""
        origin = self._origin(symbol)
        return (origin.block_id, _PLACES[type(origin)]) if type(origin) in _PLACES else None

    def name_of(self, value: Any) -> str | None:
        """Return the Python expression of a tensor or number on the host; None if it has none."""
        if isinstance(value, torch.Tensor):
            found = self.host.tensor_to_origin.get(value)
        else:
            found = self._origin(expression_of(value))
        return found.host_str() if found is not None and found.is_host() else None

    def _origin(self, expression: Any) -> Any:
        found = self.host.expr_to_origin.get(expression)
        return found.origin if found is not None else None

    def size(self, size: Any) -> int | None:
        """Return a size as a number; None where it is known at run time only."""
        if isinstance(size, int):
            return size
        expression = expression_of(size)
        known = {symbol: self.known(symbol) for symbol in expression.free_symbols}
        return None if None in known.values() else int(expression.xreplace(known))

    def example(self, value: Any) -> Any:
        """Make a fake tensor with the sizes that a tile has here; numbers are returned as numbers."""
        if isinstance(value, torch.Tensor):
            sizes = [self.size(d) for d in value.shape]
            if None in sizes:
                raise Unsupported(f"a tensor of shape {list(value.shape)} has sizes that only the running kernel knows")
            return fake_like([s or 0 for s in sizes], value.dtype)
        if isinstance(value, (list, tuple)):
            return [self.example(v) for v in value]
        return self.size(value) if isinstance(value, torch.SymInt) else value

    def known(self, symbol: Any) -> int | None:
        """Return the value of a symbol that is constant in the whole kernel; None for others."""
        origin = self._origin(symbol)
        if isinstance(origin, BlockSizeOrigin):
            return self.blocks[origin.block_id]
        for info in self.environment.block_sizes:
            if info.reduction and expression_of(info.var) == symbol:
                return self.blocks[info.block_id]
        shape_env = self.environment.shape_env
        is_of_device = origin is not None and not origin.is_host()
        found = (
            None if is_of_device or shape_env.is_unbacked_symint(symbol) else shape_env.backed_var_to_val.get(symbol)
        )
        return int(found) if found is not None else None

    def blocks_in(self, size: Any) -> set[int]:
        """Find the blocks whose sizes occur in a symbolic size."""
        origins = [self._origin(symbol) for symbol in expression_of(size).free_symbols]
        return {o.block_id for o in origins if isinstance(o, BlockSizeOrigin)}

    def graph(self, number: int) -> Graph:
        found: Graph = self.graphs[number].graph
        return found

    def nodes(self, graph: Graph) -> Iterator[Node]:
        """Yield all nodes of a graph and of the loops and branches inside it."""
        for node in graph.nodes:
            yield node
            for inner in inner_graphs(node):
                yield from self.nodes(self.graph(inner))

    def written(self, graph: Graph) -> list[str]:
        """List the host's tensors that a graph writes, inner graphs included."""
        return [
            self.name_of(node.args[0].meta["val"]) or ""  # type: ignore[union-attr]
            for node in self.nodes(graph)
            if node.op == "call_function" and target_name(node) in WRITES and not hasattr(node.target, "_schema")
        ]


WRITES = frozenset({"store", *(f"atomic_{op}" for op in ("add", "xchg", "and", "or", "xor", "max", "min", "cas"))})
"""Ops that write a tensor of the host."""


_PLACES = {
    GridOrigin: "begin",
    TileBeginOrigin: "begin",
    TileEndOrigin: "end",
    TileExtentOrigin: "extent",
    TileCountOrigin: "count",
    TileIdOrigin: "id",
}


def expression_of(size: Any) -> Any:
    """Return the sympy expression of a symbolic number."""
    node = getattr(size, "node", None)
    # Without what PyTorch has found out since: that the size of a block is 1 does not make it any number 1.
    return node._expr if node is not None else sympy.sympify(size)


INNER_GRAPHS = {"_for_loop": (0,), "_for_loop_step": (0,), "_if": (1, 2), "_while_loop": (0, 1)}
"""Where nodes name the graphs that they run."""


def target_name(node: Node) -> str:
    """Return the name of what a node calls: `load`, `_for_loop`, `addmm.default`."""
    return getattr(node.target, "__name__", str(node.target))


def inner_graphs(node: Node) -> list[int]:
    """List the numbers of the graphs that a loop or a branch runs; empty for other nodes."""
    if node.op != "call_function" or hasattr(node.target, "_schema"):
        return []
    return [number for i in INNER_GRAPHS.get(target_name(node), ()) if isinstance(number := node.args[i], int)]


def _trace(host: HostFunction) -> DeviceIR:
    device_ir = DeviceIR()
    device_ir.host_function = host
    with device_ir, patch_inductor_lowerings(), torch._C._DisableAutocast():
        walk = WalkHostAST(device_ir)
        for statement in host.body:
            walk.visit(statement)
    return device_ir
