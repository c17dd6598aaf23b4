"""Whole kernels: the host function as an MLIR function, its tile loops as `scf.for` on tiles of its tensors.

A tile has the size of its block, also at the edge, where a part of it does not exist: what is read there is zero, what
is written there is dropped, and what reduces over it sees a neutral element instead. Tensors of the host that a loop
writes are carried through it as values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate
from torch.utils._sympy.interp import sympy_interp
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FunctionType, IndexType, ModuleOp, TensorType, i64
from xdsl.ir import Block, Region, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported
from flambeau.frontends.fx.types import location_of_node
from flambeau.frontends.helion.host import LAUNCH, Host, Launch
from flambeau.frontends.helion.inlining import inline
from flambeau.frontends.helion.masks import needed_masks
from flambeau.frontends.helion.nodes import NodeImporter, fake_like, inputs_of
from flambeau.frontends.helion.program import Program, expression_of, target_name
from flambeau.frontends.helion.rules import rules
from flambeau.frontends.helion.sizes import SizeArithmetic
from flambeau.frontends.helion.tiles import BlockRef, Tile, TileBuilder, dtype_of
from flambeau.ir import dtypes
from flambeau.ir.comparisons import OPERATORS
from flambeau.ir.module import Argument, Mutation, Output, Signature, TensorSpec

if TYPE_CHECKING:
    from flambeau.lowering.builder import Size, Tensor
    from flambeau.lowering.linalg.builder import LinalgBuilder


@dataclass(frozen=True)
class Target:
    """What kernels are built with. It comes from outside, since lowerings stand behind frontends."""

    builder: Callable[[Block], LinalgBuilder]
    tensor: type[Tensor]
    importer: NodeImporter


def import_kernel(program: Program, host: Host, target: Target, name: str) -> tuple[ModuleOp, Signature]:
    """Import a kernel as a module, with the signature of its function."""
    return KernelImporter(program, host, target).function(name)


class KernelImporter:
    """Walks the graphs of a kernel, the host's and the tile loops', and builds its function."""

    def __init__(self, program: Program, host: Host, target: Target) -> None:
        self.program = program
        self.host = host
        self.target = target
        self.rules = rules()
        self.b = target.builder(Block())
        self.tiles = TileBuilder(self.b, target.tensor)
        self.values: dict[Node, Any] = {}
        self.active: dict[int, Tile] = {}
        """The tiles that the loops around are at, by block."""
        self.tensors: dict[str, Tensor] = {}
        """The tensors of the host in the tile loop at hand, as they are now."""
        self.numbers: dict[str, Any] = {}
        self.zero_outside: set[SSAValue] = set()
        """Tiles that are zero where they do not exist."""
        self.problems: list[Diagnostic] = []

    # --- The host ---

    def function(self, name: str) -> tuple[ModuleOp, Signature]:
        """Import the host function."""
        b = self.b
        arguments: list[Argument] = []
        mutations: list[Mutation] = []
        inputs: list[Node] = []
        results: list[Tensor] = []
        outputs: Sequence[Node] = ()
        for node in self.host.graph_module.graph.nodes:
            if node.op == "placeholder":
                argument = self._argument(node, self.host.names[len(inputs)])
                arguments.append(argument)
                inputs.append(node)
            elif node.op == "output":
                outputs = node.args[0]
            elif node.target is torch.ops.aten.copy_.default and node.args[0] in inputs:
                mutations.append(Mutation(len(results), inputs.index(node.args[0])))
                results.append(self.values[node.args[1]])
                self.values[node] = self.values[node.args[1]]
            else:
                self._import(node)
        if self.problems:
            ops = ", ".join(sorted({p.op for p in self.problems}))
            raise CompileError(
                self.problems, summary=f"cannot import the kernel: {len(self.problems)} problems ({ops})"
            )
        leaves: list[Output] = []
        tensors = iter(outputs)
        for i in range(len(outputs) + len(self.host.constants)):
            if i in self.host.constants:
                leaves.append(Output(None, self.host.constants[i]))
            else:
                leaves.append(Output(len(results)))
                results.append(self.values[next(tensors)])
        b.emit(func.ReturnOp, [r.value for r in results])
        type_ = FunctionType.from_lists([a.type for a in b.block.args], [r.value.type for r in results])
        signature = Signature(
            arguments=tuple(arguments),
            results=tuple(TensorSpec(r.shape, r.dtype) for r in results),
            outputs=tuple(leaves),
            mutations=tuple(mutations),
            in_spec=self.host.in_spec,
            out_spec=self.host.out_spec,
            inputs=self.host.inputs,
            fixed=self.host.fixed,
        )
        return ModuleOp([func.FuncOp(name, type_, Region(b.block))]), signature

    def _argument(self, node: Node, name: str) -> Argument:
        meta = node.meta["val"]
        dtype, shape = dtype_of(meta.dtype), tuple(int(d) for d in meta.shape)
        type_: TensorType[Any] = TensorType(dtype.builtin, shape)
        value = self.b.block.insert_arg(type_, len(self.b.block.args))
        value.name_hint = name
        self.values[node] = self.target.tensor(value, dtype)
        return Argument(name, TensorSpec(shape, dtype))

    def _launch(self, node: Node) -> list[Tensor]:
        number, reads, writes = node.args
        launch: Launch = self.host.launches[number]  # type: ignore[index]
        given = [*self.resolve(reads), *self.resolve(writes)]
        self.tensors = dict(zip((*launch.reads, *launch.writes), given, strict=True))
        self.numbers = dict(launch.numbers)
        graph = self.program.roots[launch.root]

        def body(_: list[Tensor]) -> list[Tensor]:
            self.graph(graph, [])
            return []

        bounds = list(zip(launch.begins, launch.ends, launch.steps, strict=True))
        self.over_tiles(self.program.grids[launch.root], bounds, [], graph, body)
        return [self.tensors[n] for n in launch.writes]

    # --- Graphs ---

    def graph(self, graph: Graph, arguments: Sequence[Any]) -> Any:
        """Import the nodes of a graph where the builder stands; gives what the graph gives."""
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self.values.update(zip(placeholders, arguments, strict=True))
        for node in graph.nodes:
            if node.op == "output":
                return self.resolve(node.args[0])
            if node.op == "call_function":
                self._import(node)
        return None

    def _import(self, node: Node) -> None:
        outer, self.b.location = self.b.location, location_of_node(node)
        try:
            self.values[node] = self._value(node)
        except Unsupported as problem:
            name = str(node.target) if is_aten(node) else target_name(node)
            place = self.b.location
            self.problems.append(Diagnostic("import", problem.reason, op=name, location=place, hint=problem.hint))
            self.values[node] = self._placeholder(node.meta.get("val"))
        except CompileError as error:
            self.problems += error.diagnostics
            self.values[node] = self._placeholder(node.meta.get("val"))
        finally:
            self.b.location = outer

    def _placeholder(self, meta: Any) -> Any:
        """Make a value in place of one that could not be imported, so that the walk finds further problems."""
        if isinstance(meta, torch.Tensor):
            return self.b.empty([self.program.size(d) or 1 for d in meta.shape], dtype_of(meta.dtype))
        return [self._placeholder(m) for m in meta] if isinstance(meta, (list, tuple)) else 1

    def _value(self, node: Node) -> Any:
        if node.target is LAUNCH:
            return self._launch(node)
        if node.target is operator.getitem:
            source, index = node.args
            return self.values[source][index]  # type: ignore[index]
        if is_aten(node):
            return self._aten(node)
        name = target_name(node)
        rule = self.rules.get(name)
        if rule is None and not is_of_helion(node):
            return self._scalar(node.target, [self.number(a) for a in self.resolve(node.args)])
        if rule is None:
            raise Unsupported(f"{name} of Helion is not imported", "Write it with PyTorch's ops.")
        return rule(self, node)

    def resolve(self, value: Any) -> Any:
        """Replace the nodes in arguments by what they were imported as."""
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self.resolve(v) for v in value]
        return value

    # --- Numbers ---

    def number(self, value: Any) -> Any:
        """Resolve a number to a Python one, or to an index or i1 value of the running kernel. Tensors stay."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = self.symbol(value)
        return self.program.blocks[value.block] if isinstance(value, BlockRef) else value

    def index(self, value: Any) -> Any:
        """Convert a number that is a position or a size to an index; it may be the element of a 0-d tensor."""
        value = self.number(value)
        if isinstance(value, self.target.tensor) and not value.rank:
            return self.b.value(arith.IndexCastOp, (self.b.item(self.b.to(value, dtypes.int64)),), IndexType())
        return value

    def condition(self, value: Any) -> Any:
        """Convert a condition to a Python bool or an i1 value; Unsupported for a tile of several elements."""
        value = self.number(value)
        if isinstance(value, self.target.tensor):
            if any(d != 1 for d in value.shape):
                raise Unsupported("a condition on a tile of several elements", "Reduce it, with any() or all().")
            return self.b.item(self.b.to(value, dtypes.bool_))
        if isinstance(value, SSAValue) and isinstance(value.type, IndexType):
            return self.b.compare("ne", value, 0)
        return value if isinstance(value, SSAValue) else bool(value)

    def symbol(self, value: Any) -> Any:
        """Resolve a symbol of Helion: a tile, a number of the host, a position, or an expression of such."""
        if (block := self.program.block_of(value)) is not None:
            return BlockRef(block)
        name = self.program.name_of(value)
        if name in self.numbers:
            return self.numbers[name]
        return sympy_interp(SizeArithmetic(self.b), {}, expression_of(value), missing_handler=self._leaf)

    def _leaf(self, symbol: Any) -> Any:
        if (name := self.program.name_of(symbol)) in self.numbers:
            return self.numbers[name]
        if (known := self.program.known(symbol)) is not None:
            return known
        place = self.program.place_of(symbol)
        if place is None or place[0] not in self.active:
            raise Unsupported(f"the number {symbol} is not known here")
        return self.tiles.place(self.active[place[0]], place[1])

    def _scalar(self, op: Any, operands: Sequence[Any]) -> Any:
        """Apply a Python operator to numbers: at compile time if all are constants, else as ops on index values."""
        if not any(isinstance(o, SSAValue) for o in operands):
            return op(*operands)
        if op not in _SCALAR_OPS:
            raise Unsupported(f"{op.__name__} of a number that only the running kernel knows")
        return getattr(SizeArithmetic(self.b), _SCALAR_OPS[op])(*operands)

    # --- ATen ops ---

    def aten(self, op: Any, *args: Any) -> Tensor:
        """Emit an ATen op on tensors and numbers, by the importer of single nodes."""
        graph = Graph()
        given: list[Any] = []

        def node(value: Any) -> Any:
            if not isinstance(value, (self.target.tensor, SSAValue)):
                return value
            given.append(value)
            return graph.placeholder(f"input_{len(given)}")

        found: Tensor = self._inlined(graph.call_function(op, map_aggregate(args, node)), given)
        return found

    def _aten(self, node: Node) -> Any:
        if str(node.target).startswith("aten.sym_size"):
            x, dim = node.args
            size = x.meta["val"].shape[dim]  # type: ignore[union-attr]
            return self.symbol(size) if isinstance(size, torch.SymInt) else size
        masks = needed_masks(node, self.counts)
        given: list[Any] = []
        for i, taken in enumerate(inputs_of(node)):
            value = self.number(self.values[taken])
            if i in masks:
                counts, fill = masks[i]
                value = self.masked(value, counts, fill)
            given.append(value)
        if node.target in _ACCUMULATING:
            given[1:] = [self.b.to(v, given[0].dtype) for v in given[1:]]
        return self._inlined(node, given)

    def masked(self, x: Tensor, counts: dict[int, Size], fill: Any) -> Tensor:
        """Replace by `fill` the elements of a tile that lie outside of the host tensor."""
        if fill != 0:
            return self.tiles.mask(x, counts, fill)
        if x.value not in self.zero_outside:
            x = self.tiles.mask(x, counts, 0)
        return x

    def _inlined(self, node: Node, given: Sequence[Any]) -> Any:
        """Import a node for these inputs and inline it here."""
        inputs: list[Any] = []
        operands: list[SSAValue] = []
        for value in given:
            if isinstance(value, self.target.tensor):
                inputs.append(fake_like([d or 0 for d in value.shape], value.dtype.torch))
                operands.append(value.value)
            elif isinstance(value, SSAValue):
                inputs.append(ShapeEnv().create_unbacked_symint())
                operands.append(self.b.value(arith.IndexCastOp, (value,), i64))
            else:
                inputs.append(value)
        node = self._with_known_sizes(node)
        function, signature = self.target.importer.import_function(node, inputs)
        specs = [spec for spec in signature.results if isinstance(spec, TensorSpec)]
        results = inline(function, operands, self.b)
        tensors = [self.target.tensor(r, spec.dtype) for r, spec in zip(results, specs, strict=True)]
        returns = node.target._schema.returns  # type: ignore[union-attr]
        return tensors[0] if len(returns) == 1 and str(returns[0].type) == "Tensor" else tensors

    def _with_known_sizes(self, node: Node) -> Node:
        """Replace the symbols in a node's arguments by numbers, in a copy; return the node itself if there are none."""
        symbolic = (torch.SymInt, torch.SymFloat)
        found: list[Any] = []

        def known(value: Any) -> Any:
            if not isinstance(value, symbolic):
                return value
            found.append(value)
            return self.number(value)

        args, kwargs = map_aggregate((node.args, node.kwargs), known)
        if not found:
            return node
        copy = Graph().create_node(node.op, node.target, args, kwargs, node.name)
        copy.meta = node.meta
        return copy

    # --- Tiles ---

    def counts(self, shape: Sequence[Any]) -> dict[int, Size]:
        """Map each dim of a tile that may reach over the tensor's edge to the number of elements inside."""
        counts: dict[int, Size] = {}
        for dim, size in enumerate(shape):
            if not isinstance(size, torch.SymInt):
                continue
            block = self.program.block_of(size)
            tile = self.active.get(block) if block is not None else None
            if tile is not None and not tile.is_whole:
                counts[dim] = tile.count
            elif block is None and any(
                not self.active[b].is_whole for b in self.program.blocks_in(size) & {*self.active}
            ):
                raise Unsupported(f"a dim of {size} elements is made of tiles that lie over the edge")
        return counts

    def over_tiles(
        self,
        blocks: Sequence[int],
        bounds: Sequence[tuple[Size, Size, int | None]],
        carried: list[Tensor],
        graph: Graph,
        body: Callable[[list[Tensor]], list[Tensor]],
    ) -> list[Tensor]:
        """Loop over the tiles of blocks, one in the other; the host's tensors that the graph writes are carried too."""
        if not blocks:
            return body(carried)
        block, (begin, end, step) = blocks[0], bounds[0]
        size = self.program.blocks[block]
        written = self.written(graph)
        is_whole = size == 1 or (isinstance(begin, int) and isinstance(end, int) and (end - begin) % size == 0)

        def turn(offset: SSAValue, now: list[Tensor]) -> list[Tensor]:
            count = size if is_whole else self.b.minimum(self.b.sub(end, offset), size)
            with self._at(block, Tile(size, begin, offset, end, is_whole, count)):
                self.tensors.update(zip(written, now[len(carried) :], strict=True))
                results = self.over_tiles(blocks[1:], bounds[1:], now[: len(carried)], graph, body)
                return [*results, *(self.tensors[n] for n in written)]

        first = [*carried, *(self.tensors[n] for n in written)]
        last = self.tiles.loop(begin, end, size if step is None else step, first, turn)
        self.tensors.update(zip(written, last[len(carried) :], strict=True))
        return last[: len(carried)]

    @contextmanager
    def _at(self, block: int, tile: Tile) -> Iterator[None]:
        before = self.active.get(block)
        self.active[block] = tile
        try:
            yield
        finally:
            del self.active[block]
            if before is not None:
                self.active[block] = before

    def written(self, *graphs: Graph) -> list[str]:
        """List the host's tensors that these graphs, or graphs inside them, write."""
        return [n for n in dict.fromkeys(n for g in graphs for n in self.program.written(g)) if n in self.tensors]


_ACCUMULATING = (torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default)
"""Ops that Helion lets add products of a narrower dtype to a wider tile."""

_SCALAR_OPS: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv",
    operator.mod: "python_mod", operator.neg: "neg", min: "minimum", max: "maximum", torch.sym_min: "minimum",
    torch.sym_max: "maximum", **{function: name for name, function in OPERATORS.items()},
}  # fmt: skip
"""Arithmetic on numbers."""


def is_of_helion(node: Node) -> bool:
    """Tell whether a node calls a function of Helion's language; others are on numbers, of Python or PyTorch."""
    return str(getattr(node.target, "__module__", "")).startswith("helion.")


def is_aten(node: Node) -> bool:
    """Tell whether a node calls an op of PyTorch."""
    return hasattr(node.target, "_schema")
