"""Lazy tensors for these tests: on the eager engine, which needs no compiler, and with counts that start anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from flambeau import lazy


@pytest.fixture(autouse=True)
def eager_engine() -> Iterator[None]:
    lazy.use_engine("eager")
    yield
    lazy.seed(None)
    lazy.use_engine("eager")


@pytest.fixture
def device() -> torch.device:
    return lazy.device()
