"""The way from a Python call to flat values and back, and how memory is compared on it."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.engines.plans import CallPlan
from flambeau.ir import dtypes
from flambeau.ir.arrays import overlapping, span_of
from flambeau.ir.module import Argument, Output, Signature, TensorSpec
from flambeau.ir.trees import flatten

SPEC = TensorSpec((2, 3), dtypes.float32)


def plan(*names: str, call: Any = None) -> CallPlan:
    arguments = tuple(Argument(name, SPEC) for name in names)
    return CallPlan(Signature(arguments, (SPEC,), (Output(0),), in_spec=None if call is None else flatten(call)[1]))


def test_groups_of_spans_are_those_that_overlap() -> None:
    generator = random.Random(0)
    for _ in range(200):
        starts = [generator.randrange(40) for _ in range(8)]
        spans = [(s, s + generator.randrange(1, 6), i) for i, s in enumerate(starts)]
        groups = [{i for _, _, i in group} for group in overlapping(spans)]
        assert sum(map(len, groups)) == len(set().union(*groups))
        for (a, b, i), (c, d, j) in itertools.combinations(spans, 2):
            if a < d and c < b:
                assert any({i, j} <= group for group in groups)
    assert overlapping([(0, 4, 0), (4, 8, 1), (2, 3, 2)]) == [[(0, 4, 0), (2, 3, 2)]]
    assert overlapping([]) == []


def test_spans_hold_all_elements() -> None:
    base = torch.arange(24.0).view(4, 6)
    start = base.data_ptr()
    assert span_of(base) == (start, start + 96)
    assert span_of(base.t()) == (start, start + 96)
    assert span_of(base[1:3, 2:4]) == (start + 32, start + 32 + 8 + 24)
    assert span_of(base[:1].expand(4, 6)) == (start, start + 24)
    array = base.numpy()
    assert span_of(array[::-1, ::-2]) == (start + 4, start + 96)


def test_values_come_in_the_order_of_the_arguments() -> None:
    x, y, z = (torch.full((2, 3), float(i)) for i in range(3))
    values, as_torch = plan("a", "b").bind((x, y), {}, {})
    assert [v is e for v, e in zip(values, (x, y), strict=True)] == [True, True]
    assert as_torch
    named = plan("a", "b", "c", call=((0,), {"b": 0, "c": 0}))
    for kwargs in ({"b": y, "c": z}, {"c": z, "b": y}):
        assert [int(v[0, 0]) for v in named.bind((x,), kwargs, {})[0]] == [0, 1, 2]
    nested = plan("a", "b", "c", call=(([0, 0], 0), {}))
    assert [int(v[0, 0]) for v in nested.bind(([x, y], z), {}, {})[0]] == [0, 1, 2]
    arrays, as_torch = plan("a").bind((np.ones((2, 3), np.float32),), {}, {})
    assert not as_torch
    assert isinstance(arrays[0], np.ndarray)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.ones(2, 3), torch.ones(3, 2)), {}, "argument 'b': expected a tensor 2x3xfloat32, got 3x2xfloat32"),
        ((torch.ones(2, 3), torch.ones(2, 3).int()), {}, "argument 'b': expected a tensor 2x3xfloat32, got 2x3xint32"),
        ((np.ones((2, 3)), torch.ones(2, 3)), {}, "argument 'a': expected a tensor 2x3xfloat32, got 2x3xfloat64"),
        ((torch.ones(2, 3), 3), {}, "argument 'b': expected a tensor 2x3xfloat32, got 3"),
        ((torch.ones(2, 3),), {}, "missing b"),
        ((torch.ones(2, 3),), {"c": 1}, "missing b; unexpected c"),
        ((1, 2, 3), {}, "called with 3 positional arguments"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plan("a", "b").bind(args, kwargs, {})


@pytest.mark.engine
def test_many_results_share_memory_with_nothing() -> None:
    """Parts of arguments, arguments as they came and equal results, in a program of 12 arguments."""

    def parts(*xs: Tensor) -> tuple[Tensor, ...]:
        return (*xs[:4], *(c for x in xs[4:8] for c in x.chunk(4)), *(x + 1 for x in xs[8:]), xs[8] + 1, xs[0])

    given = tuple(torch.randn(16, 16) for _ in range(12))
    run = flambeau.load(flambeau.compile(parts, given), profile="quick", device="local-sync")
    results, expected = run(*given), [r.clone() for r in parts(*given)]
    assert not overlapping([(*span_of(t), i) for i, t in enumerate((*given, *results))])
    for tensor in given:
        tensor.zero_()
    for result, want in zip(results, expected, strict=True):
        assert torch.equal(result, want)
        result.zero_()


@pytest.mark.engine
def test_aliased_and_negated_arguments_are_read_rightly() -> None:
    run = flambeau.load(
        flambeau.compile(lambda x, y: (x + y, x), (torch.ones(4, 4),) * 2), profile="quick", device="local-sync"
    )
    base = torch.randn(64)
    negative = torch.view_as_complex(torch.randn(4, 4, 2)).conj().imag
    for x, y in [(base[:16], base[:16]), (base[:16], base[8:24]), (base[:16], base[16:32])]:
        total, same = run(x.view(4, 4), y.view(4, 4))
        assert torch.equal(total, (x + y).view(4, 4))
        assert same.data_ptr() != x.data_ptr()
    for odd in (negative, negative.contiguous(), base[:16].view(4, 4).t(), torch.randn(1, 1).expand(4, 4)):
        assert torch.equal(run(odd, odd)[0], odd + odd)


@pytest.mark.engine
def test_threads_take_arguments_while_a_program_runs() -> None:
    """The lock is held for the run of the engine alone: who only prepares a call does not wait for it."""
    run = flambeau.load(flambeau.compile(torch.neg, (torch.ones(4),)), profile="quick", device="local-sync")
    prepared = threading.Event()

    def prepare() -> None:
        run._program.inputs([torch.ones(4)])
        prepared.set()

    with run._program._lock:
        threading.Thread(target=prepare).start()
        assert prepared.wait(10)
