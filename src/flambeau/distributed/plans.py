"""Plans: how a model is split over a mesh, and what that says of each of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from flambeau.dialects.sdy import DimSharding, Sharding, open_sharding
from flambeau.ir.arrays import dtype_of
from flambeau.ir.dtypes import from_torch
from flambeau.ir.module import Signature, TensorSpec
from flambeau.lowering.stablehlo.sharding import Shardings

OF_OPTIMIZER = "optimizer."
"""What the names of an optimiser's state begin with, in a training step: `optimizer.weight.exp_avg`."""

Placements = Any
"""A placement of PyTorch's (`Shard(0)`, `Replicate()`) along the plan's axis, or one for each axis by its name."""


@dataclass(frozen=True)
class Plan:
    """How a model is split over a mesh."""

    styles: Mapping[str, Any] = field(default_factory=dict)
    """By the path of submodules, in which `*` stands for one name: a `ParallelStyle` of PyTorch's, or a dictionary
    from the names of its parameters to placements."""
    axis: str | None = None
    """The axis of the mesh that the styles split along; the last one if nobody says."""
    batch: str | None = None
    """The axis along which the first dim of all inputs is split; `data` if the mesh has it and nobody says."""
    inputs: Mapping[str, Placements] = field(default_factory=dict)
    """Placements of inputs by the names of the arguments, in place of `batch`."""
    fsdp: str | None = None
    """The axis along which weights are split that are whole otherwise, as FSDP does: each is gathered where it is
    used."""
    results: Placements = None
    """How results are split: a placement for all of them, or a list with one for each; whole if nobody says."""
    groups: Mapping[Any, str | Sequence[str]] = field(default_factory=dict)
    """For a model that calls collectives itself: the axes that a process group, or that of a name, is along. Those
    whose ranks lie along axes of the mesh need not be named."""
    parameters: Mapping[str, Placements] = field(default_factory=dict)
    """Placements of parameters by their names. Those of a model whose parameters are `DTensor`s need not be named."""
    weights: Mapping[str, Any] = field(default_factory=dict)
    """Whole weights by the names of parameters, as a `state_dict` has them, for a model that has the parts of one
    rank."""

    @staticmethod
    def of(plan: Any) -> Plan:
        """Take a plan as it is, or make one of the dictionary that `parallelize_module` takes; None is an empty one."""
        return plan if isinstance(plan, Plan) else Plan(styles=dict(plan or {}))


def axes_of(mesh: Any) -> dict[str, int]:
    """Return the axes of a mesh and their sizes: of a mapping, or of a `DeviceMesh` whose dims have names."""
    if isinstance(mesh, Mapping):
        axes = {str(name): int(size) for name, size in mesh.items()}
    else:
        names, shape = getattr(mesh, "mesh_dim_names", None), getattr(getattr(mesh, "mesh", None), "shape", None)
        if not names or shape is None:
            raise TypeError(f"a mesh is a mapping from axes to sizes or a DeviceMesh with mesh_dim_names, not {mesh!r}")
        axes = dict(zip(names, map(int, shape), strict=True))
    if not axes or any(size < 1 for size in axes.values()):
        raise ValueError(f"a mesh has at least one axis, and at least one device along each: {axes}")
    return axes


def shardings_for(model: Any, signature: Signature, weights: Mapping[str, Any], mesh: Any, plan: Plan) -> Shardings:
    """Work out the layouts of arguments, results and weights; raise ValueError for a plan that cannot be."""
    axes = axes_of(mesh)
    planner = Planner(axes, plan)
    placed = planner.weights(model, weights)
    arguments = [_argument(planner, a, placed) for a in signature.arguments]
    # What becomes state again lies as the state does.
    written = {m.result: arguments[m.argument] for m in signature.mutations}
    results = [
        None if not isinstance(r, TensorSpec) else written[i] if i in written else planner.result(i, r)
        for i, r in enumerate(signature.results)
    ]
    return Shardings(axes, arguments, results, placed, planner.outputs(model))


def _argument(planner: Planner, argument: Any, placed: Mapping[str, Sharding]) -> Sharding | None:
    if not isinstance(argument.spec, TensorSpec):
        return None
    if argument.state is not None:
        return placed.get(argument.state, _whole(len(argument.spec.shape)))
    return planner.input(argument.name, argument.spec)


def _whole(rank: int) -> Sharding:
    return Sharding((DimSharding(),) * rank)


class Planner:
    """A plan for one mesh. `of_parts` says that shapes are those of the parts that one device has."""

    def __init__(self, axes: Mapping[str, int], plan: Plan, of_parts: bool = False) -> None:
        self.axes, self.plan, self.of_parts = axes, plan, of_parts
        self.axis = plan.axis or list(axes)[-1]
        self.batch = plan.batch or ("data" if "data" in axes else None)
        for name in (self.axis, self.batch, plan.fsdp):
            if name is not None and name not in axes:
                raise ValueError(f"the mesh has no axis {name!r}; it has {', '.join(axes)}")

    def input(self, name: str, spec: TensorSpec) -> Sharding:
        """Place an input: as the plan says, or split along the axis of the batch."""
        if name in self.plan.inputs:
            return self.placed(f"argument {name!r}", self.plan.inputs[name], spec.shape)
        rank = len(spec.shape)
        if self.batch is None or not rank or (spec.shape[0] == 1 and not self.of_parts):
            return _whole(rank)
        return self._split(f"argument {name!r}", spec.shape, {0: (self.batch,)})

    def result(self, index: int, spec: TensorSpec) -> Sharding:
        """Place a result: as the plan says, or whole."""
        return self.placed(f"result {index}", self.said_of_result(index) or {}, spec.shape)

    def said_of_result(self, index: int) -> dict[str, Any] | None:
        """Return what the plan says of a result, by the axes; None if nothing."""
        said = self.plan.results
        if isinstance(said, Sequence):
            if index >= len(said):
                raise ValueError(f"the plan has {len(said)} results, and the program has more")
            said = said[index]
        return None if said is None else dict(said) if isinstance(said, Mapping) else {self.axis: said}

    def by_batch(self) -> dict[str, Any]:
        """Make the placements of a tensor whose first dim is that of the batch."""
        from torch.distributed.tensor import Shard

        return {self.batch: Shard(0)} if self.batch is not None else {}

    def weights(self, model: Any, weights: Mapping[str, Any]) -> dict[str, Sharding]:
        """Place the weights of a program; those that no style names are whole, or split as FSDP does."""
        names = parameter_names(model, weights)
        placed: dict[str, Sharding] = {}
        require_submodules(model, self.plan.styles)
        for path, module in model.named_modules() if hasattr(model, "named_modules") else ():
            for style in matching(self.plan.styles, path):
                for parameter, placements in _placements(path, module, style).items():
                    if (name := names.get(f"{path}.{parameter}".removeprefix("."))) is not None:
                        shape = tuple(weights[name].shape)
                        placed[name] = self.placed(f"{path}.{parameter}", placements, shape)
        for path, placements in self.plan.parameters.items():
            if path not in names and path not in (dict(_tensors(model)) if hasattr(model, "named_modules") else {}):
                raise ValueError(f"the plan names the parameter {path!r}, and the model has none of that name")
            if (name := names.get(path)) is not None:
                placed[name] = self.placed(path, placements, tuple(weights[name].shape))
        for name in [n for n in weights if n.startswith(OF_OPTIMIZER)]:
            # What an optimiser holds for each element of a parameter lies as the parameter does.
            path = name.removeprefix(OF_OPTIMIZER).rpartition(".")[0]
            parameter = names.get(path, path)
            if parameter in placed and tuple(weights[name].shape) == tuple(weights[parameter].shape):
                placed[name] = placed[parameter]
        return {name: self._fully(name, w, placed.get(name)) for name, w in weights.items()}

    def _fully(self, name: str, weight: Any, sharding: Sharding | None) -> Sharding:
        """Split a weight along the axis of FSDP too, by the first dim that is whole and that can be split."""
        shape = tuple(weight.shape)
        sharding = sharding or _whole(len(shape))
        if self.plan.fsdp is None:
            return sharding
        size = self.axes[self.plan.fsdp]
        for i, (dim, n) in enumerate(zip(sharding.dims, shape, strict=True)):
            if not dim.axes and n % size == 0 and n:
                dims = (*sharding.dims[:i], DimSharding((self.plan.fsdp,)), *sharding.dims[i + 1 :])
                return Sharding(dims)
        return sharding

    def outputs(self, model: Any) -> dict[str, Callable[[int], Sharding]]:
        """Say how submodules lay out what they give, where their styles say something else than usual."""
        found: dict[str, Callable[[int], Sharding]] = {}
        for path, _ in model.named_modules() if hasattr(model, "named_modules") else ():
            for style in matching(self.plan.styles, path):
                if (placement := _output(style)) is not None:
                    found[path] = partial(self._constrained, placement)
        return found

    def _constrained(self, placement: Any, rank: int) -> Sharding:
        return open_sharding(rank, self.axis, None if is_replicate(placement) else placement.dim)

    def placed(self, what: str, placements: Placements, shape: Sequence[int | None]) -> Sharding:
        """Lay out a tensor of some shape; `what` it is called in errors."""
        by_axis = placements if isinstance(placements, Mapping) else {self.axis: placements}
        split: dict[int, tuple[str, ...]] = {}
        for axis, placement in by_axis.items():
            if axis not in self.axes:
                raise ValueError(f"{what}: the mesh has no axis {axis!r}; it has {', '.join(self.axes)}")
            if not is_replicate(placement):
                dim = placement.dim
                if not -len(shape) <= dim < len(shape):
                    raise ValueError(f"{what} has {len(shape)} dims, and the plan splits dim {dim}")
                split[dim % len(shape)] = (*split.get(dim % len(shape), ()), axis)
        return self._split(what, shape, split)

    def _split(self, what: str, shape: Sequence[int | None], split: Mapping[int, tuple[str, ...]]) -> Sharding:
        for dim, axes in split.items():
            parts, size = 1, shape[dim]
            for axis in axes:
                parts *= self.axes[axis]
            if size is not None and size % parts and not self.of_parts:
                raise ValueError(f"{what}: dim {dim} of size {size} cannot be split into {parts} equal parts")
        return Sharding(tuple(DimSharding(tuple(split.get(i, ()))) for i in range(len(shape))))


def parameter_names(model: Any, weights: Mapping[str, Any]) -> dict[str, str]:
    """Find the weights of a program by the names of the model's parameters and buffers, tied ones too.

    A program that is no `nn.Module` has no other names for them than its own.
    """
    if not hasattr(model, "named_modules"):
        return {name: name for name in weights}
    own = {id(tensor): name for name, tensor in weights.items()}
    by_place = {_place(tensor): name for name, tensor in weights.items()}
    names = {}
    for path, tensor in _tensors(model):
        found = own.get(id(tensor)) or by_place.get(_place(tensor)) or (path if path in weights else None)
        if found is not None:
            names[path] = found
    return names


def require_like(path: str, weight: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise ValueError if a weight of a plan, a tensor or an array, does not have a shape and a dtype."""
    wanted = from_torch(dtype)
    if tuple(weight.shape) != shape or dtype_of(weight) is not wanted:
        raise ValueError(
            f"the whole {path} is {wanted} of {list(shape)}, and Plan(weights=...) has {weight.dtype} of "
            f"{list(weight.shape)}"
        )


def _tensors(model: Any) -> list[tuple[str, Any]]:
    """List the parameters and buffers of a model by their names."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _place(tensor: Any) -> Any:
    """Tell a tensor by its memory; one without memory (a meta tensor) by itself."""
    pointer = tensor.data_ptr() if hasattr(tensor, "data_ptr") else 0
    return (pointer, tuple(tensor.shape)) if pointer else id(tensor)


def matching(styles: Mapping[str, Any], path: str) -> list[Any]:
    """List the styles of a plan for the submodule at a path."""
    return [style for pattern, style in styles.items() if _matches(pattern, path)]


def require_submodules(model: Any, styles: Mapping[str, Any]) -> None:
    """Raise ValueError if a plan names a submodule that the model does not have."""
    paths = [path for path, _ in model.named_modules()] if hasattr(model, "named_modules") else []
    if missing := [pattern for pattern in styles if not any(_matches(pattern, path) for path in paths)]:
        raise ValueError(f"the plan names {missing[0]!r}, and the model has no such submodule")


def _matches(pattern: str, path: str) -> bool:
    parts, names = pattern.split("."), path.split(".")
    return len(parts) == len(names) and all(map(fnmatchcase, names, parts))


def _placements(path: str, module: Any, style: Any) -> Mapping[str, Placements]:
    """Return the placements of a submodule's parameters under a style, as PyTorch's own styles place them."""
    if isinstance(style, Mapping):
        return style
    if type(style).__name__.startswith("PrepareModule"):
        return {}
    from torch import nn
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

    if isinstance(style, SequenceParallel):
        return {name: Replicate() for name, _ in module.named_parameters(recurse=False)}
    columns, rows = isinstance(style, ColwiseParallel), isinstance(style, RowwiseParallel)
    if columns and isinstance(module, nn.Linear):
        return {"weight": Shard(0), "bias": Shard(0)}
    if rows and isinstance(module, nn.Linear):
        return {"weight": Shard(1), "bias": Replicate()}
    if (columns or rows) and isinstance(module, nn.Embedding):
        return {"weight": Shard(1 if columns else 0)}
    raise ValueError(
        f"the plan has {type(style).__name__} for {path!r}, a {type(module).__name__}: columns and rows are those of "
        "Linear and Embedding; give placements of parameters instead, {'weight': Shard(0)}"
    )


def _output(style: Any) -> Any:
    """Return the placement of what a submodule gives; None where it is what the partitioner finds by itself."""
    if isinstance(style, Mapping) or type(style).__name__.startswith("PrepareModule"):
        return None
    if (sequence := getattr(style, "sequence_sharding", None)) is not None:
        return sequence[0]
    (placement,) = style.output_layouts
    is_usual = is_replicate(placement) if type(style).__name__ == "RowwiseParallel" else placement.is_shard(-1)
    return None if is_usual else placement


def is_replicate(placement: Any) -> bool:
    """Tell whether a placement is `Replicate()`; raise for one that is neither that nor `Shard`."""
    if not hasattr(placement, "is_replicate"):
        raise TypeError(f"a placement is Shard(dim) or Replicate(), not {placement!r}")
    if placement.is_partial():
        raise ValueError("a program takes tensors that are whole or split: Partial() is for what is inside of it")
    return bool(placement.is_replicate())
