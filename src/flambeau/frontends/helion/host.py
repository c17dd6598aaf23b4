"""The host side of a kernel: what it does around its tile loops, traced to a graph in which each loop is one node."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import helion.language as hl
import torch
from helion._compiler.ast_extension import LoopType
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.helion.program import Program, target_name
from flambeau.ir.module import Fixed

_LIBRARY = torch.library.Library("flambeau", "FRAGMENT")
_LIBRARY.define("helion_launch(int launch, Tensor[] reads, Tensor[] writes) -> Tensor[]")


def _fake_launch(launch: int, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(w, memory_format=torch.contiguous_format) for w in writes]


torch.library.register_fake("flambeau::helion_launch", _fake_launch, lib=_LIBRARY)

LAUNCH = torch.ops.flambeau.helion_launch.default
"""`launch(number, reads, writes)`: a tile loop with the tensors that it only reads and those that it writes.

What comes out is the new contents of the latter.
"""


@dataclass(frozen=True)
class Launch:
    """A tile loop of the host: which tensors it takes, in order, what its bounds are, what its numbers are."""

    root: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    numbers: Mapping[str, Any]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    steps: tuple[int | None, ...]


@dataclass(frozen=True)
class Host:
    """The traced host function; its inputs are the tensors among the leaves of the arguments."""

    graph_module: GraphModule
    launches: tuple[Launch, ...]
    in_spec: Any
    inputs: tuple[int | None, ...]
    fixed: tuple[Fixed, ...]
    """The leaves that are no tensors: the kernel is specialised to them."""
    names: tuple[str, ...]
    out_spec: Any
    constants: Mapping[int, Any]
    """Leaves of the result that are no tensors."""


def trace_host(program: Program, args: Sequence[Any]) -> Host:
    """Run the host function on fake tensors and write down what it does."""
    bound = program.kernel.signature.bind(*args)
    names = [name for name, value in bound.arguments.items() for _ in pytree.tree_leaves(value)]
    leaves, in_spec = pytree.tree_flatten((tuple(args), {}))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    function, scope = _host_function(program)
    tracer = _Tracer(program, scope)
    scope[_LAUNCH_NAME] = tracer.launch

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        values = list(leaves)
        for i, tensor in zip(positions, tensors, strict=True):
            values[i] = tensor
        given, _ = pytree.tree_unflatten(values, in_spec)
        tracer.launches.clear()
        results, tracer.out_spec = pytree.tree_flatten(function(*given))
        tracer.constants = {i: r for i, r in enumerate(results) if not isinstance(r, torch.Tensor)}
        return [r for r in results if isinstance(r, torch.Tensor)]

    with torch.no_grad():
        tensors = [leaves[i].detach() for i in positions]
        graph_module = make_fx(functionalize(call), tracing_mode="fake")(*tensors)
    graph_module.graph.eliminate_dead_code()
    inputs = tuple(positions.index(i) if i in positions else None for i in range(len(leaves)))
    return Host(
        graph_module,
        tuple(tracer.launches),
        in_spec,
        inputs,
        tuple(Fixed(i, names[i], leaf) for i, leaf in enumerate(leaves) if i not in positions),
        tuple(names[i] for i in positions),
        tracer.out_spec,
        tracer.constants,
    )


class _Tracer:
    def __init__(self, program: Program, scope: dict[str, Any]) -> None:
        self.program = program
        self.scope = scope
        self.launches: list[Launch] = []
        self.out_spec: Any = None
        self.constants: dict[int, Any] = {}

    def launch(self, root: int, variables: dict[str, Any], *bounds: Any, **options: Any) -> None:
        """Record a tile loop as a launch; the host function calls this where the loop stood."""
        begins, ends, steps = _bounds(bounds, options, len(self.program.grids[root]))
        tensors, numbers, written = self._taken(root)
        values = {name: eval(name, self.scope, variables) for name in tensors}
        reads = [name for name in tensors if name not in written]
        writes = [name for name in tensors if name in written]
        known = {name: _number(eval(name, self.scope, variables)) for name in numbers}
        self.launches.append(Launch(root, tuple(reads), tuple(writes), known, begins, ends, steps))
        results = LAUNCH(len(self.launches) - 1, [values[n] for n in reads], [values[n] for n in writes])
        for name, result in zip(writes, results, strict=True):
            values[name].copy_(result)

    def _taken(self, root: int) -> tuple[list[str], list[str], set[str]]:
        """List the host's tensors and numbers that a tile loop takes, and the set of those tensors that it writes."""
        program = self.program
        tensors: dict[str, Any] = {}
        numbers: dict[str, None] = {}
        written = set(program.written(program.roots[root]))
        for node in program.nodes(program.roots[root]):
            if node.op != "call_function":
                continue
            name = target_name(node)
            value = node.meta.get("val")
            if name == "_host_tensor":
                tensors[program.name_of(value) or str(node.args[0])] = value
            elif name == "_get_symnode" and (host := program.name_of(value)) is not None:
                numbers[host] = None
        for name in written:
            storage = tensors[name].untyped_storage()
            others = [n for n, t in tensors.items() if n != name and t.untyped_storage() is storage]
            if others:
                reason = f"a tile loop writes {name}, which shares memory with {', '.join(others)}"
                raise CompileError([Diagnostic("import", reason, hint="Use one name for it, or a copy.")])
        return list(tensors), list(numbers), written


def _number(value: Any) -> Any:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](value) if type(value) in kinds else value


def _bounds(
    bounds: Sequence[Any], options: Mapping[str, Any], count: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int | None, ...]]:
    """Unpack the arguments of `hl.tile` or `hl.grid` into begins, ends and steps."""

    def many(value: Any) -> list[Any]:
        return list(value) if isinstance(value, (list, tuple)) else [value] * count

    first, second = (*bounds, None)[:2]
    begins, ends = (0, first) if second is None else (first, second)
    return tuple(map(int, many(begins))), tuple(map(int, many(ends))), tuple(many(options.get("step")))


# --- The host function without its tile loops ---

_LAUNCH_NAME = "_flambeau_launch"


class _HostLanguage:
    """`helion.language` as the host function sees it once the config is known."""

    def __init__(self, program: Program) -> None:
        self.specialize = lambda value: value
        self.register_reduction_dim = lambda value: value
        self.register_block_size = lambda *bounds: None
        self.register_tunable = lambda name, fragment: program.config.config[name]
        self.barrier = lambda: None  # Tile loops come one after the other.

    def __getattr__(self, name: str) -> Any:
        return getattr(hl, name)


def _host_function(program: Program) -> tuple[Any, dict[str, Any]]:
    """Replace each tile loop in the host function by a call; return the function and its globals."""
    original = program.kernel.fn
    host = program.host
    shell = ast.FunctionDef(name=host.name, args=host.args, body=host.body, decorator_list=[], returns=None)
    if sys.version_info >= (3, 12):
        shell.type_params = []
    ours = ast.parse(ast.unparse(ast.fix_missing_locations(shell)))
    roots = [
        copy
        for old, copy in zip(ast.walk(ast.Module([shell], [])), ast.walk(ours), strict=True)
        if isinstance(copy, ast.For) and getattr(old, "_loop_type", None) is LoopType.GRID
    ]
    roots.sort(key=lambda loop: loop.lineno)
    numbers = {loop: i for i, loop in enumerate(roots)}

    class Replace(ast.NodeTransformer):
        def visit_For(self, node: ast.For) -> ast.AST:
            if node not in numbers:
                return self.generic_visit(node)
            if not isinstance(node.iter, ast.Call):
                raise CompileError([Diagnostic("import", f"a tile loop over {ast.unparse(node.iter)} is not imported")])
            scope = ast.Call(ast.Name("locals", ast.Load()), [], [])
            options = [k for k in node.iter.keywords if k.arg == "step"]
            arguments = [ast.Constant(numbers[node]), scope, *node.iter.args]
            return ast.Expr(ast.Call(ast.Name(_LAUNCH_NAME, ast.Load()), arguments, options))

    tree = ast.fix_missing_locations(Replace().visit(ours))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
    language = _HostLanguage(program)
    scope = {module.alias: module.value for module in host.global_imports.values()} | original.__globals__
    scope.update({n: c.cell_contents for n, c in zip(original.__code__.co_freevars, original.__closure__ or ())})
    for name, value in scope.items():
        if value is hl:
            scope[name] = language
        elif callable(value) and value is getattr(hl, name, None):
            scope[name] = getattr(language, name)
    exec(compile(tree, f"<host of {host.name}>", "exec"), scope)
    function = scope[host.name]
    scope[host.name] = program.kernel
    return function, scope
