"""`run.bind(...)`: a call that is prepared once, for tensors that get new contents."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau.ir.arrays import GradientError


def load(engine: str, function: Any, *args: Any) -> Any:
    if engine == "eager":
        return flambeau.load(flambeau.compile(function, args, output_type="torch"), engine="eager")
    return flambeau.load(flambeau.compile(function, args), profile="quick", device="local-sync")


ENGINES = [pytest.param("iree", marks=pytest.mark.engine), "eager"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bound_call_reads_new_contents(engine: str) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    call = load(engine, lambda x, y: (x + y, x), x, y).bind(x, y)
    kept = []
    for i in range(5):
        x.fill_(i)
        total, same = call()
        assert torch.equal(total, x + y)
        assert torch.equal(same, x)
        kept.append((total, total.clone()))
    assert same.data_ptr() != x.data_ptr() or engine == "eager"
    assert all(torch.equal(a, b) for a, b in kept)


@pytest.mark.engine
def test_results_of_bound_calls_are_new_and_follow_what_moves() -> None:
    """Also on the quick way, which the second call takes."""
    x = torch.randn(4, 4)
    call = load("iree", lambda x: x.view(2, 8), x).bind(x)
    for memory in (x.clone(), x.clone(), torch.randn(4, 4).t()):
        results = []
        for i in range(3):
            x.fill_(i)
            results.append(call())
        assert [r.unique().tolist() for r in results] == [[0], [1], [2]]
        assert x.data_ptr() not in [r.data_ptr() for r in results]
        x.data = memory


@pytest.mark.engine
def test_what_a_bound_call_prepared_goes_with_it() -> None:
    x = torch.ones(4)
    run = load("iree", torch.neg, x)
    call = run.bind(x)
    assert [call().tolist() for _ in range(3)] == [[-1] * 4] * 3
    assert len(run._program.quickly_bound) == 1
    del call
    assert not run._program.quickly_bound


@pytest.mark.engine
@pytest.mark.parametrize(
    "x",
    [torch.randn(4, 8)[:, ::2], torch.randn(17)[1:].view(4, 4), np.ones(17, np.float32)[1:].reshape(4, 4)],
    ids=["strided", "unaligned", "numpy"],
)
def test_what_iree_cannot_read_in_place_is_copied_in_each_call(x: Any) -> None:
    call = load("iree", torch.neg, torch.ones(4, 4)).bind(x)
    for i in range(3):
        x[...] = i
        assert np.array_equal(np.asarray(call()), np.full((4, 4), -float(i)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tensor_that_moves_is_checked_again(engine: str) -> None:
    x = torch.randn(4, 4)
    call = load(engine, torch.neg, x).bind(x)
    x.t_()
    assert torch.equal(call(), -x)
    x.data = torch.randn(4, 4)
    assert torch.equal(call(), -x)
    x.data = torch.randn(3)
    with pytest.raises(ValueError, match=r"argument '\w+': expected a tensor 4x4xfloat32, got 3xfloat32"):
        call()


@pytest.mark.parametrize("engine", ENGINES)
def test_bound_calls_check_and_write_as_others(engine: str) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.total.add_(x)
            x.mul_(2)
            return self.total * 1

    run = load(engine, Counter(), torch.ones(3))
    with pytest.raises(ValueError, match="expected a tensor 3xfloat32"):
        run.bind(torch.ones(4))
    x = torch.ones(3)
    call = run.bind(x)
    assert [call().tolist()[0] for _ in range(3)] == [1, 3, 7]
    assert x.tolist() == [8] * 3
    linear = load(engine, torch.neg, x)
    call = linear.bind(x)
    x.requires_grad_()
    with pytest.raises(GradientError):
        call()
    with torch.no_grad():
        assert torch.equal(call(), -x)


@pytest.mark.engine
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_bound_call_runs_in_a_forked_process() -> None:
    code = """
    import os, signal, torch, flambeau

    x = torch.ones(4, 4)
    call = flambeau.load(flambeau.compile(torch.neg, (x,)), profile="quick").bind(x)
    call()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a process that hangs
        x.fill_(3)
        raise SystemExit(7 if torch.equal(call(), -x) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert torch.equal(call(), -x)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
