"""Slices that are written: `engines/iree/slice_writes.py`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.engines.iree.prepare import for_iree


def planes(x: Tensor) -> Tensor:
    return x.view(-1, 4, 2)


WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "columns": lambda x, s: x.slice_scatter(s, 1, 2, 5),
    "every other": lambda x, s: x.slice_scatter(s, 1, 1, 7, 2),
    "its own": lambda x, s: x.slice_scatter(x[:, :6], 1, 2),
    "its own, reversed": lambda x, s: x.slice_scatter(x[:2].flip(1), 0, 1, 3),
    "rows": lambda x, s: planes(x).slice_scatter(planes(x)[:, :2] * 2, 1, 1, 3),
    "every other row": lambda x, s: planes(x).slice_scatter(planes(x)[:, 1:3] * 2, 1, 0, 3, 2),
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


def random_program(seed: int) -> Callable[[Tensor], Tensor]:
    """Make a program of reads and writes of rows, between tensors that are computed, constant, or an argument."""
    choose = random.Random(seed)
    kinds = ["double", "clear", "copy", "compute", "zeros", "count", "add", "read"]
    steps = [
        (choose.choice(kinds), choose.randrange(n), choose.randrange(n), choose.randrange(3), choose.randrange(3))
        for n in range(1, choose.randint(3, 7))
    ]
    seen = choose.randrange(len(steps) + 1)

    def program(x: Tensor) -> Tensor:
        made = [x]
        for kind, a, b, to, row in steps:
            one = made[b][row : row + 1]
            made.append({
                "double": lambda a=a: made[a] * 2,
                "clear": lambda a=a, to=to: torch.slice_scatter(made[a], torch.zeros(1, 4), 0, to, to + 1),
                "copy": lambda a=a, to=to, one=one: torch.slice_scatter(made[a], one.clone(), 0, to, to + 1),
                "compute": lambda a=a, to=to, one=one: torch.slice_scatter(made[a], one + 1, 0, to, to + 1),
                "zeros": lambda: torch.zeros(3, 4),
                "count": lambda: torch.arange(12.0).reshape(3, 4) * torch.ones(()),
                "add": lambda a=a, b=b: made[a] + made[b],
                "read": lambda one=one: one.expand(3, 4) * 1,
            }[kind]())  # fmt: skip
        return made[-1] + made[seen] * 0.5

    return program


@pytest.mark.engine
@pytest.mark.parametrize("profile", ["quick", "model"])
def test_random_programs_of_reads_and_writes(profile: str) -> None:
    count = 40 * max(1, int(os.environ.get("FLAMBEAU_EXAMPLES", "0")) // 40)
    x = torch.randn(3, 4)
    for start in range(0, count, 40):
        programs = {f"p{seed}": (random_program(seed), (x,)) for seed in range(start, start + 40)}
        run = flambeau.load(flambeau.compile(programs), profile=profile)
        for name, (program, _) in programs.items():
            torch.testing.assert_close(run.function(name)(x), program(x), msg=name)
