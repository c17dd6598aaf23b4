"""Results own their memory, whatever becomes of the program, of the arguments and of IREE's buffers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.engines.iree import compiler

pytestmark = pytest.mark.engine


def _program(*shape: int, function: Any = torch.neg) -> Any:
    module = flambeau.compile(function, (torch.ones(shape),))
    return flambeau.load(module, profile="quick", device="local-sync")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_results_outlive_the_call(library: str) -> None:
    run = _program(20, 20)
    kept = []
    gc.collect()
    gc.freeze()  # what other tests left is not searched again each time
    for i in range(100):
        x = np.full((20, 20), float(i), np.float32)
        kept.append(run(x if library == "numpy" else torch.from_numpy(x)))
        _ = [np.random.default_rng(0).random((20, 20)) for _ in range(4)]  # what takes freed memory
        if i % 10 == 0:
            gc.collect()
    for i, result in enumerate(kept):
        assert np.array_equal(np.asarray(result), np.full((20, 20), -float(i), np.float32)), i


def test_memory_of_large_results_is_used_again() -> None:
    """New pages of memory cost more than what is done with them: a second call finds those of the first."""
    resource = pytest.importorskip("resource")
    x = torch.ones(12_000_000)
    run = _program(12_000_000)  # which lets go of what other programs left
    run(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000


def test_results_outlive_their_device() -> None:
    code = """
    import gc, torch, flambeau
    from flambeau.engines.iree import runtime

    x = torch.ones(1000, 1000)
    for _ in range(5):
        run = flambeau.load(flambeau.compile(torch.neg, (x,)), device="local-sync")
        results = [run(x) for _ in range(5)]
        for program in list(runtime._LIVE):
            program.close()
        runtime._DEVICES.clear()
        del run, program
        gc.collect()
        del results[1:]
        assert torch.equal(results[0], -x)
    """
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}  # what is freed does not look as if it were not
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_part_of_an_argument_is_copied(library: str) -> None:
    run = _program(8, 16, function=lambda x: x.chunk(2))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    given = x.copy() if library == "numpy" else torch.from_numpy(x.copy())
    parts = run(given)
    given[...] = 0
    assert np.array_equal(np.concatenate([np.asarray(p) for p in parts]), x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_runs_what_its_parent_loaded() -> None:
    """On each device, in one process: starting it takes longer than what it does."""
    code = """
    import os, signal, sys, torch, flambeau

    x = torch.randn(65, 65)
    module, other = flambeau.compile(lambda x: (x @ x).relu(), (x,)), flambeau.compile(torch.neg, (x,))
    for device in ("local-task", "local-sync"):
        run = flambeau.load(module, device=device)
        kept = run(x)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a process that hangs
            torch.testing.assert_close(run(x), kept)
            again = flambeau.load(other, device=device, cache=False)
            torch.testing.assert_close(again(kept), -kept)
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, device
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


@pytest.mark.skipif(not compiler._ends_with_us(), reason="the system has no setpriv")
def test_a_compiler_ends_with_the_process_that_waits_for_it() -> None:
    """However that ends: a program that takes IREE an hour would take it to the end."""
    code = "from flambeau.engines.iree import compiler as c; c.binaries.find_tool = lambda name: 'sleep'; c._run('86')"
    with subprocess.Popen([sys.executable, "-c", code]) as caller:
        assert _until(lambda: len(_children(caller.pid)) == 1)
        (child,) = _children(caller.pid)
        caller.kill()
    assert _until(lambda: not _is_alive(child))


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if _command(int(n)) == "sleep"]


def _is_alive(pid: int) -> bool:
    return _command(pid) == "sleep"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Wait for a condition; gives whether it came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.05)
    return condition()
