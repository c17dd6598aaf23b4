"""Shapes of matrix functions."""

from __future__ import annotations

from flambeau.infer.rules import Dim, Meta, arithmetic, infer_rule, same
from flambeau.ir import dtypes


@infer_rule("aten.linalg_det")
def det(x: Meta) -> Meta:
    return Meta(x.shape[:-2], x.dtype)


@infer_rule("aten._linalg_det")
def det_with_factors(x: Meta) -> tuple[Meta, Meta, Meta]:
    return det(x), x, Meta(x.shape[:-1], dtypes.int32)


@infer_rule("aten.linalg_slogdet")
def slogdet(x: Meta) -> tuple[Meta, Meta]:
    return det(x), Meta(x.shape[:-2], x.dtype.real)


@infer_rule("aten.linalg_qr")
def qr(x: Meta, mode: str) -> tuple[Meta, Meta]:
    rows, columns = x.shape[-2:]
    least: Dim = None if rows is None or columns is None else min(rows, columns)
    inner = rows if mode == "complete" else least
    q = Meta((0,) if mode == "r" else (*x.shape[:-1], inner), x.dtype)
    return q, Meta((*x.shape[:-2], inner, columns), x.dtype)


infer_rule("aten.linalg_inv")(same)
infer_rule("aten.linalg_cross")(lambda x, y, *_: arithmetic(x, y))
