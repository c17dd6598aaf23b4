"""Shapes and dtypes of special functions, and of those that look at the bits of a float."""

from __future__ import annotations

from flambeau.infer.rules import Meta, arithmetic, float_binary, float_unary, infer_rule, same
from flambeau.ir import dtypes

infer_rule("prims.digamma", "prims.erf_inv", "prims.erfcx", "prims.lgamma", "prims.ndtri")(same)
infer_rule(
    "aten.erfc", "aten.erfinv", "aten.lgamma", "aten.digamma", "aten.mvlgamma", "aten.special_ndtri",
    "aten.special_erfcx", "aten.special_log_ndtr",
)(float_unary)  # fmt: skip
infer_rule("aten.nextafter", "prims.nextafter", "prims.zeta")(arithmetic)
infer_rule("aten.special_zeta")(float_binary)


@infer_rule("aten.frexp.Tensor", "prims.frexp")
def frexp(x: Meta) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.int32)


infer_rule("aten.polygamma", "aten.special_polygamma")(lambda n, x: float_unary(x))
