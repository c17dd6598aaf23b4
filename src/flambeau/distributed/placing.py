"""Programs over many devices: what is checked, lowered and laid out when `compile` is given a mesh."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any


def parallelized_model(model: Any, mesh: Any, plan: Any) -> Any:
    """Make a model over whole tensors of one that PyTorch has split; None for other programs."""
    if "torch.distributed.tensor" not in sys.modules:
        return None
    from flambeau.distributed.parallelized import parallelized

    return parallelized(model, mesh, plan)


def before_mesh(model: Any, output: str, dynamic_shapes: Any, mesh: Any) -> str:
    """Return what a program is lowered to before it is laid out over a mesh; ValueError if it cannot be laid out.

    Which devices exchange what is to be known before it is lowered to StableHLO.
    """
    if mesh is None:
        raise ValueError("a plan says how a program is split over a mesh: give the mesh too, mesh={'tensor': 4}")
    if output != "stablehlo":
        raise ValueError(f'programs over many devices are in StableHLO, not {output}: output_type="stablehlo"')
    if dynamic_shapes is not None:
        raise ValueError("a program over many devices has static shapes: leave dynamic_shapes out")
    if isinstance(model, Mapping):
        raise ValueError("a program over many devices has one function: compile each of several by itself")
    from flambeau.api import OutputType

    return output if getattr(model, "output_type", None) == output else OutputType.TORCH


def placed(
    model: Any,
    mesh: Any,
    plan: Any,
    function: str,
    module: Any,
    lowered: Callable[[Any, Mapping[str, Any]], Any],
) -> Any:
    """Lower a `Module` to StableHLO, and lay it out over a mesh of devices."""
    from flambeau.distributed.plans import Plan, shardings_for
    from flambeau.lowering.stablehlo.manual import exchanges
    from flambeau.lowering.stablehlo.sharding import annotate

    plan = Plan.of(plan)
    if module.output_type == "torch":
        from flambeau.distributed.collectives import groups_of

        groups = groups_of(module.op, mesh, plan)
        is_manual, module = bool(groups.axes), lowered(module, groups.options())
    else:
        is_manual = exchanges(module.op)
    signature = module.signatures[function]
    if is_manual:
        from flambeau.distributed.collectives import spread

        made = spread(model, module.op, function, signature, module.weights, mesh, plan)
        signatures = {**module.signatures, function: made.signature}
        return replace(module, op=made.op, signatures=signatures, weights=made.weights, origin=None)
    shardings = shardings_for(model, signature, module.weights, mesh, plan)
    return replace(module, op=annotate(module.op, function, shardings))
