"""PyTorch's op database as cases: an entry and a dtype are a case, PyTorch's sample inputs its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from flambeau.dialects.torch import registry
from flambeau.testing.cases import Call, Case, Sample, Suite

FIRST = {"float32": 3}
"""How many of the first samples are tried, with the largest of the others; one where nothing is said."""
LOOK_AT = 60
"""Among how many samples the largest is looked for."""

UNFORESEEABLE = frozenset(
    {
        "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
        "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
        "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal", "pca_lowrank", "rand_like", "randint",
        "randint_like", "randn", "randn_like", "svd_lowrank", "uniform",
    }
)  # fmt: skip
"""Entries whose results are random or uninitialised: only their shapes and dtypes are compared."""

RANDOM_CALLS: dict[str, Callable[[Any], bool]] = {
    "nn.functional.multi_head_attention_forward": lambda sample: sample.kwargs["training"],
    "nn.functional.scaled_dot_product_attention": lambda sample: sample.kwargs.get("dropout_p", 0.0) > 0,
}
"""Entries some of whose samples draw random numbers, and which do."""

CORE_DTYPES = ("float32", "int64", "bool")


def eigen_promise(values: torch.Tensor, vectors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give what eigenvectors of a Hermitian matrix promise: V Λ Vᴴ is the matrix, Vᴴ V the identity."""
    return values, vectors * values.unsqueeze(-2) @ vectors.mH, vectors.mH @ vectors


def singular_promise(u: torch.Tensor, values: torch.Tensor, vh: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give what singular vectors promise: U S Vᴴ is the matrix, Uᴴ U and Vᴴ V the identity."""
    count = values.shape[-1]
    product = u[..., :count] * values.unsqueeze(-2) @ vh[..., :count, :]
    return values, product, u.mH @ u, vh @ vh.mH


def spectrum_promise(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give what does not depend on the order of eigenvalues: their largest size, and sums of their powers."""
    if values.numel() == 0:
        return (values,)
    largest = values.abs().amax(-1, keepdim=True)
    unit = power = values / largest.clamp(1e-30)
    sums = []
    for _ in range(values.shape[-1]):
        sums.append(power.sum(-1))
        power = power * unit
    return largest, torch.stack(sums)


def eigenvectors_promise(values: torch.Tensor, vectors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give what eigenvectors promise: V Λ V⁻¹ is the matrix, and each has the length 1."""
    product = torch.linalg.solve(vectors.mT, (vectors * values.unsqueeze(-2)).mT).mT
    return *spectrum_promise(values), product, vectors.abs().square().sum(-2)


def selection_promise(
    results: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, dim: int = -1
) -> tuple[torch.Tensor, ...]:
    """Give what a selection along a dim promises: its values, and that they are those at its indices.

    Which of equal elements an index names is open.
    """
    values, indices = results
    return values, x.gather(dim, indices) if x.dim() else indices


def order_promise(indices: torch.Tensor, x: torch.Tensor, dim: int = -1) -> tuple[torch.Tensor, ...]:
    """Give what an order of the elements along a dim promises: each is named once, and they come sorted."""
    return (indices.sort(dim)[0], x.gather(dim, indices)) if x.dim() else (indices,)


def _sort(results: Any, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return results if stable else (results[0], *order_promise(results[1], x, dim))


def _argsort(result: Any, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return result if stable else order_promise(result, x, dim)


def _kthvalue(results: Any, x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not keepdim and x.dim():
        return results[0], selection_promise(tuple(r.unsqueeze(dim) for r in results), x, dim)[1]
    return selection_promise(results, x, dim)


def _mode(results: Any, x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    return _kthvalue(results, x, 0, dim, keepdim)


def _topk(results: Any, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return selection_promise(results, x, dim)


def _of_results(promise: Callable[..., Any]) -> Callable[..., Any]:
    """Make a promise of an op from one that needs its results only."""
    return lambda results, *_, **__: promise(*results) if isinstance(results, tuple) else promise(results)


PROMISES: dict[str, Callable[..., Any]] = {
    "argsort": _argsort,
    "kthvalue": _kthvalue,
    "linalg.eig": _of_results(eigenvectors_promise),
    "linalg.eigh": _of_results(eigen_promise),
    "linalg.eigvals": _of_results(spectrum_promise),
    "linalg.svd": _of_results(singular_promise),
    "mode": _mode,
    "sort": _sort,
    "svd": _of_results(lambda u, values, v: singular_promise(u, values, v.mH)),
    "topk": _topk,
}
"""Entries whose results are defined up to an order, a sign or a rotation, and what of them is compared: what PyTorch
promises. Each takes the op's results and its arguments."""


class Promised:
    """An op of the database followed by what its results promise."""

    def __init__(self, op: Any, promise: Callable[..., Any]) -> None:
        self.op, self.promise = op, promise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.promise(self.op(*args, **kwargs), *args, **kwargs)


class SampleModule(torch.nn.Module):
    """A call of an op: its tensors are arguments, all else is fixed."""

    def __init__(self, op: Any, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.op = op
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.is_tensor = [isinstance(x, torch.Tensor) for x in leaves]
        self.spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        passed = iter(tensors)
        leaves = [next(passed) if tensor else x for x, tensor in zip(self.leaves, self.is_tensor, strict=True)]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.op(*args, **kwargs)


def sample_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sample:
    """Make a sample that calls `op`; `args` and `kwargs` may hold tensors anywhere."""
    leaves, spec = tree_flatten((args, kwargs))
    tensors = tuple(x.detach() for x in leaves if isinstance(x, torch.Tensor))
    label = ", ".join([*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in kwargs.items())])
    return Sample(SampleModule(op, leaves, spec), [Call(tensors)], label=f"({label})"[:300])


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"Tensor{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)


def entries() -> list[Any]:
    """List PyTorch's database of ops, its OpInfos."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each entry and each of these dtypes that the entry declares."""
    return suite_of("ops", entries(), dtypes, lambda sample: sample)


def suite_of(name: str, infos: Iterable[Any], dtypes: Iterable[str], change: Any) -> Suite:
    """Make a suite of entries of the database; `change` is applied to each sample."""
    suite = Suite(name)
    core = {op.split(".")[1] for op in registry.snapshot().tags["core"]}
    for info in infos:
        full = info.name + (f"@{info.variant_test_name}" if info.variant_test_name else "")
        for dtype in dtypes:
            type_ = getattr(torch, dtype)
            if type_ not in info.supported_dtypes("cpu"):
                continue
            tags = {"core"} if dtype in CORE_DTYPES and _aten_name(info) in core else set[str]()
            suite.add(
                Case(
                    name,
                    full,
                    partial(_samples, info, type_, change),
                    dtype,
                    family_of(info),
                    frozenset(tags),
                    compare="types" if info.name in UNFORESEEABLE else "values",
                )
            )
    return suite


def _samples(info: Any, dtype: torch.dtype, change: Any) -> list[Sample]:
    op = Promised(info.op, PROMISES[info.name]) if info.name in PROMISES else info.op
    is_random = RANDOM_CALLS.get(info.name, lambda sample: False)
    # Sums of large numbers with either sign: what is left of them is little but rounding.
    cancels = info.name.startswith(("nn.functional.conv", "matrix_exp"))
    found = [
        change(replace(sample_of(op, (s.input, *s.args), s.kwargs), random=bool(is_random(s)), rounding=cancels))
        for s in chosen(info, dtype)
    ]
    return [s for s in found if s is not None]


def chosen(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    """Yield the first samples of an entry, and the largest of those that follow."""
    samples = islice(info.sample_inputs("cpu", dtype, requires_grad=False), LOOK_AT)
    first = list(islice(samples, FIRST.get(str(dtype).removeprefix("torch."), 1)))
    yield from first
    rest = list(samples)
    if rest:
        yield max(rest, key=_size)


def _size(sample: Any) -> int:
    leaves, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
    return sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))


_FAMILIES = {
    "UnaryUfuncInfo": "unary",
    "BinaryUfuncInfo": "binary",
    "ReductionOpInfo": "reduction",
    "SpectralFuncInfo": "fft",
}


def family_of(info: Any) -> str:
    """Return the family that an entry is reported under."""
    prefix = info.name.rpartition(".")[0]
    if prefix in ("nn.functional", "linalg", "fft", "special", "signal.windows", "masked"):
        return "nn" if prefix == "nn.functional" else prefix.partition(".")[0]
    return _FAMILIES.get(type(info).__name__) or _family_of_tensor_op(info.name)


_SHAPE_WORDS = (
    "as_strided", "atleast", "broadcast", "chunk", "contiguous", "diag", "expand", "flatten", "flip", "movedim",
    "narrow", "permute", "reshape", "resize", "roll", "rot90", "select", "slice", "split", "squeeze", "stack", "swap",
    "t_copy", "tile", "transpose", "tri", "unbind", "unflatten", "unfold", "view", "cat", "repeat", "block_diag",
)  # fmt: skip
_INDEX_WORDS = ("gather", "index", "masked_", "put", "scatter", "take", "where", "searchsorted", "nonzero", "argwhere")
_MATMUL_WORDS = ("mm", "mv", "dot", "matmul", "einsum", "inner", "outer", "ger", "cholesky", "lu", "qr", "svd", "kron")
_FAMILY_WORDS = {
    "index": _INDEX_WORDS,
    "sort": ("sort", "topk", "kthvalue", "unique", "mode", "median", "msort"),
    "scan": ("cum", "logcumsumexp", "trapezoid", "diff"),
    "matmul": _MATMUL_WORDS,
    "shape": _SHAPE_WORDS,
    "creation": ("full", "ones", "zeros", "empty", "arange", "linspace", "logspace", "eye", "rand", "new_"),
}


def _family_of_tensor_op(name: str) -> str:
    for family, words in _FAMILY_WORDS.items():
        if any(word in name for word in words):
            return family
    return "other"


def _aten_name(info: Any) -> str:
    name = str(info.aten_name or info.name)
    return name.removeprefix("nn.functional.").replace("linalg.", "linalg_").replace("special.", "special_")
