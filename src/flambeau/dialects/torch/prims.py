"""PyTorch's primitive ops, `prims.*`, and the ATen ops that they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import REQUIRED, Schema

Arguments = Callable[..., tuple[Any, ...]]
"""Maps the arguments of a primitive to those of the ATen op; what is left out has its default."""


def _reduction(x: Any, dims: Any, dtype: Any) -> tuple[Any, ...]:
    return x, dims, False, dtype


_OTHERWISE: dict[str, tuple[str, Arguments]] = {
    "add": ("aten.add.Tensor", lambda x, y: (x, y)),
    "amax": ("aten.amax", lambda x, dims, dtype: (x, dims or [])),
    "amin": ("aten.amin", lambda x, dims, dtype: (x, dims or [])),
    "clone": ("aten.clone", lambda x, format_: (x, format_)),
    "collapse_view": ("aten.flatten.using_ints", lambda x, start, end: (x, start, end)),
    "conj": ("aten.conj_physical", lambda x: (x,)),
    "device_put": ("aten.clone", lambda x, *_: (x,)),
    "fft_c2c": ("aten._fft_c2c", lambda x, dim, forward: (x, dim, 0, forward)),
    "fft_c2r": ("aten._fft_c2r", lambda x, dim, size: (x, dim, 0, size)),
    "fft_r2c": ("aten._fft_r2c", lambda x, dim, onesided: (x, dim, 0, onesided)),
    "fill": ("aten.fill.Scalar", lambda x, value: (x, value)),
    "full": ("aten.full", lambda shape, value, dtype, *_: (shape, value, dtype)),
    "full_like": ("aten.full_like", lambda x, value, dtype, *_: (x, value, dtype)),
    "empty": ("aten.empty.memory_format", lambda shape, dtype, *_: (shape, dtype)),
    "empty_permuted": ("aten.empty_permuted", lambda shape, layout, dtype, *_: (shape, layout, dtype)),
    "empty_strided": ("aten.empty_strided", lambda shape, strides, dtype, *_: (shape, strides, dtype)),
    "reshape": ("aten.reshape", lambda x, shape: (x, shape)),
    "rev": ("aten.flip", lambda x, dims: (x, dims)),
    "scalar_tensor": ("aten.scalar_tensor", lambda value, dtype, *_: (value, dtype)),
    "shift_left": ("aten.bitwise_left_shift.Tensor", lambda x, y: (x, y)),
    "shift_right_arithmetic": ("aten.bitwise_right_shift.Tensor", lambda x, y: (x, y)),
    "squeeze": ("aten.squeeze.dims", lambda x, dims: (x, dims)),
    "sub": ("aten.sub.Tensor", lambda x, y: (x, y)),
    "sum": ("aten.sum.dim_IntList", _reduction),
    "transpose": ("aten.permute", lambda x, permutation: (x, permutation)),
    "var": ("aten.var.correction", lambda x, dims, correction, dtype: (x, dims, correction)),
    "view_of": ("aten.clone", lambda x: (x,)),
    "view_of_dtype": ("aten.view.dtype", lambda x, dtype: (x, dtype)),
    "where": ("aten.where.self", lambda condition, x, y: (condition, x, y)),
}
"""Primitives whose arguments are not those of an ATen op of the same name."""


@cache
def twins() -> dict[str, tuple[Schema, Arguments]]:
    """Map primitives to the ATen ops that they are, and to functions from their arguments to those of the ATen op."""
    found: dict[str, tuple[Schema, Arguments]] = {}
    for name in registry.snapshot().declarations:
        namespace, _, base = name.partition(".")
        schema = registry.schema(name) if namespace == "prims" else None
        if schema is None or schema.is_mutable:
            continue
        if base in _OTHERWISE:
            twin, arguments = _OTHERWISE[base]
            found[name] = _known(twin), arguments
            continue
        names = [a.name for a in schema.arguments]
        for candidate in (f"aten.{base}.Tensor", f"aten.{base}.Tensor_Tensor", f"aten.{base}"):
            other = registry.schema(candidate)
            if other is not None and [a.name for a in other.arguments][: len(names)] == names:
                found[name] = other, lambda *given: given
                break
    return found


def arguments_of(twin: Schema, arguments: Arguments, given: tuple[Any, ...]) -> list[Any]:
    """List the arguments of the ATen op for those of a primitive."""
    some = arguments(*given)
    rest = [a.default for a in twin.arguments[len(some) :]]
    assert REQUIRED not in rest, f"{twin.name} needs more than {len(some)} arguments"
    return [*some, *rest]


def _known(name: str) -> Schema:
    schema = registry.schema(name)
    assert schema is not None, name
    return schema
