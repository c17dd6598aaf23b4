"""Programs by their seeds."""

from __future__ import annotations

from random import Random

import torch
from fuzz.campaign import Outcome as CampaignOutcome
from fuzz.check import Outcome, check, check_on_iree, together
from fuzz.programs import generate
from fuzz.shrink import shrink
from fuzz.variables import Program


def quiet() -> None:
    """One thread suffices for tensors this small."""
    torch.set_num_threads(1)


def run_seed(seed: int) -> Outcome:
    return check(generate(Random(seed)))


ON_IREE = 20
"""One program in so many also runs on IREE,"""
BATCH = 8
"""so many of them as one."""
GROUP = ON_IREE * BATCH
"""The programs of which a batch is taken."""


def run_batch(group: int) -> CampaignOutcome:
    """Run programs of a group on IREE as one; where that fails, one by one. Every fourth has the default profile."""
    quiet()
    profile = "model" if group % 4 == 0 else "quick"
    seeds = range(group * GROUP, (group + 1) * GROUP, ON_IREE)
    chosen = {s: p for s in seeds if not (p := generate(Random(s))).buffers and check(p).is_compiled}
    if not chosen:
        return CampaignOutcome("rejected")
    outcome = check_on_iree(together(list(chosen.values())), profile)
    if outcome.status == "same":
        return CampaignOutcome("same", profile)
    for seed, program in chosen.items():
        alone = check_on_iree(program, profile)
        if alone.status == "failed":
            return CampaignOutcome("failed", alone.stage, f"seed {seed}: {alone.reason[:1000]}")
    return CampaignOutcome("same", f"{profile}, one by one")


def shrunk(seed: int) -> tuple[Program, Outcome]:
    """The smallest program that fails like that of a seed."""
    program = generate(Random(seed))
    outcome = check(program)
    if outcome.status == "failed":
        program = shrink(program, lambda p: check(p).kind == outcome.kind)
    return program, check(program)
