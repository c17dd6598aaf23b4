"""The zoo of the compatibility tests: a table of small models that can be made, called and compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import flambeau
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.testing.zoo import ZOO
from flambeau.testing.zoo.transformers import TABLE

MAX_PARAMETERS = 1_000_000


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors(value: Any) -> list[torch.Tensor]:
    register_known_containers()
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def call(name: str) -> list[torch.Tensor]:
    module, args, kwargs = ZOO[name].make()
    assert not module.training
    assert sum(p.numel() for p in module.parameters()) <= MAX_PARAMETERS
    with torch.no_grad():
        return tensors(module(*args, **kwargs))


def test_the_table_is_well_formed() -> None:
    rows = [row for rows in TABLE.values() for row in rows]
    from_transformers = [model for model in ZOO.values() if "transformers" in model.tags]
    handwritten = [model for model in ZOO.values() if "handwritten" in model.tags]
    assert len(from_transformers) == len(rows), "a name is there twice"
    assert len(from_transformers) + len(handwritten) == len(ZOO)
    assert all(name == model.name and model.tolerance <= 1e-3 for name, model in ZOO.items())
    assert len({row.model for row in rows}) >= 120
    assert len(handwritten) >= 20


def test_importing_the_table_is_light() -> None:
    code = "import sys, flambeau.testing.zoo; sys.exit(bool({'torch', 'transformers', 'xdsl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long(sample=3)
@pytest.mark.parametrize("family", sorted({model.family for model in ZOO.values()}))
def test_models_can_be_called_and_are_the_same_each_time(family: str) -> None:
    """Each gives numbers that are finite and not all zero, and twice the same ones."""
    for model in ZOO.values():
        if model.family != family:
            continue
        results, again = call(model.name), call(model.name)
        assert any(result.abs().max() > 1e-3 for result in results), model.name
        for a, b in zip(results, again, strict=True):
            assert a.isfinite().all(), model.name
            assert torch.equal(a, b), model.name


@pytest.mark.engine
@pytest.mark.parametrize("name", ["dlrm", "llama-cache", "mobilenet"])
def test_a_model_runs_as_in_eager(name: str) -> None:
    """S48: a sample of the zoo of architectures."""
    expected = call(name)
    module, args, kwargs = ZOO[name].make()
    run = flambeau.load(flambeau.compile(module, args, kwargs), profile="quick", device="local-sync")
    _, args, kwargs = ZOO[name].make()
    actual = tensors(run(*args, **kwargs))
    assert [(a.shape, a.dtype) for a in actual] == [(e.shape, e.dtype) for e in expected]
    for a, e in zip(actual, expected, strict=True):
        assert (a - e).abs().max() <= ZOO[name].tolerance * e.abs().max()
