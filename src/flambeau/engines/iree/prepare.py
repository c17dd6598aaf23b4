"""What a program needs before IREE compiles it."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.iree.checks import checks_to_assertions, has_checks
from flambeau.engines.iree.complex_constants import has_wide_constants, wide_constants_to_pairs
from flambeau.engines.iree.complex_pads import complex_pads_to_pairs, has_complex_pads
from flambeau.engines.iree.constants import constants_to_tensors, has_reduced_constants
from flambeau.engines.iree.empty_products import empty_products_to_zeros, has_empty_products
from flambeau.engines.iree.gathers import has_gathers_from_slices, set_slices_apart
from flambeau.engines.iree.grouped_convolutions import has_dilated_groups, split_dilated_groups
from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.guards import check_sizes_first, has_late_guards
from flambeau.engines.iree.loops import is_loop_on_tensors, with_branches
from flambeau.engines.iree.products import has_summed_products, negate_summed_products
from flambeau.engines.iree.registers import passes_narrow_numbers, widen_arguments
from flambeau.engines.iree.rows import has_open_rows, rows_to_columns
from flambeau.engines.iree.slice_writes import has_slice_writes, slice_writes_to_choices
from flambeau.engines.iree.stablehlo_ops import (
    has_dynamic_ops,
    has_scatters,
    protect_scatters,
    replace_dynamic_ops,
)
from flambeau.engines.iree.tosa_ops import has_open_sizes, open_sizes_to_loops
from flambeau.engines.iree.truth_values import fill_truth_values, has_truth_values
from flambeau.engines.iree.whole_numbers import has_whole_numbers, whole_numbers_by_bits

_REWRITES = (
    (has_checks, checks_to_assertions),
    (has_dynamic_ops, replace_dynamic_ops),
    (has_slice_writes, slice_writes_to_choices),
    (has_scatters, protect_scatters),
    (has_complex_pads, complex_pads_to_pairs),
    (has_wide_constants, wide_constants_to_pairs),
    (has_reduced_constants, constants_to_tensors),
    (has_dilated_groups, split_dilated_groups),
    (has_summed_products, negate_summed_products),
    (has_open_rows, rows_to_columns),
    (has_empty_products, empty_products_to_zeros),
    (has_open_sizes, open_sizes_to_loops),
    (has_gathers_from_slices, set_slices_apart),
    (has_truth_values, fill_truth_values),
    (has_late_guards, check_sizes_first),
    (has_whole_numbers, whole_numbers_by_bits),
)
"""Whether a module needs a rewrite, and the rewrite, in their order."""


def for_iree(module: ModuleOp) -> ModuleOp:
    """The module itself, or a copy without the ops that IREE does not take."""
    for is_needed, rewrite in _REWRITES:
        if is_needed(module):
            module = rewrite(module.clone())
    flat = with_branches(module, is_loop_on_tensors, is_growing_loop, passes_narrow_numbers)
    if flat is not module:
        widen_arguments(flat)
    return flat
