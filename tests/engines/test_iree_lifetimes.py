"""Results own their memory, whatever becomes of the program, of the arguments and of IREE's buffers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import flambeau

pytestmark = pytest.mark.engine


def _program(*shape: int, function: Any = torch.neg) -> Any:
    module = flambeau.compile(function, (torch.ones(shape),))
    return flambeau.load(module, profile="quick", device="local-sync")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_results_outlive_the_call(library: str) -> None:
    run = _program(20, 20)
    kept = []
    for i in range(100):
        x = np.full((20, 20), float(i), np.float32)
        kept.append(run(x if library == "numpy" else torch.from_numpy(x)))
        _ = [np.random.default_rng(0).random((20, 20)) for _ in range(4)]  # what takes freed memory
        if i % 10 == 0:
            gc.collect()
    for i, result in enumerate(kept):
        assert np.array_equal(np.asarray(result), np.full((20, 20), -float(i), np.float32)), i


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_part_of_an_argument_is_copied(library: str) -> None:
    run = _program(8, 16, function=lambda x: x.chunk(2))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    given = x.copy() if library == "numpy" else torch.from_numpy(x.copy())
    parts = run(given)
    given[...] = 0
    assert np.array_equal(np.concatenate([np.asarray(p) for p in parts]), x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_a_forked_process_runs_what_its_parent_loaded(device: str) -> None:
    code = f"""
    import os, signal, sys, torch, flambeau

    x = torch.randn(65, 65)
    run = flambeau.load(flambeau.compile(lambda x: (x @ x).relu(), (x,)), device={device!r})
    kept = run(x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a process that hangs
        torch.testing.assert_close(run(x), kept)
        again = flambeau.load(flambeau.compile(torch.neg, (x,)), device={device!r}, cache=False)
        torch.testing.assert_close(again(kept), -kept)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    torch.testing.assert_close(run(x), kept)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_threads_share_a_program() -> None:
    run = _program(200, 200, function=lambda x: x @ x)

    def call(i: int) -> bool:
        x = torch.full((200, 200), float(i))
        return torch.equal(run(x), x @ x)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(64)))


def test_threads_compile_and_load_at_once() -> None:
    def compile_and_run(i: int) -> torch.Tensor:
        x = torch.arange(4.0 + i)
        return flambeau.load(flambeau.compile(lambda x: x * 2 + i, (x,)), profile="quick", cache=False)(x)

    with ThreadPoolExecutor(4) as pool:
        for i, got in enumerate(pool.map(compile_and_run, range(8))):
            assert torch.equal(got, torch.arange(4.0 + i) * 2 + i)
