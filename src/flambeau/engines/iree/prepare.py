"""What a program needs before IREE compiles it."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.iree import (
    bfloat16,
    checks,
    complex_constants,
    complex_pads,
    control_flow,
    empty_products,
    functions,
    gathers,
    grouped_convolutions,
    host_casts,
    loop_starts,
    products,
    reduction_tiles,
    roundings,
    row_convolutions,
    row_loads,
    row_products,
    rows,
    scatters,
    serial_loops,
    slice_writes,
    small_floats,
    stablehlo_ops,
    stored_truths,
    tosa_ops,
    truth_reductions,
    truth_values,
    turned_taps,
    volume_convolutions,
    whole_numbers,
    whole_ops,
)
from flambeau.engines.iree.constants import constants_to_tensors
from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.guards import check_sizes_first
from flambeau.engines.iree.loops import is_loop_on_tensors, with_branches
from flambeau.engines.iree.parameters import variables_to_parameters, weights_to_parameters
from flambeau.engines.iree.registers import passes_narrow_numbers, widen_arguments
from flambeau.lowering.stablehlo.sharding import without_shardings

REWRITES: tuple[Callable[[ModuleOp], ModuleOp], ...] = (
    control_flow.REWRITE,
    checks.REWRITE,
    whole_ops.REWRITE,
    functions.REWRITE,
    host_casts.REWRITE,
    host_casts.CONVERTED,
    small_floats.REWRITE,
    roundings.REWRITE,
    bfloat16.REWRITE,
    stablehlo_ops.DYNAMIC_OPS,
    scatters.REWRITE,
    row_products.REWRITE,
    row_loads.REWRITE,
    stored_truths.REWRITE,
    serial_loops.REWRITE,
    loop_starts.REWRITE,
    slice_writes.REWRITE,
    complex_pads.REWRITE,
    complex_constants.REWRITE,
    constants_to_tensors,
    grouped_convolutions.REWRITE,
    products.REWRITE,
    row_convolutions.REWRITE,
    volume_convolutions.REWRITE,
    rows.REWRITE,
    empty_products.REWRITE,
    tosa_ops.REWRITE,
    tosa_ops.OPEN_SIZES,
    gathers.REWRITE,
    truth_values.REWRITE,
    truth_reductions.REWRITE,
    turned_taps.REWRITE,
    reduction_tiles.REWRITE,
    check_sizes_first,
    whole_numbers.REWRITE,
)
"""In this order. Each gives the module itself, or a copy without what it is about."""


def for_iree(module: ModuleOp) -> ModuleOp:
    """Rewrite a copy of the module without the ops that IREE does not take; its weights become parameters."""
    for rewrite in (
        without_shardings,
        *REWRITES,
        variables_to_parameters,
        weights_to_parameters,
    ):  # IREE does not know of many devices
        module = rewrite(module)
    flat = with_branches(module, is_loop_on_tensors, is_growing_loop, passes_narrow_numbers)
    if flat is not module:
        widen_arguments(flat)
    return flat
