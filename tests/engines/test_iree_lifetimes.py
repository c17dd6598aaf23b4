"""Results own their memory, whatever becomes of the program, of the arguments and of IREE's buffers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import flambeau


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
