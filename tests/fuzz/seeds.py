"""Programs by their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from fuzz.check import Outcome, check, check_on_iree, together
from fuzz.programs import generate
from fuzz.shrink import shrink
from fuzz.variables import Program


def quiet() -> None:
    """One thread suffices for tensors this small."""
    torch.set_num_threads(1)


def run_seed(seed: int) -> Outcome:
    return check(generate(Random(seed)))


def run_batch(seeds: Sequence[int]) -> Outcome:
    """Run programs on IREE as one; where that fails, one by one."""
    programs = [generate(Random(seed)) for seed in seeds]
    outcome = check_on_iree(together(programs))
    if outcome.status == "same":
        return outcome
    for seed, program in zip(seeds, programs, strict=True):
        alone = check_on_iree(program)
        if alone.status == "failed":
            return Outcome("failed", alone.stage, f"seed {seed}: {alone.reason[:1000]}")
    return Outcome("same")


def shrunk(seed: int) -> tuple[Program, Outcome]:
    """The smallest program that fails like that of a seed."""
    program = generate(Random(seed))
    outcome = check(program)
    if outcome.status == "failed":
        program = shrink(program, lambda p: check(p).kind == outcome.kind)
    return program, check(program)
