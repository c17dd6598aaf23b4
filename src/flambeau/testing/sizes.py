"""Other sizes for a program with dynamic dims: each dim that it leaves open gets another size, and arguments follow."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from flambeau.testing.cases import Call


def all_dynamic(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make `dynamic_shapes` that leave every dim of every tensor to PyTorch: dynamic, unless the program pins it."""
    auto = torch.export.Dim.AUTO
    leaves, spec = tree_flatten(args)
    return tree_unflatten(
        [{i: auto for i, n in enumerate(x.shape) if n > 1} if isinstance(x, torch.Tensor) else None for x in leaves],
        spec,
    )


def open_dims(program: torch.export.ExportedProgram) -> set[Any]:
    """Collect the symbols in the shapes of the arguments of an exported program."""
    return {s for shape in _shapes(program).values() for dim in shape for s in getattr(dim, "free_symbols", ())}


def resized(program: torch.export.ExportedProgram, call: Call, by: int = 1) -> Call | None:
    """Enlarge every open dim of a call by `by`; None without open dims, or where a size leaves its bounds."""
    shapes = _shapes(program)
    hints = _hints(program)
    sizes: dict[Any, int] = {}
    for symbol in open_dims(program):
        bounds = program.range_constraints.get(symbol)
        size = hints[symbol] + by
        if bounds is not None and not (bounds.lower <= size <= bounds.upper):
            return None
        sizes[symbol] = size
    if not sizes:
        return None
    leaves, spec = tree_flatten((call.args, dict(call.kwargs)))
    names = [s.arg.name if hasattr(s.arg, "name") else None for s in _user_inputs(program)]
    generator = torch.Generator().manual_seed(by)
    new = []
    for name, leaf in zip(names, leaves, strict=True):
        if isinstance(leaf, torch.Tensor) and name in shapes:
            shape = [int(d.subs(sizes)) if hasattr(d, "subs") else int(d) for d in shapes[name]]
            leaf = _refilled(leaf, shape, generator)
        new.append(leaf)
    args, kwargs = tree_unflatten(new, spec)
    return Call(args, kwargs)


def _refilled(tensor: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Fill a tensor of another shape with elements of this one, so that indices and probabilities remain such."""
    if list(tensor.shape) == shape:
        return tensor.clone()
    count = 1
    for n in shape:
        count *= n
    if tensor.numel() == 0:
        return torch.zeros(shape, dtype=tensor.dtype)
    order = torch.randint(tensor.numel(), (count,), generator=generator)
    return tensor.reshape(-1)[order].reshape(shape)


def _user_inputs(program: torch.export.ExportedProgram) -> list[Any]:
    from torch.export.graph_signature import InputKind

    return [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]


def _shapes(program: torch.export.ExportedProgram) -> dict[str, list[Any]]:
    """Return the shape of each tensor argument, in ints and sympy expressions."""
    wanted = {s.arg.name for s in _user_inputs(program) if hasattr(s.arg, "name")}
    found = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in wanted and isinstance(value, torch.Tensor):
            found[node.name] = [d.node.expr if hasattr(d, "node") else d for d in value.shape]
    return found


def _hints(program: torch.export.ExportedProgram) -> dict[Any, int]:
    """Return the size that each symbol had in the example."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for dim in value.shape:
                if (symbolic := getattr(dim, "node", None)) is not None:
                    return {s: int(v) for s, v in symbolic.shape_env.backed_var_to_val.items()}
    return {}
