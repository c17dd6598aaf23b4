"""Indexing and writing through indices, against torch: the same IR and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from frontends.nn.parity import as_torch, same_ir, specs_of
from support import assert_same

import flambeau
from flambeau import nn, ops

X, J, M = torch.randn(3, 4, 5), torch.tensor([2, 0, 1]), torch.tensor([True, False, True])
INPUTS = (X, J)

READS = (
    """
x[0] | x[-1] | x[1, 2] | x[:] | x[1:] | x[:2] | x[::2] | x[-2:] | x[:, 1:3] | x[..., 0] | x[0, ..., 1:] | x[None]
x[:, None, 1] | x[..., None] | x[None, ..., -1] | x[1:, ::2, :3] | x[()] | x[j] | x[:, j] | x[0, j] | x[j, j]
x[..., j] | x[j, :, j] | x[[0, 2]] | x[:, [1, 0]] | x[[0, 1], [1, 2]] | x[None, j] | x[j[:2], 1:] | x[j.unsqueeze(1), j]
x[1:][0] | x[:, 0][j]
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)

WRITES = (
    """
y[0] = 1.0 | y[:, 1] = 2 | y[1:, ::2] = x[:2, ::2] | y[..., -1] = x[..., 0] | y[j] = 0.0 | y[:, j] = x[:, j] + 1
y[0, j] = 5.0 | y[None, 0] = 3.0 | y[1] = x[0:1] | y[0] += 1 | y[1:, 2] *= 2 | y[[0, 2]] = 7.0
y.transpose(0, 2)[0] = 4.0
y.view(12, 5)[3] = 1.5 | y[0][1].zero_() | y.reshape(-1)[0] = 9.0 | y.transpose(0, 1).reshape(-1)[0] = 9.0
y.transpose(0, 1).contiguous()[0] = 1.0 | y.split(2, 1)[0].add_(1) | y.unbind(0)[1].mul_(2)
y.unsqueeze_(0).add_(1) | y.copy_(x.flip(0)) | y.permute(2, 0, 1)[1, 0] = 2.5
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)


def read(expression: str, x: Any, j: Any) -> Any:
    return eval(expression, {"x": x, "j": j})


def write(statement: str, x: Any, j: Any) -> Any:
    y = x.clone()
    exec(statement, {"x": x, "y": y, "j": j})
    return y


@pytest.mark.parametrize("expression", READS)
def test_reads_are_the_same_ir(expression: str) -> None:
    same_ir(lambda x, j: read(expression, x, j) + 0, lambda x, j: read(expression, x, j) + 0, *INPUTS)


@pytest.mark.parametrize("statement", ["y[0] = 1.0", "y[:, 1] = 2", "y[1:, ::2] = x[:2, ::2]", "y[0] += 1"])
def test_writes_are_the_same_ir(statement: str) -> None:
    same_ir(lambda x, j: write(statement, x, j), lambda x, j: write(statement, x, j), *INPUTS)


def check_numbers(kind: Any, expressions: list[str]) -> None:
    def everything(x: Any, j: Any) -> list[Any]:
        return [kind(e, x, j) for e in expressions]

    module = flambeau.compile(flambeau.trace(everything, *specs_of(INPUTS)))
    actual = flambeau.load(module, profile="quick", device="local-sync")(*(x.numpy() for x in INPUTS))
    for expression, found in zip(expressions, actual, strict=True):
        assert_same(as_torch(found), kind(expression, *INPUTS), expression)


@pytest.mark.engine
def test_the_numbers_of_reads() -> None:
    check_numbers(read, READS)


@pytest.mark.engine
def test_the_numbers_of_writes() -> None:
    check_numbers(write, WRITES)


@pytest.mark.engine
def test_unknown_sizes_in_slices() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return x[n // 2 :], x[: n - 1, 0], x[n - 1]

    module = flambeau.compile(flambeau.trace(f, nn.TensorSpec([None, 3], "f32")))
    run = flambeau.load(module, profile="quick")
    for n in (4, 7):
        x = np.arange(n * 3, dtype="f").reshape(n, 3)
        for got, want in zip(run(x), (x[n // 2 :], x[: n - 1, 0], x[n - 1]), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.engine
def test_bool_masks() -> None:
    def put(x: Any, m: Any) -> Any:
        y = x.clone()
        y[m] = 0.0
        return y

    same_ir(put, put, X, M)
    module = flambeau.trace(put, *specs_of((X, M)))
    run = flambeau.load(flambeau.compile(module), profile="quick")
    np.testing.assert_array_equal(run(X.numpy(), M.numpy()), put(X, M).numpy())


@pytest.mark.engine
def test_literals_index_and_join() -> None:
    def f(x: Any) -> Any:
        return (
            x[np.array([1, 0])] + np.ones((2, 4, 5), np.float32),
            ops.add(x[0], [1.0] * 5),
            x[1, [True, False, True, False]],
        )

    module = flambeau.compile(flambeau.trace(f, nn.TensorSpec([3, 4, 5])))
    x = X.numpy()
    got = flambeau.load(module, profile="quick")(x)
    np.testing.assert_allclose(got[0], x[[1, 0]] + 1, rtol=1e-6)
    np.testing.assert_allclose(got[1], x[0] + 1, rtol=1e-6)
    np.testing.assert_allclose(got[2], x[1][[True, False, True, False]], rtol=1e-6)
