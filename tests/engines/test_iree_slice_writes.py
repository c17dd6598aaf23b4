"""Slices that are written: `engines/iree/slice_writes.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.engines.iree.prepare import for_iree

WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "columns": lambda x, s: x.slice_scatter(s, 1, 2, 5),
    "every other": lambda x, s: x.slice_scatter(s, 1, 1, 7, 2),
    "its own": lambda x, s: x.slice_scatter(x[:, :6], 1, 2),
    "its own, reversed": lambda x, s: x.slice_scatter(x[:2].flip(1), 0, 1, 3),
    "a row": lambda x, s: x.select_scatter(s.flatten()[:8], 0, -1),
    "into what is computed": lambda x, s: (x * 2).slice_scatter(s, 1, 2, 5) + x,
    "other dtype": lambda x, s: x.slice_scatter(s.long(), 1, 0, 3),
}


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_writes_are_right_and_leave_the_argument_alone(target: str, dynamic: bool) -> None:
    def all_of_them(x: Tensor, s: Tensor) -> list[Tensor]:
        return [write(x, s) for write in WRITES.values()]

    x, s = torch.randn(4, 8), torch.randn(4, 3)
    shapes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}) if dynamic else None
    run = flambeau.load(
        flambeau.compile(all_of_them, (x, s), dynamic_shapes=shapes, output_type=target), profile="quick"
    )
    before = x.clone()
    for got, expected in zip(run(x, s), all_of_them(x, s), strict=True):
        assert torch.equal(got, expected)
    assert torch.equal(x, before)


def test_what_is_written_into_new_memory_stays_as_it_is() -> None:
    module = flambeau.compile(lambda x, s: (x * 2).slice_scatter(s, 1, 2, 5), (torch.ones(4, 8), torch.ones(4, 3))).op
    assert "tensor.insert_slice" in str(module)
    assert for_iree(module) is module
