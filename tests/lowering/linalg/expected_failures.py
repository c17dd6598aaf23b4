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
    }
)
"""Tests of the text of linalg programs."""

_KERNEL = "TOSA has no convolution with a kernel of a size that only the run time knows"

_F64 = "TOSA has no 64-bit floats"
_COMPLEX = "TOSA has no complex numbers"
_WIDE = "64-bit integers are computed in 32 bits"

EXPECTED: dict[str, dict[str, str]] = {
    "stablehlo": {
        "test_factors_of_symmetric_matrices": "IREE does not compile a loop with exchanges of rows and columns",
    },
    "tosa": {
        "test_index.py::test_indices_out_of_range_stop_the_program": _WIDE,
        "test_conv.py::test_dynamic_sizes": _KERNEL,
        "test_doubles_and_complex_numbers": _F64,
        "test_fills_in_every_dtype": _F64,
        "test_hashes_of_floats": _F64,
        "test_quantisation_that_is_chosen_while_the_program_runs": _F64,
        "test_softmax_of_scalars_empty_tensors_and_other_dtypes": _F64,
        "test_powers": _WIDE,
        "test_casts[": _F64,
        "test_complex_arithmetic": _COMPLEX,
        "test_functions_of_complex_numbers": _COMPLEX,
        "test_fourier_transforms": _COMPLEX,
        "test_functions_at_lengths_known_and_unknown": _COMPLEX,
        "test_of_integers_and_of_real_numbers": _COMPLEX,
        "test_eigenvalues_of_any_matrix": _COMPLEX,
        "test_short_time_transforms": _COMPLEX,
        "test_long_transforms_are_exact": _COMPLEX,
        "test_max_pool_dtypes": _F64,
        "test_padding_of_complex_numbers": _COMPLEX,
        "test_variance_of_complex_numbers_is_real": _COMPLEX,
        "test_sums_of_integers_and_bools_are_int64": _WIDE,
        "test_a_given_dtype_is_converted_to_first": _F64,
        "test_extremes_of_integers_and_bools": _WIDE,
        "test_scans_of_scalars_integers_and_bools": _WIDE,
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
