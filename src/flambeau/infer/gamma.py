"""Shapes and dtypes of the incomplete gamma functions."""

from __future__ import annotations

from flambeau.infer.rules import arithmetic, float_binary, infer_rule

infer_rule("aten.igamma", "aten.igammac", "aten.special_gammainc", "aten.special_gammaincc")(float_binary)
infer_rule("prims.igamma", "prims.igammac")(arithmetic)
