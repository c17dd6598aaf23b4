"""Ops that are others by another name."""

from __future__ import annotations

from functools import cache

from flambeau.dialects.torch import registry

ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "divide": "div", "fix": "trunc", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "linalg_matmul": "matmul", "moveaxis": "movedim", "multiply": "mul",
    "not_equal": "ne", "ravel": "flatten", "row_stack": "vstack", "subtract": "sub", "true_divide": "div",
    "unsafe_chunk": "chunk", "unsafe_split": "split", "unsafe_split_with_sizes": "split_with_sizes",
    "special_expm1": "expm1", "inverse": "linalg_inv", "det": "linalg_det",
}  # fmt: skip
"""Operators by name; so are their forms in place, with an underscore."""


@cache
def alias_overloads() -> dict[str, str]:
    """Map each overload that writes nothing to that of the other name: `aten.divide.Tensor` to `aten.div.Tensor`."""
    found = {}
    for name, real in ALIASES.items():
        for schema in registry.overloads(f"aten.{name}"):
            twin = registry.schema(schema.name.replace(name, real, 1))
            if twin is not None and not schema.is_mutable:
                found[schema.name] = twin.name
    return found
