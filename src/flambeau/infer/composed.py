"""Ops that only decompositions take: transforms, distances, searches, and the primitives of special functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import Meta, broadcast, broadcast_metas, infer_rule
from flambeau.ir import dtypes


@infer_rule(
    "prims.bessel_i0", "prims.bessel_i0e", "prims.bessel_i1", "prims.bessel_i1e", "prims.bessel_j0", "prims.bessel_j1",
    "prims.digamma", "prims.erf_inv", "prims.erfcx", "prims.lgamma", "prims.ndtri", "prims.spherical_bessel_j0",
    "aten.embedding_renorm", "prims.as_strided_scatter", "aten._fft_c2c",
)  # fmt: skip
def same(x: Meta, *_: Any) -> Meta:
    return x


@infer_rule("prims.igamma", "prims.igammac", "prims.nextafter", "prims.zeta")
def of_two(x: Meta, y: Meta) -> Meta:
    return Meta(broadcast_metas(x, y), x.dtype)


@infer_rule("prims.frexp")
def frexp(x: Meta) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.int32)


@infer_rule("aten.resize_as")
def resize_as(x: Meta, template: Meta, *_: Any) -> Meta:
    return Meta(template.shape, x.dtype)


@infer_rule("aten._fft_r2c")
def fft_r2c(x: Meta, dims: Sequence[int], normalization: int, onesided: bool) -> Meta:
    shape = list(x.shape)
    size = shape[dims[-1]]
    if onesided and size is not None:
        shape[dims[-1]] = size // 2 + 1
    return Meta(tuple(shape), dtypes.complex128 if x.dtype is dtypes.float64 else dtypes.complex64)


@infer_rule("aten._fft_c2r")
def fft_c2r(x: Meta, dims: Sequence[int], normalization: int, last: int | None) -> Meta:
    shape = list(x.shape)
    shape[dims[-1]] = last if isinstance(last, int) else None
    return Meta(tuple(shape), x.dtype.real)


@infer_rule("aten._cdist_forward")
def cdist(x: Meta, y: Meta, p: float, mode: Any = None) -> Meta:
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return Meta((*batch, x.shape[-2], y.shape[-2]), x.dtype)


@infer_rule("aten._pdist_forward")
def pdist(x: Meta, p: float = 2.0) -> Meta:
    n = x.shape[0]
    return Meta((None if n is None else n * (n - 1) // 2,), x.dtype)


@infer_rule("aten.histc")
def histc(x: Meta, bins: int = 100, *_: Any) -> Meta:
    return Meta((bins if isinstance(bins, int) else None,), x.dtype)


@infer_rule("aten.searchsorted.Scalar")
def searchsorted(sequence: Meta, value: Any, out_int32: bool = False, *_: Any) -> Meta:
    return Meta((), dtypes.int32 if out_int32 else dtypes.int64)
