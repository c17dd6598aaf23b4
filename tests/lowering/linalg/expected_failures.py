"""Lowering tests that a target does not pass, with the reason. An unexpected pass fails the run."""

from __future__ import annotations

LINALG_ONLY = frozenset(
    {
        "test_strided_pointwise_convolution_reads_a_slice",
        "test_halves_accumulate_in_f32",
        "test_contractions_are_named_ops",
        "test_planes_are_pooled_by_the_named_op",
        "test_a_chain_of_views_is_no_copy",
        "test_plain_convolution_and_relu_is_fill_named_convolution_and_one_loop",
        "test_reductions_over_filled_tensors_count_all_elements",
    }
)
"""Tests of the text of linalg programs."""

_UNCHECKED = "indices are not checked at run time"
_DATA = "the size of the result depends on the data"

_ENGINE = "IREE 3.13 does not compile StableHLO's convolutions of a dynamic number of channels"
_WINDOW = "StableHLO has no window whose size only the run time knows"

_F64 = "TOSA has no 64-bit floats"
_COMPLEX = "TOSA has no complex numbers"
_DYNAMIC = "TOSA has no op that counts up to, or reshapes to, a size that only the run time knows"
_WIDE = "64-bit integers are computed in 32 bits"
_CYCLE = "IREE 3.13 finds a cycle where there is none"

EXPECTED: dict[str, dict[str, str]] = {
    "stablehlo": {
        "test_indices_out_of_range_stop_the_program": _UNCHECKED,
        "test_negative_indices_are_refused_where_pytorch_refuses_them": _UNCHECKED,
        "test_masks_select_as_many_elements_as_are_true": _DATA,
        "test_distinct_elements": _DATA,
        "test_conv.py::test_dynamic_sizes": _ENGINE,
        "test_pool.py::test_dynamic_sizes": _WINDOW,
    },
    "tosa": {
        "test_sorted_sequences[tosa-True]": _DYNAMIC,
        "test_gather_reads_a_corner_of_larger_tensors[tosa-True]": _DYNAMIC,
        "test_indices_out_of_range_stop_the_program": _UNCHECKED,
        "test_negative_indices_are_refused_where_pytorch_refuses_them": _UNCHECKED,
        "test_masks_select_as_many_elements_as_are_true": _DATA,
        "test_distinct_elements": _DATA,
        "test_masks_of_dynamic_size": _DATA,
        "test_doubles_and_complex_numbers": _F64,
        "test_attention[tosa-True]": _DYNAMIC,
        "test_dynamic_sizes[tosa]": _DYNAMIC,
        "test_fills_in_every_dtype": _F64,
        "test_hashes_of_floats": _F64,
        "test_arange_of_a_size[tosa-True]": _DYNAMIC,
        "test_triangles[tosa-True]": _DYNAMIC,
        "test_softmax_of_scalars_empty_tensors_and_other_dtypes": _F64,
        "test_powers": _WIDE,
        "test_layer_norm[tosa-True]": _CYCLE,
        "test_casts[": _F64,
        "test_complex_arithmetic": _COMPLEX,
        "test_embedding_bags[tosa-True": _DYNAMIC,
        "test_histograms[tosa-True]": _DYNAMIC,
        "test_fourier_transforms": _COMPLEX,
        "test_long_transforms_are_exact": _COMPLEX,
        "test_max_pool_dtypes": _F64,
        "test_padding_of_complex_numbers": _COMPLEX,
        "test_variance_of_complex_numbers_is_real": _COMPLEX,
        "test_vector_norms_of_every_order[tosa-True]": _CYCLE,
        "test_sums_of_integers_and_bools_are_int64": _WIDE,
        "test_a_given_dtype_is_converted_to_first": _F64,
        "test_scans_along_any_dim[tosa-True]": _DYNAMIC,
        "test_dynamic_scans_of_tensors_that_are_computed_together": _DYNAMIC,
        "test_extremes_and_their_positions[tosa-True]": _DYNAMIC,
        "test_extremes_of_integers_and_bools": _WIDE,
        "test_scatter_writes_a_corner_and_the_last_write_wins[tosa-True]": _DYNAMIC,
        "test_scatter_add_sums_all_updates_of_a_place[tosa-True]": _DYNAMIC,
        "test_scans_of_scalars_integers_and_bools": _WIDE,
        "test_rows_are_scattered_with_an_expanded_index[tosa-True]": _DYNAMIC,
        "test_index_put_with_every_kind_of_index_list[tosa-True]": _DYNAMIC,
        "test_index_put_accumulates[tosa-True]": _DYNAMIC,
        "test_masks_choose_where_a_value_goes": _DYNAMIC,
        "test_masked_scatter_takes_the_source_in_order[tosa-True]": _DYNAMIC,
        "test_whole_slices_are_added_copied_and_filled[tosa-True]": _DYNAMIC,
        "test_a_dynamic_program_runs_with_other_sizes_and_with_nothing": _DYNAMIC,
        "test_dynamic[tosa]": _DYNAMIC,
        "test_views_match_eager[tosa-True]": _DYNAMIC,
    },
}
"""By target: how the name of a test starts, with its file or without, and why it fails."""


def expected_failure(target: str, test: str) -> str | None:
    """Why a test fails for a target; None where it should not."""
    file, _, name = test.rpartition("/")[2].partition("::")
    for start, reason in EXPECTED.get(target, {}).items():
        if name.startswith(start) or f"{file}::{name}".startswith(start):
            return reason
    return None
