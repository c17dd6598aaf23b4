"""Functions as XLA takes them: `@main` of a module of its own, in StableHLO alone, over weights that are arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import func, tensor
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, f32
from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Diagnostic
from flambeau.dialects.sdy import (
    ATTRIBUTE,
    DimSharding,
    ManualComputationOp,
    MeshOp,
    Sharding,
    ShardingPerValueAttr,
)
from flambeau.dialects.stablehlo import precision_config
from flambeau.engines.errors import EngineError
from flambeau.engines.xla.broadcasts import broadcasts_to_gathers
from flambeau.engines.xla.checks import checks_to_result, is_check
from flambeau.engines.xla.gpu import GpuProgram, for_gpu
from flambeau.engines.xla.numbers import keep_arithmetic
from flambeau.ir.builder import erase
from flambeau.ir.printing import generic_text
from flambeau.lowering.builder import tensor_type
from flambeau.lowering.stablehlo.scalars import scalars_to_tensors
from flambeau.lowering.stablehlo.sharding import (
    declare_mesh,
    resource_of,
    sharding_attributes,
    shardings_of,
    without_shardings,
)
from flambeau.lowering.whole.scalars import is_open, is_static
from flambeau.passes.inline import inline_calls
from flambeau.passes.symbol_dce import eliminate_dead_symbols, functions_of, is_public, references


@dataclass(frozen=True)
class Program:
    """A function that XLA can compile."""

    text: str
    """A module whose only public function is `@main`."""
    weights: tuple[str, ...]
    """The weights that it takes behind the arguments of the function."""
    axes: tuple[tuple[str, int], ...] = ()
    """The axes of the mesh of devices that it is laid out over, and their sizes; none for one device."""
    layouts: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """For each argument and weight, the axes that each of its dims is split along; for a program with a mesh."""
    results: tuple[tuple[tuple[str, ...], ...] | None, ...] = ()
    """For each result that stays split, the axes that each of its dims is split along; None for one that is whole."""
    checks: tuple[str, ...] = ()
    """What the function checks. If there is anything, one more result says what failed: 0, or 1 for the first."""
    gpu: GpuProgram | None = None
    """The function as a GPU runs it, if it is for one GPU."""


def has_open_arguments(function: func.FuncOp) -> bool:
    """Tell whether a function takes tensors of sizes that only a call knows."""
    return any(is_open(t) for t in function.function_type.inputs)


@dataclass(frozen=True)
class Wanted:
    """What is wanted of programs."""

    checks: bool = True
    """Whether they check what they are to check."""
    exact_products: bool = False
    """Whether products of f32 are computed in f32; otherwise a GPU may round their operands to TF32."""
    mesh: Mapping[str, int] | None = None
    """The sizes of a mesh that is to take the place of a program's own."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """What the functions that programs call are registered as with XLA, where that is another name."""
    external: tuple[str, ...] = ()
    """The ops that are left to the engine, as the target was told."""
    gather: bool = True
    """Whether results that are split are made whole."""
    is_cpu: bool = True
    """Whether they run on CPUs, for which XLA lacks some ops."""
    late: bool = False
    """Whether what checks found is read after the call has returned: then they need no program of their own."""


def program_of(module: ModuleOp, name: str, wanted: Wanted, written: Collection[int] = ()) -> Program:
    """Make the program of one function of a module in StableHLO, which stays as it is.

    `written` are the results that become state, and lie as it does. Raises OpenSize if some size in it is not known at
    compile time.
    """
    axes = axes_of(module, wanted.mesh)
    alone = _alone(module if axes else without_shardings(module), name)
    if axes:
        declare_mesh(alone, axes)
    function = functions_of(alone)[name]
    _call_by_other_names(alone, wanted.functions)
    _numbers_to_tensors(function)
    if not is_static(function):
        raise _open_size(function)
    scalars_to_tensors(alone)
    _inline_helpers(alone, lambda op: is_check(op) or resource_of(op) is not None)
    messages = checks_to_result(function, wanted.checks)
    if wanted.exact_products:
        _multiply_exactly(alone)
    weights, shardings = _weights_to_arguments(function)
    function.properties["sym_name"] = StringAttr("main")
    keep_arithmetic(alone, wanted.is_cpu)
    if wanted.is_cpu:
        broadcasts_to_gathers(alone)
    given = enumerate(shardings_of(function, "res_attrs"))
    kept = [s if i in written or not wanted.gather else None for i, s in given]
    layouts = _lay_out(function, shardings, kept) if axes else ()
    results = tuple(s.axes if s is not None and any(s.axes) else None for s in kept) if axes else ()
    text = generic_text(eliminate_dead_symbols(alone))
    gpu = None if wanted.is_cpu or axes else for_gpu(alone, bool(messages) and not wanted.late)
    return Program(text, weights, tuple(axes.items()), layouts, results if any(results) else (), messages, gpu)


def _call_by_other_names(module: ModuleOp, names: Mapping[str, str]) -> None:
    """Let custom calls call what has another name with XLA, in place."""
    for op in module.walk():
        if op.name == "stablehlo.custom_call":
            target: Any = op.properties["call_target_name"]
            op.properties["call_target_name"] = StringAttr(names.get(target.data, target.data))


def _multiply_exactly(module: ModuleOp) -> None:
    """Ask for all digits of f32 in products and convolutions."""
    for op in module.walk():
        if op.name in ("stablehlo.dot_general", "stablehlo.convolution"):
            if any(getattr(v.type, "element_type", None) == f32 for v in op.operands):
                op.properties["precision_config"] = precision_config("HIGHEST")


def axes_of(module: ModuleOp, wanted: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the axes of a module's mesh, with other sizes if they are wanted; none if there is one device only."""
    own = next((dict(op.mesh.data) for op in module.ops if isinstance(op, MeshOp)), {})
    if wanted is not None and wanted.keys() != own.keys():
        has = f"has the axes {', '.join(own)}" if own else "was compiled without a mesh"
        raise EngineError(f"the program {has}, and is to be laid out over {', '.join(wanted) or 'none'}")
    axes = dict(own if wanted is None else {name: wanted[name] for name in own})
    if axes != own and any(isinstance(op, ManualComputationOp) for op in module.walk()):
        raise EngineError(
            "the model calls collectives itself, among as many devices as it was compiled for: compile it for another "
            "mesh, instead of giving load() one"
        )
    return axes if math.prod(axes.values()) > 1 else {}


def _lay_out(
    function: func.FuncOp,
    weights: Sequence[Sharding | None],
    results: Sequence[Sharding | None],
) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Complete the shardings of arguments and results; returns how the arguments are split."""
    inputs, outputs = function.function_type.inputs.data, function.function_type.outputs.data
    given = [*shardings_of(function, "arg_attrs"), *weights]
    whole = [Sharding((DimSharding(),) * t.get_num_dims()) for t in (*inputs, *outputs) if isinstance(t, TensorType)]
    arguments = [s or w for s, w in zip(given, whole, strict=False)]
    function.properties["arg_attrs"] = sharding_attributes(arguments)
    # Behind the results may be what the checks have found.
    gives = [(results[i] if i < len(results) else None) or w for i, w in enumerate(whole[len(inputs) :])]
    function.properties["res_attrs"] = sharding_attributes(gives)
    return tuple(s.axes for s in arguments)


def _alone(module: ModuleOp, name: str) -> ModuleOp:
    """Copy a function, and the private ones that it calls, into a module of its own."""
    functions = functions_of(module)
    wanted, pending = {name}, [name]
    while pending:
        called = {r for r in references(functions[pending.pop()]) if r in functions and r not in wanted}
        wanted |= called
        pending += called
    alone = ModuleOp([f.clone() for n, f in functions.items() if n in wanted])
    for n, function in functions_of(alone).items():
        if n != name:
            function.properties["sym_visibility"] = StringAttr("private")
    return alone


def _numbers_to_tensors(function: func.FuncOp) -> None:
    """Let a function take and give tensors without dims where it takes and gives Python's numbers."""
    block = function.body.block
    for argument in list(block.args):
        if isinstance(argument.type, TensorType):
            continue
        wrapped = block.insert_arg(tensor_type((), argument.type), argument.index)
        taken = tensor.ExtractOp.create(operands=[wrapped], result_types=[argument.type])
        assert block.first_op is not None
        block.insert_op_before(taken, block.first_op)
        argument.replace_all_uses_with(taken.results[0])
        block.erase_arg(argument)
    end = function.get_return_op()
    assert end is not None
    for i, value in enumerate(end.operands):
        if not isinstance(value.type, TensorType):
            type_ = tensor_type((), value.type)
            given = tensor.FromElementsOp.create(operands=[value], result_types=[type_], location=end.location)
            block.insert_op_before(given, end)
            end.operands[i] = given.results[0]
    function.update_function_type()  # type: ignore[no-untyped-call]


class OpenSize(EngineError):
    """A size in a program depends on what tensors contain."""


def _open_size(function: func.FuncOp) -> OpenSize:
    """Make the error for a function in which a size depends on what tensors contain."""
    for op in function.walk():
        if any(is_open(v.type) for v in op.results):
            where = Diagnostic("", "", location=op.location).place()
            return OpenSize(
                "XLA takes programs whose sizes are known when they are compiled, and the size of a tensor here "
                f"depends on what others contain ({op.name}); IREE runs such programs" + (f"\n{where}" if where else "")
            )
    return OpenSize(f"XLA cannot take the types {function.function_type}")


def _inline_helpers(module: ModuleOp, find: Callable[[Operation], bool]) -> None:
    """Put private functions in the place of their calls and composites if `find` is true of an op in one of them."""
    functions = functions_of(module)
    helpers = {n for n, f in functions.items() if not is_public(f) and any(find(op) for op in f.body.walk())}
    if not helpers:
        return
    for op in list(module.walk()):
        if op.name == "stablehlo.composite" and not is_check(op) and references(op) & helpers:
            callee = op.properties["decomposition"]
            call = func.CallOp.create(
                operands=list(op.operands),
                result_types=[r.type for r in op.results],
                properties={"callee": callee},
                location=op.location,
            )
            assert op.parent is not None
            op.parent.insert_op_before(call, op)
            for old, new in zip(op.results, call.results, strict=True):
                old.replace_all_uses_with(new)
            erase(op)
    inline_calls(module)


def _weights_to_arguments(function: func.FuncOp) -> tuple[tuple[str, ...], list[Sharding | None]]:
    """Let a function take its weights behind its arguments; returns their names and how they are laid out."""
    block = function.body.block
    taken: dict[str, SSAValue] = {}
    shardings: list[Sharding | None] = []
    for op in list(function.body.walk()):
        if (name := resource_of(op)) is not None:
            if name not in taken:
                taken[name] = block.insert_arg(op.results[0].type, len(block.args))
                sharding = op.attributes.get(ATTRIBUTE)
                shardings.append(sharding.data[0] if isinstance(sharding, ShardingPerValueAttr) else None)
            op.results[0].replace_all_uses_with(taken[name])
            erase(op)
    function.update_function_type()  # type: ignore[no-untyped-call]
    return tuple(taken), shardings
