"""Models that call collectives themselves, over a mesh of devices: which devices, and what each of them has.

    y = funcol.all_reduce(x, "sum", (mesh, 1))       # torch.distributed._functional_collectives
    module = flambeau.compile(model, (x,), output_type="stablehlo", mesh=mesh)

As in `torch.distributed`, the model is what one device runs on its parts. The compiled program takes and gives what all
of them have; a plan says how that is split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.sdy import Sharding, ShardingConstraintOp
from flambeau.dialects.torch.ops import TorchOp
from flambeau.distributed.plans import Plan, Planner, axes_of, parameter_names, require_like
from flambeau.infer.builder import python_value
from flambeau.ir.module import Signature, TensorSpec, Weights
from flambeau.lowering.stablehlo.groups import Groups, axes_along
from flambeau.lowering.stablehlo.manual import differing, whole_shape, wrap
from flambeau.lowering.stablehlo.sharding import Shardings
from flambeau.passes.symbol_dce import functions_of

_STAGE = "lower to stablehlo"


def groups_of(module: ModuleOp, mesh: Any, plan: Plan) -> Groups:
    """Find the axes of a mesh that the process groups of a program in the torch dialect are along.

    They are those that the plan says, or those along which the group's ranks lie. Raises CompileError for a group whose
    ranks are no line of the mesh.
    """
    axes = axes_of(mesh)
    said = {str(getattr(group, "group_name", group)): along for group, along in plan.groups.items()}
    if unknown := [
        a for along in said.values() for a in ([along] if isinstance(along, str) else along) if a not in axes
    ]:
        raise ValueError(f"Plan(groups=...): the mesh has no axis {unknown[0]!r}; it has {', '.join(axes)}")
    found: dict[str, tuple[str, ...]] = {}
    for op, name in _named_groups(module):
        if name in found:
            continue
        if name in said:
            along = said[name]
            found[name] = (along,) if isinstance(along, str) else tuple(along)
        elif (ranks := _ranks_of(name)) is not None:
            found[name] = _axes_of_ranks(op, name, ranks, mesh, axes)
    return Groups(axes, found)


def _named_groups(module: ModuleOp) -> Iterator[tuple[Operation, str]]:
    for op in module.walk():
        if isinstance(op, TorchOp) and op.schema is not None and "group_name" in op.schema.index:
            name = python_value(op.operands[op.schema.index["group_name"]])
            if isinstance(name, str):
                yield op, name


def _ranks_of(name: str) -> list[int] | None:
    """Return the ranks of a process group, in its order; None where PyTorch knows no such group."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        resolve: Any = vars(distributed.distributed_c10d)["_resolve_process_group"]
        return list(distributed.get_process_group_ranks(resolve(name)))
    except (RuntimeError, KeyError, ValueError):
        return None


def _axes_of_ranks(
    op: Operation, name: str, ranks: Sequence[int], mesh: Any, axes: Mapping[str, int]
) -> tuple[str, ...]:
    """Find the axes of a mesh along which ranks lie; CompileError if there are none."""
    places: Mapping[int, int] = {}
    if not isinstance(mesh, Mapping):
        places = {int(rank): place for place, rank in enumerate(mesh.mesh.flatten().tolist())}
    line = [places.get(rank, rank if not places else -1) for rank in ranks]
    found = axes_along(axes, line)
    if found is None:
        shown = ", ".join(f"{axis}={size}" for axis, size in axes.items())
        reason = (
            f"it is over the process group {name!r} of the ranks {list(ranks)}, which are no line of the mesh {shown}"
        )
        hint = f"Say which axes these are: Plan(groups={{{name!r}: {list(axes)[-1]!r}}})."
        overload = op.overload if isinstance(op, TorchOp) else op.name
        raise CompileError([Diagnostic(_STAGE, reason, op=overload, location=op.location, hint=hint)])
    return found


@dataclass(frozen=True)
class Spread:
    """A program for one device, made one for all devices of a mesh."""

    op: ModuleOp
    signature: Signature
    weights: Weights


def spread(
    model: Any, op: ModuleOp, function: str, signature: Signature, weights: Weights, mesh: Any, plan: Plan
) -> Spread:
    """Make a function in StableHLO that one device runs, with collectives, a function over a mesh, in place."""
    if plan.fsdp is not None:
        raise ValueError("the model calls collectives itself: gather its weights there too, and leave fsdp out")
    axes = axes_of(mesh)
    planner = Planner(axes, plan, of_parts=True)
    if planner.outputs(model) or any(isinstance(inner, ShardingConstraintOp) for inner in op.walk()):
        raise ValueError("the model calls collectives itself: what its submodules take and give has no other layouts")
    _require_tensors(signature)
    placed = planner.weights(model, weights)
    arguments = [
        placed[a.state] if a.state is not None else planner.input(a.name, a.spec)  # type: ignore[arg-type]
        for a in signature.arguments
    ]
    along = differing(functions_of(op)[function], axes, arguments, placed)
    written = {m.result: arguments[m.argument] for m in signature.mutations}
    results = [
        _result(planner, op, function, i, spec, along[i], written.get(i)) for i, spec in enumerate(signature.results)
    ]
    whole = _whole_weights(model, weights, placed, axes, plan.weights)
    wrap(op, function, Shardings(axes, arguments, results, placed))

    def of_all(spec: Any, sharding: Sharding) -> TensorSpec:
        return TensorSpec(whole_shape(spec.shape, sharding, axes), spec.dtype)

    given = [replace(a, spec=of_all(a.spec, s)) for a, s in zip(signature.arguments, arguments, strict=True)]
    gives = [of_all(spec, s) for spec, s in zip(signature.results, results, strict=True)]
    return Spread(op, replace(signature, arguments=tuple(given), results=tuple(gives)), whole)


def _require_tensors(signature: Signature) -> None:
    specs = [("argument", a.name, a.spec) for a in signature.arguments]
    specs += [("result", str(i), spec) for i, spec in enumerate(signature.results)]
    for kind, name, spec in specs:
        if not isinstance(spec, TensorSpec) or None in spec.shape:
            reason = f"a program with collectives takes and gives tensors of known shapes, and {kind} {name} is {spec}"
            raise CompileError([Diagnostic(_STAGE, reason, hint="Make a tensor of it: torch.tensor(n).")])


def _result(
    planner: Planner, op: ModuleOp, function: str, index: int, spec: Any, along: frozenset[str], state: Sharding | None
) -> Sharding:
    """Lay a result out: as the plan says, like the state that it is the new value of, or by the batch."""
    axes, left = {}, set(along)
    if state is not None:
        left -= {axis for dim in state.dims for axis in dim.axes}
    elif (said := planner.said_of_result(index)) is not None:
        left -= said.keys()
        axes = said
    elif planner.batch in left and spec.shape:
        left.remove(planner.batch)
        axes = planner.by_batch()
    if left:
        end = functions_of(op)[function].get_return_op()
        assert end is not None
        owner = end.operands[index].owner
        location = owner.location if isinstance(owner, Operation) else end.location
        what = "state that is written" if state is not None else f"result {index}"
        reason = f"{what} is not the same on all devices: it differs along {', '.join(map(repr, sorted(left)))}"
        hint = f"Say how it is put together, Plan(results={{{min(left)!r}: Shard(0)}}), or gather it in the model."
        raise CompileError([Diagnostic(_STAGE, reason, location=location, hint=hint)])
    return state if state is not None else planner.placed(f"result {index}", axes, spec.shape)


def _whole_weights(
    model: Any, parts: Weights, placed: Mapping[str, Sharding], axes: Mapping[str, int], given: Mapping[str, Any]
) -> Weights:
    """Put the whole weights in the place of one device's parts."""
    paths: dict[str, str] = {}
    for path, name in parameter_names(model, parts).items():
        if name not in paths or path in given:
            paths[name] = path
    whole = Weights()
    for name, part in parts.items():
        path = paths.get(name, name)
        shape = whole_shape(tuple(part.shape), placed[name], axes)
        if path not in given and shape != tuple(part.shape):
            raise ValueError(
                f"the model's {path} is the part of one device: give the whole one, {list(shape)}, in "
                "Plan(weights=state_dict)"
            )
        if path in given:
            require_like(path, given[path], shape, part.dtype)
        whole.tensors[name] = given.get(path, part)
    return whole
