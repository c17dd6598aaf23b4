"""The op database with every dim dynamic: compiled once, run at the example's sizes and at others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flambeau.testing.cases import Sample, Suite
from flambeau.testing.sizes import all_dynamic
from flambeau.testing.suites.ops import entries, suite_of


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each entry and dtype."""
    return suite_of("dynamic", entries(), dtypes, _dynamic)


def _dynamic(sample: Sample) -> Sample | None:
    args = sample.calls[0].args
    if all(n <= 1 for tensor in args for n in tensor.shape):  # PyTorch takes sizes 0 and 1 for constants
        return None
    shapes = {"tensors": all_dynamic(args)}
    return replace(sample, dynamic_shapes=shapes, other_sizes=True)
