"""Shapes and dtypes of Bessel and Airy functions."""

from __future__ import annotations

from flambeau.infer.rules import float_unary, infer_rule, same

infer_rule(
    "prims.bessel_i0", "prims.bessel_i0e", "prims.bessel_i1", "prims.bessel_i1e", "prims.bessel_j0", "prims.bessel_j1",
    "prims.spherical_bessel_j0",
)(same)  # fmt: skip
infer_rule(
    "aten.i0", "aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.special_airy_ai",
    "aten.special_spherical_bessel_j0",
    *(f"aten.special_{kind}{order}" for order in (0, 1) for kind in (
        "bessel_j", "bessel_y", "modified_bessel_i", "modified_bessel_k", "scaled_modified_bessel_k",
    )),
)(float_unary)  # fmt: skip
