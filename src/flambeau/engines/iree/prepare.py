"""What a program needs before IREE compiles it."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.iree.complex_constants import has_wide_constants, wide_constants_to_pairs
from flambeau.engines.iree.constants import constants_to_tensors, has_reduced_constants
from flambeau.engines.iree.grouped_convolutions import has_dilated_groups, split_dilated_groups
from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.guards import check_sizes_first, has_late_guards
from flambeau.engines.iree.loops import is_loop_on_tensors, with_branches
from flambeau.engines.iree.products import has_summed_products, negate_summed_products
from flambeau.engines.iree.registers import passes_narrow_numbers, widen_arguments
from flambeau.engines.iree.stablehlo_ops import (
    has_dynamic_ops,
    has_scatters,
    protect_scatters,
    replace_dynamic_ops,
)
from flambeau.engines.iree.tosa_ops import has_open_sizes, open_sizes_to_loops
from flambeau.engines.iree.truth_values import fill_truth_values, has_truth_values


def for_iree(module: ModuleOp) -> ModuleOp:
    """The module itself, or a copy without the ops that IREE does not take."""
    if has_dynamic_ops(module):
        module = replace_dynamic_ops(module.clone())
    if has_scatters(module):
        module = protect_scatters(module.clone())
    if has_wide_constants(module):
        module = wide_constants_to_pairs(module.clone())
    if has_reduced_constants(module):
        module = constants_to_tensors(module.clone())
    if has_dilated_groups(module):
        module = split_dilated_groups(module.clone())
    if has_summed_products(module):
        module = negate_summed_products(module.clone())
    if has_open_sizes(module):
        module = open_sizes_to_loops(module.clone())
    if has_truth_values(module):
        module = fill_truth_values(module.clone())
    if has_late_guards(module):
        module = check_sizes_first(module.clone())
    flat = with_branches(module, is_loop_on_tensors, is_growing_loop, passes_narrow_numbers)
    if flat is not module:
        widen_arguments(flat)
    return flat
