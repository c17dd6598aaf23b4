"""Models that PyTorch has split already, and layouts at the borders of submodules.

A model after `parallelize_module` or `fully_shard` has `DTensor`s for parameters, and hooks that convert what its
submodules take and give. What is compiled is the same model over whole tensors, in a copy: the placements of the
parameters are part of the plan, and the hooks are left out. The styles `PrepareModuleInput` and `PrepareModuleOutput`
of a plan are hooks of ours on that copy, which mark tensors with their layouts.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flambeau.distributed.plans import (
    Plan,
    axes_of,
    is_replicate,
    matching,
    parameter_names,
    require_like,
    require_submodules,
)
from flambeau.ir.module import Weights


@dataclass(frozen=True)
class Parallelized:
    """A model over whole tensors, with what was known of how it is split."""

    model: Any
    mesh: Any
    plan: Plan
    parts: Mapping[str, Any]
    """By the name of a parameter that is a `DTensor`, this or the whole weight that the plan has."""

    def weights(self, own: Weights) -> Weights:
        """Put the real weights in the place of the empty tensors that the copy has."""
        names = parameter_names(self.model, own)
        placed = {names[path]: part for path, part in self.parts.items() if path in names}
        return Weights({name: placed.get(name, tensor) for name, tensor in own.items()})


def parallelized(model: Any, mesh: Any, plan: Any) -> Parallelized | None:
    """Make the copy of a model over whole tensors; None for a model that needs none."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    plan = Plan.of(plan)
    split = dict(_dtensors(model))
    prepared = {pattern: style for pattern, style in plan.styles.items() if _borders(style)}
    if not split and not prepared:
        return None
    if mesh is None and split:
        mesh = _common_mesh(split)
    if mesh is None:
        return None  # compile() says what is missing
    clone = _clone(model, {})
    axes = axes_of(mesh)
    placements = {path: _by_axis(path, tensor, axes) for path, tensor in split.items()}
    made: dict[int, Any] = {}
    for path, tensor in split.items():
        # It is never read or written, so that it takes addresses and no memory. Tied parameters stay one.
        if id(tensor) not in made:
            made[id(tensor)] = torch.nn.Parameter(torch.empty(tensor.shape, dtype=tensor.dtype), requires_grad=False)
        _set(clone, path, made[id(tensor)])
    parts = {path: _given(path, tensor, plan.weights) for path, tensor in split.items()}
    _prepare(clone, prepared, plan.axis or list(axes)[-1])
    styles = {pattern: style for pattern, style in plan.styles.items() if pattern not in prepared}
    parameters = {**placements, **plan.parameters}
    return Parallelized(clone, mesh, replace(plan, styles=styles, parameters=parameters), parts)


def _prepare(model: Any, styles: Mapping[str, Any], axis: str) -> None:
    """Let submodules mark what they take and give."""
    require_submodules(model, styles)
    for path, module in model.named_modules():
        for style in matching(styles, path):
            for border in _borders(style):
                _mark(module, border, axis)


def _dtensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters and buffers of a model that are `DTensor`s, by their names."""
    found: Any = sys.modules.get("torch.distributed.tensor")
    if found is None:
        return
    for path, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        if isinstance(tensor, found.DTensor):
            yield path, tensor


def _common_mesh(split: Mapping[str, Any]) -> Any:
    """Find the mesh that all parameters are on, or of which they are on parts."""
    meshes = {tuple(t.device_mesh.mesh_dim_names or ()): t.device_mesh for t in split.values()}
    names, mesh = max(meshes.items(), key=lambda item: len(item[0]))
    if not all(set(other) <= set(names) for other in meshes):
        raise ValueError(f"the parameters are on different meshes, {', '.join(map(str, meshes))}: give the mesh")
    return mesh


def _by_axis(path: str, tensor: Any, axes: Mapping[str, int]) -> dict[str, Any]:
    """Return the placements of a `DTensor` by the axes of the mesh, in the order in which they split a dim."""
    names = tensor.device_mesh.mesh_dim_names
    if names is None or any(name not in axes for name in names):
        raise ValueError(
            f"{path} is on a mesh of {names or 'dims without names'}, and the program's has {', '.join(axes)}"
        )
    pairs = zip(names, tensor.placements, strict=True)
    # A strided shard is one of what other axes have split before.
    return dict(sorted(pairs, key=lambda pair: type(pair[1]).__name__ == "_StridedShard"))


def _clone(module: Any, seen: dict[int, Any]) -> Any:
    """Copy the modules of a model, but not their tensors, without the hooks that convert tensors."""
    if id(module) in seen:
        return seen[id(module)]
    made = seen[id(module)] = object.__new__(type(module))  # a copy of one of FSDP's modules would be another one's
    made.__dict__.update(module.__dict__)
    for name in ("_parameters", "_buffers"):
        made.__dict__[name] = dict(module.__dict__[name])
    made.__dict__["_modules"] = {n: None if m is None else _clone(m, seen) for n, m in module._modules.items()}
    for name in (
        "_forward_pre_hooks",
        "_forward_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_with_kwargs",
    ):
        hooks = module.__dict__[name]
        kept = OrderedDict((key, hook) for key, hook in hooks.items() if not _converts(module, key))
        made.__dict__[name] = kept
    return made


def _converts(module: Any, key: int) -> bool:
    """Tell whether a hook of a module is one of those that `parallelize_module` and `fully_shard` add."""
    hook = module._forward_pre_hooks.get(key) or module._forward_hooks.get(key)
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.")


def _set(model: Any, path: str, tensor: Any) -> None:
    """Put a tensor in the place of a parameter, or of a buffer."""
    owner, _, name = path.rpartition(".")
    module = model.get_submodule(owner)
    if name in module._parameters:
        module._parameters[name] = tensor
    else:
        module._buffers[name] = tensor.data


def _given(path: str, tensor: Any, weights: Mapping[str, Any]) -> Any:
    """Return the whole weight that a plan has for a parameter, or the parameter itself."""
    if path not in weights:
        return tensor
    require_like(path, weights[path], tuple(tensor.shape), tensor.dtype)
    return weights[path]


def _borders(style: Any) -> list[Any]:
    """Return the styles for what a submodule takes and gives that a style of a plan consists of."""
    if isinstance(style, Mapping):
        return []
    if type(style).__name__ == "PrepareModuleInputOutput":
        return [style.prepare_module_input, style.prepare_module_output]
    return [style] if type(style).__name__ in ("PrepareModuleInput", "PrepareModuleOutput") else []


def _mark(module: Any, style: Any, axis: str) -> None:
    """Let a submodule of the copy mark what it takes, or gives, with the layouts of a style."""
    if type(style).__name__ == "PrepareModuleOutput":
        layouts = list(zip(style.output_layouts, style.desired_output_layouts, strict=True))
        module.register_forward_hook(lambda _, args, given: _marked_all(given, layouts, axis))
        return
    taken = style.input_layouts or ()
    layouts = list(zip(taken, style.desired_input_layouts or (), strict=True))
    named = {n: (o, style.desired_input_kwarg_layouts[n]) for n, o in style.input_kwarg_layouts.items()}

    def prepare(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if layouts and len(layouts) != len(args):
            raise ValueError(
                f"PrepareModuleInput has {len(layouts)} layouts, and the submodule takes {len(args)} arguments"
            )
        marked = _marked_all(args, layouts, axis) if layouts else args
        return marked, {n: _marked(v, named[n], axis) if n in named else v for n, v in kwargs.items()}

    module.register_forward_pre_hook(prepare, with_kwargs=True)


def _marked_all(values: Any, layouts: Sequence[tuple[Any, Any]], axis: str) -> Any:
    if not isinstance(values, (tuple, list)):
        return _marked(values, layouts[0], axis)
    if len(layouts) != len(values):
        raise ValueError(f"a style has {len(layouts)} layouts for {len(values)} tensors")
    return type(values)(_marked(v, pair, axis) for v, pair in zip(values, layouts, strict=True))


def _marked(value: Any, layouts: tuple[Any, Any], axis: str) -> Any:
    """Mark a tensor with the layout that it comes in, and then with the one that is wanted."""
    from flambeau.frontends.fx.own_ops import own_op

    constrain: Callable[..., Any] = own_op("constrain")
    for i, layout in enumerate(layouts):
        if layout is not None and (i == 0 or layout != layouts[0]):
            value = constrain(value, axis, None if is_replicate(layout) else layout.dim)
    return value
