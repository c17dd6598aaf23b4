"""The zoo, in small, on StableHLO and TOSA: equal to eager on IREE."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import flambeau
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.testing.models import MODELS


def leaves(value: Any) -> list[torch.Tensor]:
    register_known_containers()
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def compare(name: str, target: str, dynamic: bool) -> None:
    zoo = MODELS[name]
    torch.manual_seed(0)
    model = zoo.build(small=True)
    shapes = zoo.dynamic_shapes() if dynamic else None
    module = flambeau.compile(model, (), dict(zoo.inputs(2, 9, small=True)), output_type=target, dynamic_shapes=shapes)
    run = flambeau.load(module, profile="quick")
    for batch, length in [(2, 9), (3, 12)] if dynamic else [(2, 9)]:
        inputs = dict(zoo.inputs(batch, length, small=True))
        with torch.no_grad():
            expected = model(**inputs)
        torch.testing.assert_close(leaves(run(**inputs)), leaves(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["stablehlo", "tosa"])
@pytest.mark.parametrize("name", MODELS)
def test_static(name: str, target: str) -> None:
    compare(name, target, dynamic=False)


@pytest.mark.parametrize("name", MODELS)
def test_dynamic_in_stablehlo(name: str) -> None:
    """One compilation, two batches (and two lengths for text)."""
    compare(name, "stablehlo", dynamic=True)
