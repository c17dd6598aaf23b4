"""What a program needs before IREE compiles it."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.iree import (
    checks,
    complex_constants,
    complex_pads,
    empty_products,
    functions,
    gathers,
    grouped_convolutions,
    loop_starts,
    products,
    rows,
    scatters,
    slice_writes,
    stablehlo_ops,
    tosa_ops,
    truth_reductions,
    truth_values,
    whole_numbers,
    whole_ops,
)
from flambeau.engines.iree.constants import constants_to_tensors
from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.guards import check_sizes_first
from flambeau.engines.iree.loops import is_loop_on_tensors, with_branches
from flambeau.engines.iree.parameters import weights_to_parameters
from flambeau.engines.iree.registers import passes_narrow_numbers, widen_arguments

REWRITES: tuple[Callable[[ModuleOp], ModuleOp], ...] = (
    checks.REWRITE,
    whole_ops.REWRITE,
    functions.REWRITE,
    stablehlo_ops.DYNAMIC_OPS,
    scatters.REWRITE,
    loop_starts.REWRITE,
    slice_writes.REWRITE,
    complex_pads.REWRITE,
    complex_constants.REWRITE,
    constants_to_tensors,
    grouped_convolutions.REWRITE,
    products.REWRITE,
    rows.REWRITE,
    empty_products.REWRITE,
    tosa_ops.REWRITE,
    tosa_ops.OPEN_SIZES,
    gathers.REWRITE,
    truth_values.REWRITE,
    truth_reductions.REWRITE,
    check_sizes_first,
    whole_numbers.REWRITE,
)
"""In this order. Each gives the module itself, or a copy without what it is about."""


def for_iree(module: ModuleOp) -> ModuleOp:
    """The module itself, or a copy without the ops that IREE does not take; its weights are parameters."""
    for rewrite in (*REWRITES, weights_to_parameters):
        module = rewrite(module)
    flat = with_branches(module, is_loop_on_tensors, is_growing_loop, passes_narrow_numbers)
    if flat is not module:
        widen_arguments(flat)
    return flat
