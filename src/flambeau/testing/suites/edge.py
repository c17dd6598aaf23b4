"""The values that implementations get wrong, for every pointwise, reduction and index op.

NaN, infinities, signed zeros, ties, halves, empty dims, integer extremes, negative indices, sums that overflow f16.
The greatest and the smallest floats, where rounding decides what overflows, are cases of their own (`@extremes`). What
PyTorch itself refuses (an integer division by zero, a maximum over nothing) is left out of a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from flambeau.testing.cases import Case, Sample, Suite
from flambeau.testing.suites.ops import UNFORESEEABLE, entries, family_of, sample_of

nan, inf = float("nan"), float("inf")

FLOATS = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.0, 0.1, 7.75, 88.0, -88.0)
INTEGERS = (0, 1, -1, 2, -2, 3, -3, 7, -7, 100)
COMPLEX = (0, 1, -1, 1j, -1j, 1 + 1j, -1.5 + 0.5j, 0.25 - 2j, 3 + 4j)


def extremes_of(dtype: torch.dtype) -> torch.Tensor:
    """List the greatest, the least and the smallest normal floats of a dtype, and its epsilon."""
    info = torch.finfo(dtype)
    return torch.tensor([info.max, info.min, info.tiny, info.eps], dtype=dtype)


def values(dtype: torch.dtype) -> torch.Tensor:
    """List the special values of a dtype."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        return torch.tensor(COMPLEX, dtype=dtype)
    if dtype.is_floating_point:
        return torch.cat([torch.tensor(FLOATS, dtype=dtype), extremes_of(dtype)])
    extremes = torch.iinfo(dtype)
    small = [v for v in INTEGERS if extremes.min <= v <= extremes.max]
    return torch.tensor([*small, extremes.min, extremes.min + 1, extremes.max - 1, extremes.max], dtype=dtype)


def tame(dtype: torch.dtype) -> torch.Tensor:
    """List values that are safe as divisors and exponents."""
    return torch.tensor([True, True] if dtype is torch.bool else [1, 2, 3, 5], dtype=dtype)


ORDERING = frozenset(
    {
        "amax", "amin", "aminmax", "clamp", "clamp_max", "clamp_min", "fmax", "fmin", "masked.amax", "masked.amin",
        "max", "maximum", "min", "minimum", "nan_clamp", "nan_clamp_tensor", "nan_hardtanh", "nan_max_pool",
        "nan_max_pool_ceil", "nan_relu", "nn.functional.hardtanh", "nn.functional.relu", "nn.functional.relu6",
        "ties_cummax_values", "ties_max_dim", "ties_min_dim", "ties_sort_descending", "ties_sort_stable",
        "ties_topk_values",
    }
)  # fmt: skip
"""Ops that choose between equal numbers. Which of two zeros they give depends on PyTorch's vector code: nobody says."""


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each op and dtype."""
    suite = Suite("edge")
    wanted = {name: getattr(torch, name) for name in dtypes}
    for info in entries():
        makers = MAKERS.get(type(info).__name__)
        if makers is None or info.variant_test_name or info.name in UNFORESEEABLE or "jiterator" in info.name:
            continue
        for name, dtype in wanted.items():
            if dtype not in info.supported_dtypes("cpu"):
                continue
            titles = (info.name, f"{info.name}@extremes") if dtype.is_floating_point else (info.name,)
            for title, maker in zip(titles, makers, strict=False):
                samples = partial(_accepted, maker, info, dtype)
                suite.add(Case("edge", title, samples, name, family_of(info), compare=_how(info.name)))
    for title, (build, kinds) in TABLE.items():
        for name, dtype in wanted.items():
            if _kind(dtype) in kinds:
                samples = partial(_accepted, _built, build, dtype)
                suite.add(Case("edge", title, samples, name, title.partition("_")[0], compare=_how(title)))
    return suite


def _how(name: str) -> str:
    return "values" if name in ORDERING else "signs"


def _built(build: Callable[[torch.dtype], Iterator[Sample]], dtype: torch.dtype) -> Iterator[Sample]:
    return build(dtype)


def _kind(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "bool"
    return "complex" if dtype.is_complex else "float" if dtype.is_floating_point else "int"


def _accepted(maker: Callable[[Any, torch.dtype], Iterable[Sample]], info: Any, dtype: torch.dtype) -> list[Sample]:
    """Keep the samples that PyTorch does not refuse."""
    kept = []
    for sample in maker(info, dtype):
        try:
            sample.module(*(t.clone() for t in sample.calls[0].args))
        except Exception:  # PyTorch's refusal is the reason why it is no sample
            continue
        kept.append(sample)
    return kept


def pointwise(op: Any, args: tuple[Any, ...], **kwargs: Any) -> Sample:
    """Make a sample of an op that does the same to each element."""
    return replace(sample_of(op, args, kwargs), pointwise=True)


def _ordinary(dtype: torch.dtype) -> torch.Tensor:
    """List the special values but for the extremes of floats, which are cases of their own."""
    return torch.tensor(FLOATS, dtype=dtype) if dtype.is_floating_point else values(dtype)


def _kwargs_of(info: Any, dtype: torch.dtype) -> dict[str, Any]:
    _, kwargs = info.sample_kwargs("cpu", dtype, values(dtype))
    return kwargs if isinstance(kwargs, dict) else {}


def _unary(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    special, kwargs = _ordinary(dtype), _kwargs_of(info, dtype)
    yield pointwise(info.op, (special,), **kwargs)
    yield pointwise(info.op, (special[:0],), **kwargs)
    yield pointwise(info.op, (special[-1],), **kwargs)


def _unary_extremes(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield pointwise(info.op, (extremes_of(dtype),), **_kwargs_of(info, dtype))


def _left(name: str, numbers: torch.Tensor) -> torch.Tensor:
    """Drop the numbers for which PyTorch itself has no answer."""
    if "polynomial" not in name or not numbers.is_floating_point():
        return numbers
    # Of NaN it gives what lies in memory; of this one its f32 and its f64 have but three digits in common.
    return numbers[~numbers.isnan() & (numbers != torch.finfo(numbers.dtype).eps)]


def _right(name: str, numbers: torch.Tensor) -> torch.Tensor:
    """Drop the numbers for which PyTorch loops two thousand million times for each element."""
    is_long = ("laguerre" in name or "legendre" in name) and _kind(numbers.dtype) == "int"
    return numbers[numbers.abs() < 1000] if is_long else numbers


def _binary(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    left, right = _left(info.name, _ordinary(dtype)), _right(info.name, _ordinary(dtype))
    if _kind(dtype) == "int":
        # The least integer divided by -1 is no exception in C++ but the end of the process.
        least = torch.iinfo(dtype).min
        yield pointwise(info.op, (left[left != least][:, None], right[right != least]))
        yield pointwise(info.op, (left[(left != 0) & (left != -1)][:, None], right[(right != 0) & (right != -1)]))
    else:
        yield pointwise(info.op, (left[:, None], right))
    yield pointwise(info.op, (left[:, None], tame(dtype)))
    yield pointwise(info.op, (left[:0, None], tame(dtype)))
    yield pointwise(info.op, (left[0], tame(dtype)[0]))
    yield pointwise(info.op, (left, tame(dtype)[:1]))


def _binary_extremes(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    extremes, special = extremes_of(dtype), values(dtype)
    yield pointwise(info.op, (_left(info.name, extremes)[:, None], special))
    yield pointwise(info.op, (_left(info.name, special)[:, None], extremes))


def _reduction(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    table = _ordinary_rows(dtype)
    for shape_of_call in ({"dim": 1}, {"dim": 0, "keepdim": True}, {"dim": -1}, {}):
        yield sample_of(info.op, (table,), shape_of_call)
    yield sample_of(info.op, (table[:0],), {"dim": 1})
    yield sample_of(info.op, (table[:, :0],), {"dim": 1})
    yield sample_of(info.op, (table[0, 0],), {})
    if dtype is torch.float16:
        yield sample_of(info.op, (torch.full((3, 4000), 20.0, dtype=dtype),), {"dim": 1})


def _reduction_extremes(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield sample_of(info.op, (_special_rows(dtype)[-1:],), {"dim": 1})


MAKERS: dict[str, tuple[Callable[[Any, torch.dtype], Iterator[Sample]], ...]] = {
    "UnaryUfuncInfo": (_unary, _unary_extremes),
    "BinaryUfuncInfo": (_binary, _binary_extremes),
    "ReductionOpInfo": (_reduction, _reduction_extremes),
}
"""By the kind of an entry of PyTorch's database: what makes its samples, and those of the extremes of floats."""


def _special_rows(dtype: torch.dtype) -> torch.Tensor:
    """Make rows with a NaN in each place, with both infinities, with ties, with signed zeros, with extremes."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        rows = [
            [nan, 1.0, 2.0, 3.0], [1.0, nan, 2.0, 3.0], [3.0, 2.0, 1.0, nan], [inf, 1.0, -inf, 2.0],
            [inf, inf, 1.0, 2.0],
            [2.0, 2.0, 2.0, 1.0], [0.0, -0.0, 0.0, -0.0], [-0.0, -0.0, -0.0, -0.0], [info.max, 1.0, info.min, 0.5],
        ]  # fmt: skip
        return torch.tensor(rows, dtype=dtype)
    if dtype is torch.bool:
        return torch.tensor([[True, True, True], [False, True, False], [False, False, False]])
    if dtype.is_complex:
        return values(dtype).reshape(3, 3)
    extremes = torch.iinfo(dtype)
    return torch.tensor(
        [[3, 3, 1, 2], [extremes.max, 1, 0, 2], [extremes.min, extremes.max, 0, 1], [0, 0, 0, 0]], dtype=dtype
    )


def _ordinary_rows(dtype: torch.dtype) -> torch.Tensor:
    """Make these rows without the extremes of floats, whose sum depends on the order of summation."""
    rows = _special_rows(dtype)
    return rows[:-1] if dtype.is_floating_point else rows


def _of(function: Callable[..., Any], *rows: Sequence[Any]) -> Callable[[torch.dtype], Iterator[Sample]]:
    """Make samples of a function; each row is the arguments, with `values` and the like for tensors of the dtype."""

    def build(dtype: torch.dtype) -> Iterator[Sample]:
        for row in rows:
            yield sample_of(function, tuple(a(dtype) if callable(a) else a for a in row), {})

    return build


def _each(function: Callable[..., Any]) -> Callable[[torch.dtype], Iterator[Sample]]:
    return lambda dtype: iter([pointwise(function, (values(dtype),))])


def _numbers(*shape: int) -> Callable[[torch.dtype], torch.Tensor]:
    def make_numbers(dtype: torch.dtype) -> torch.Tensor:
        count = 1
        for n in shape:
            count *= n
        return (torch.arange(count) * 7 % 11 - 3).to(dtype).reshape(shape)

    return make_numbers


def _index(*numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


F = torch.nn.functional
ALL, NUMBERS, FLOAT = ("float", "int", "bool", "complex"), ("float", "int"), ("float",)
_ties = _special_rows

TABLE: dict[str, tuple[Callable[[torch.dtype], Iterator[Sample]], tuple[str, ...]]] = {
    "index_negative": (_of(lambda x, i: x[i], (_numbers(5, 3), _index(-1, -5, 4, 0))), ALL),
    "index_two_tensors": (_of(lambda x, i, j: x[i, j], (_numbers(5, 3), _index(-1, 0), _index(-3, 2))), ALL),
    "index_bool_row": (_of(lambda x: x[1:-1, ..., -1], (_numbers(5, 3),)), ALL),
    "index_empty": (_of(lambda x, i: x[i], (_numbers(5, 3), _index())), ALL),
    "index_select": (
        _of(lambda x, i: x.index_select(-1, i), (_numbers(2, 5), _index(4, 0, 0)), (_numbers(2, 5), _index())),
        ALL,
    ),
    "index_gather": (
        _of(lambda x, i: x.gather(1, i), (_numbers(2, 5), _index([4, 0], [1, 1])), (_numbers(2, 5), _index([], []))),
        ALL,
    ),
    "index_take": (_of(torch.take, (_numbers(2, 5), _index(-1, -10, 9))), ALL),
    "index_take_along_dim": (_of(lambda x, i: x.take_along_dim(i, 0), (_numbers(2, 3), _index([1, 0, 1]))), ALL),
    "index_put": (_of(lambda x, i, v: x.index_put((i,), v), (_numbers(5, 3), _index(-1, 0), _numbers(2, 3))), ALL),
    "index_put_accumulate": (
        _of(lambda x, i, v: x.index_put((i,), v, accumulate=True), (_numbers(5), _index(-1, 4, -1), _numbers(3))),
        NUMBERS,
    ),
    "index_add": (
        _of(lambda x, i, v: x.index_add(0, i, v), (_numbers(5, 2), _index(0, 0, 4), _numbers(3, 2))),
        NUMBERS,
    ),
    "index_copy": (_of(lambda x, i, v: x.index_copy(0, i, v), (_numbers(5, 2), _index(4, 0), _numbers(2, 2))), ALL),
    "index_fill": (_of(lambda x, i: x.index_fill(-1, i, 1), (_numbers(2, 5), _index(0, -1))), ALL),
    "index_scatter": (
        _of(lambda x, i, v: x.scatter(1, i, v), (_numbers(2, 5), _index([4, 0], [1, 2]), _numbers(2, 2))),
        ALL,
    ),
    "index_scatter_add": (
        _of(lambda x, i, v: x.scatter_add(1, i, v), (_numbers(2, 5), _index([4, 4], [1, 1]), _numbers(2, 2))),
        NUMBERS,
    ),
    "index_scatter_reduce_amax": (
        _of(
            lambda x, i, v: x.scatter_reduce(1, i, v, "amax"), (_numbers(2, 5), _index([4, 4], [1, 1]), _numbers(2, 2))
        ),
        NUMBERS,
    ),
    "index_embedding": (_of(lambda w, i: F.embedding(i, w), (_numbers(5, 3), _index([4, 0], [0, 0]))), FLOAT),
    "index_select_negative": (_of(lambda x: x.select(-1, -2), (_numbers(2, 5),)), ALL),
    "index_slice_out_of_range": (_of(lambda x: x[-100:3, 2:100:2], (_numbers(5, 5),)), ALL),
    "index_roll": (_of(lambda x: x.roll((-1, 7), (0, 1)), (_numbers(3, 4),)), ALL),
    "index_flip": (_of(lambda x: x.flip(-1, 0), (_numbers(3, 4),), (_numbers(0, 4),)), ALL),
    "index_where": (_of(lambda x: torch.where(x == x, x, torch.ones_like(x)), (values,)), ALL),
    "index_masked_fill": (_of(lambda x: x.masked_fill(x != x, 0), (values,)), ALL),
    "ties_argmax": (_of(lambda x: x.argmax(-1), (_ties,)), NUMBERS),
    "ties_argmin": (_of(lambda x: x.argmin(-1), (_ties,)), NUMBERS),
    "ties_max_dim": (_of(lambda x: x.max(-1), (_ties,)), NUMBERS),
    "ties_min_dim": (_of(lambda x: x.min(-1), (_ties,)), NUMBERS),
    "ties_sort_stable": (_of(lambda x: torch.sort(x, dim=-1, stable=True), (_ties,)), NUMBERS),
    "ties_sort_descending": (_of(lambda x: torch.sort(x, dim=-1, descending=True, stable=True), (_ties,)), NUMBERS),
    "ties_topk_values": (_of(lambda x: x.topk(2, -1).values, (_ties,)), NUMBERS),
    "ties_cummax_values": (_of(lambda x: x.cummax(-1).values, (_ties,)), NUMBERS),
    "ties_unique_rank": (_of(lambda x: torch.argsort(x, dim=-1, stable=True), (_ties,)), NUMBERS),
    "nan_clamp": (_of(lambda x: x.clamp(-1, 1), (values,)), NUMBERS),
    "nan_clamp_tensor": (_of(lambda x: torch.clamp(x, x.flip(0), x), (values,)), NUMBERS),
    "nan_relu": (_of(F.relu, (values,)), NUMBERS),
    "nan_hardtanh": (_of(F.hardtanh, (values,)), FLOAT),
    "nan_leaky_relu": (_of(F.leaky_relu, (values,)), FLOAT),
    "nan_gelu": (_each(F.gelu), FLOAT),
    "nan_softmax": (_of(lambda x: x.softmax(-1), (_ties,)), FLOAT),
    "nan_log_softmax": (_of(lambda x: x.log_softmax(-1), (_ties,)), FLOAT),
    "nan_max_pool": (_of(lambda x: F.max_pool1d(x[:, None], 2, 1), (_ties,)), FLOAT),
    "nan_max_pool_ceil": (_of(lambda x: F.max_pool1d(x[:, None], 3, 2, ceil_mode=True), (_ties,)), FLOAT),
    "nan_avg_pool_ceil": (
        _of(lambda x: F.avg_pool1d(x[:, None], 3, 2, 1, ceil_mode=True, count_include_pad=False), (_numbers(2, 6),)),
        FLOAT,
    ),
    "nan_cumsum": (_of(lambda x: x.cumsum(-1), (_ordinary_rows,)), NUMBERS),
    "nan_nan_to_num": (_of(torch.nan_to_num, (values,)), FLOAT),
    "nan_equal_nan": (_of(lambda x: torch.isclose(x[:, None], x, equal_nan=True), (values,)), FLOAT),
    "empty_matmul_k": (_of(torch.matmul, (_numbers(2, 0), _numbers(0, 3)), (_numbers(0, 2), _numbers(2, 3))), NUMBERS),
    "empty_cat": (_of(lambda a, b: torch.cat([a, b]), (_numbers(0, 3), _numbers(2, 3))), ALL),
    "empty_softmax": (_of(lambda x: x.softmax(-1), (_numbers(2, 0),), (_numbers(0, 2),)), FLOAT),
    "empty_layer_norm": (_of(lambda x: F.layer_norm(x, (3,)), (_numbers(0, 3),)), FLOAT),
    "empty_sum_all": (_of(torch.sum, (_numbers(0),), (_numbers(2, 0),)), NUMBERS),
    "empty_pad": (_of(lambda x: F.pad(x, (1, 2)), (_numbers(0),), (_numbers(2, 0),)), NUMBERS),
    "zero_dim_matmul": (_of(lambda a, b: torch.dot(a, b), (_numbers(3), _numbers(3))), NUMBERS),
    "zero_dim_reduce": (_of(lambda x: x.sum(0), (_numbers(),)), NUMBERS),
    "half_sum": (_of(lambda x: (x + 100).sum(), (_numbers(3000),)), FLOAT),
    "half_mean": (_of(lambda x: (x + 100).mean(0), (_numbers(3000, 2),)), FLOAT),
    "half_matmul": (_of(lambda a, b: a @ b, (_numbers(3, 700), _numbers(700, 2))), FLOAT),
    "half_softmax": (_of(lambda x: (x * 10).softmax(-1), (_numbers(2, 300),)), FLOAT),
    "cast_to_uint8": (_of(lambda x: x.to(torch.uint8), (lambda d: torch.tensor([0, 1, 2, 200, 255]).to(d),)), NUMBERS),
    "cast_to_bool": (_of(lambda x: x.to(torch.bool), (values,)), ALL),
    "cast_to_int": (
        _of(lambda x: x.to(torch.int32), (lambda d: torch.tensor([0, -1.5, 1.5, 2.5, -2.9]).to(d),)),
        FLOAT,
    ),
    "cast_bool_sum": (_of(lambda x: (x > 0).sum(-1), (_ties,)), NUMBERS),
    "pad_negative": (_of(lambda x: F.pad(x, (1, -1, -1, 2)), (_numbers(4, 5),)), NUMBERS),
}
"""By title: how to make the samples, and the kinds of dtype that they are for."""
