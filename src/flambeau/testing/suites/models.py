"""The model zoo as cases: each compiled alone, with its times and memory taken."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from flambeau.testing.cases import Call, Case, Sample, Suite
from flambeau.testing.zoo import ZOO, ZooModel


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each model; they are all in f32."""
    suite = Suite("models")
    for model in ZOO.values():
        tolerance = (model.tolerance, 0.0)
        samples = partial(_samples, model)
        suite.add(
            Case("models", model.name, samples, "float32", model.family, model.tags, tolerance, "norm", heavy=True)
        )
    return suite


def _samples(model: ZooModel) -> list[Sample]:
    module, args, kwargs = model.make()
    return [Sample(module, [Call(args, kwargs)])]
