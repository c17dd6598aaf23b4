"""The suites that come with the package. Importing this imports nothing of PyTorch; making a suite does."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from flambeau.testing.cases import Suite

SUITES = {
    "ops": "PyTorch's own op database: every op with the samples that PyTorch tests it with",
    "edge": "NaN, infinities, signed zeros, ties, empty dims, integer extremes, negative indices, f16 sums",
    "dynamic": "the op database again, with every dim dynamic, run at other sizes",
    "gradients": "the op database again: the gradients of every op that has some",
    "shapes": "attention, matrix products, convolutions, norms and softmax at all small sizes, static and dynamic",
    "models": "architectures from transformers' configurations and hand-written ones, with random weights",
}


def load_suite(name: str, dtypes: Iterable[str]) -> Suite:
    """Make a suite; those of ops have a case for each op and dtype."""
    if name not in SUITES:
        raise ValueError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    module = importlib.import_module(f"flambeau.testing.suites.{name}")
    suite: Suite = module.make(tuple(dtypes))
    return suite
