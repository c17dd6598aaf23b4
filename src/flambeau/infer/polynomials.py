"""Shapes and dtypes of orthogonal polynomials."""

from __future__ import annotations

from flambeau.infer.rules import float_binary, infer_rule

infer_rule(
    *(f"aten.special_{polynomial}{overload}" for overload in ("", ".n_scalar", ".x_scalar") for polynomial in (
        *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    )),
)(float_binary)  # fmt: skip
