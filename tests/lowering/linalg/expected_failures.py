"""Lowering tests that a target does not pass, with the reason. An unexpected pass fails the run."""

from __future__ import annotations

LINALG_ONLY = frozenset(
    {
        "test_strided_pointwise_convolution_reads_a_slice",
        "test_halves_accumulate_in_f32",
        "test_contractions_are_named_ops",
        "test_planes_are_pooled_by_the_named_op",
        "test_a_chain_of_views_is_no_copy",
    }
)
"""Tests of the text of linalg programs."""

_UNCHECKED = "indices are not checked at run time"
_DATA = "the size of the result depends on the data"

_ENGINE = "IREE 3.13 does not compile what this is in StableHLO with dynamic sizes"

EXPECTED: dict[str, dict[str, str]] = {
    "stablehlo": {
        "test_indices_out_of_range_stop_the_program": _UNCHECKED,
        "test_negative_indices_are_refused_where_pytorch_refuses_them": _UNCHECKED,
        "test_masks_select_as_many_elements_as_are_true": _DATA,
        "test_linear_and_addmm[stablehlo-True]": _ENGINE,
        "test_products_of_every_rank[stablehlo-True]": _ENGINE,
        "test_dynamic_sizes[stablehlo]": _ENGINE,
        "test_a_single_window_that_does_not_reach_the_end": "IREE 3.13 cuts a single window wrongly",
    },
    "tosa": {},
}
"""By target: how the name of a test starts, and why it fails."""


def expected_failure(target: str, test: str) -> str | None:
    """Why a test fails for a target; None where it should not."""
    for start, reason in EXPECTED.get(target, {}).items():
        if test.startswith(start):
            return reason
    return None
