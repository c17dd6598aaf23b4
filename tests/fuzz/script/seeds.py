"""TorchScript programs by their seeds."""

from __future__ import annotations

from random import Random

import torch
from fuzz import campaign
from fuzz.script.check import Outcome, check, check_on_iree, together
from fuzz.script.programs import generate
from fuzz.script.shrink import shrink
from fuzz.script.variables import Program

torch.set_num_threads(1)  # One suffices for tensors this small.


def check_seed(seed: int) -> campaign.Outcome:
    """Check the program of a seed at every stage; what fails is made small, and shown."""
    program = generate(Random(seed))
    outcome = check(program)
    if outcome.status != "failed":
        return outcome
    small = shrink(program, lambda p: check(p).kind == outcome.kind)
    return campaign.Outcome(outcome.status, outcome.stage, f"{check(small).reason}\n{text(small)}")


def text(program: Program) -> str:
    """Write a program, and the arguments that it takes."""
    shapes = ", ".join(f"{tuple(s.shape)} {str(s.dtype).removeprefix('torch.')}" for s in program.arguments)
    return f"{program.source}\narguments: {shapes}"


def describe(seed: int) -> str:
    """Write the program of a seed."""
    return text(generate(Random(seed)))


ON_IREE = 20
"""One program in so many also runs on IREE,"""
BATCH = 8
"""so many of them as one."""
GROUP = ON_IREE * BATCH
"""The programs of which a batch is taken."""


def check_group(group: int) -> campaign.Outcome:
    """Run programs of a group on IREE as one; where that fails, one by one. Every fourth has the default profile."""
    profile = "model" if group % 4 == 0 else "quick"
    seeds = range(group * GROUP, (group + 1) * GROUP, ON_IREE)
    chosen = {s: p for s in seeds if not (p := generate(Random(s))).buffers and _compiles(p)}
    if not chosen:
        return campaign.Outcome("rejected")
    outcome = check_on_iree(together(list(chosen.values())), profile)
    if outcome.status == "same":
        return campaign.Outcome("same", profile)
    for seed, program in chosen.items():
        alone = check_on_iree(program, profile)
        if alone.status == "failed":
            return campaign.Outcome("failed", alone.stage, f"seed {seed}: {alone.reason[:1000]}\n{text(program)}")
    return campaign.Outcome("same", f"{profile}, one by one")


def _compiles(program: Program) -> bool:
    outcome: Outcome = check(program)
    return outcome.is_compiled
