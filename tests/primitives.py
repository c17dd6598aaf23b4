"""A call of each of PyTorch's primitive ops, `prims.*`."""

from __future__ import annotations

from typing import Any

import torch
import torch._prims  # registers the namespace

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.prims import twins

X = torch.linspace(0.1, 0.9, 24).reshape(2, 3, 4)
INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "gcd", "shift_left", "shift_right_arithmetic")
Z = torch.complex(X, X.flip(2))
CPU = torch.device("cpu")
MADE = {"dtype": torch.float64, "device": CPU, "requires_grad": False}
PRIMITIVES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **{name: ((X, [0, 2]), {}) for name in ("amax", "amin", "prod", "rev", "sum")},
    "squeeze": ((X[:, :1], [1]), {}),
    "var": ((X, [1], 1.0), {}),
    **{name: ((Z,), {}) for name in ("conj", "conj_physical", "imag", "real")},
    "as_strided_scatter": ((X, X[0], [3, 4], [4, 1], 0), {}),
    "broadcast_in_dim": ((X[0], [5, 3, 4], [1, 2]), {}),
    "cat": (([X, X], 1), {}),
    "collapse_view": ((X, 0, 1), {}),
    "copy_strided": ((X, [12, 4, 1]), {}),
    "device_put": ((X, CPU), {}),
    "empty": (([2, 3],), MADE),
    "empty_permuted": (([2, 3], [1, 0]), MADE),
    "empty_strided": (([2, 3], [1, 2]), MADE),
    "fft_c2c": ((Z,), {"dim": [1], "forward": True}),
    "fft_c2r": ((Z,), {"dim": [2], "last_dim_size": 7}),
    "fft_r2c": ((X,), {"dim": [1, 2], "onesided": True}),
    "fill": ((X, 2.0), {}),
    "full": (([2, 3], 1), MADE),
    "full_like": ((X, 1), MADE),
    "reshape": ((X, [4, 6]), {}),
    "scalar_tensor": ((1.5,), {"dtype": torch.float64, "device": CPU}),
    "transpose": ((X, [2, 0, 1]), {}),
    "view_of_dtype": ((X, torch.int32), {}),
    "where": ((X > 0, X, X), {}),
}
"""Calls of PyTorch's primitives whose arguments are not one or two tensors of floats."""


def primitives() -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Make a call for each primitive that is an ATen op by another name."""
    made = []
    for name in twins():
        base = name.removeprefix("prims.")
        schema = registry.schema(name)
        assert schema is not None
        x = X.long() if base in INTEGERS else X
        made.append((name, *PRIMITIVES.get(base, ((x,) * sum(a.type.is_tensor for a in schema.arguments), {}))))
    return [
        *made,
        ("prims.cbrt", (X,), {}),
        ("prims.pow", (X, X), {}),
        *((f"prims.{n}", *PRIMITIVES[n]) for n in ("broadcast_in_dim", "copy_strided")),
    ]
