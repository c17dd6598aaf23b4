"""Programs over many devices: PyTorch's words for how a model is split, as shardings of StableHLO.

    mesh = {"data": 2, "tensor": 4}            # or a torch.distributed DeviceMesh with names
    plan = {"layers.*.attention.query": ColwiseParallel(), "layers.*.attention.out": RowwiseParallel()}
    module = flambeau.compile(model, (x,), output_type="stablehlo", mesh=mesh, plan=plan)

The plan is the one that `parallelize_module` takes. Nothing is computed here: XLA partitions the program. `plans` works
out layouts, `placing` writes them into a program, `parallelized` takes models that PyTorch has split, and `collectives`
those that exchange tensors themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.distributed.plans import Placements, Plan, axes_of

__all__ = ["Placements", "Plan", "axes_of"]


def __getattr__(name: str) -> Any:
    """Import `plans` when somebody has a plan: every program asks `placing` whether there is one."""
    if name not in __all__:
        raise AttributeError(f"module 'flambeau.distributed' has no attribute {name!r}")
    from flambeau.distributed import plans

    return getattr(plans, name)
