"""Known bugs of engines that calls run into: each with what shows it, and matched no more widely than it must be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fuzz.campaign import BAD, Outcome
from fuzz.schemas.cases import Case


@dataclass(frozen=True)
class EngineBug:
    """A bug of an engine."""

    reason: str
    call: str
    """A pattern that the text of a call has from its start."""
    outcome: str
    """A pattern that is in the outcome's stage or reason."""
    reproducer: str
    """One line of Python that shows it."""
    targets: tuple[str, ...] = ("linalg-on-tensors", "stablehlo", "tosa")


BUGS: tuple[EngineBug, ...] = (
    EngineBug(
        "IREE 3.13 hands at most 64 constants to a dispatch, and loads no program that has more",
        r"torch\.ops\.aten\.(avg|max)_pool3d",
        r"constants exceeds limit of 64",
        "torch.ops.aten.avg_pool3d(torch.zeros((1, 2, 4, 4, 3)), [2, 2, 2], [2, 2, 2], [1, 1, 1], True)",
        ("stablehlo",),
    ),
    EngineBug(
        "IREE 3.13 takes no tosa.avg_pool2d of a dynamic number of channels",
        r"torch\.ops\.aten\.avg_pool",
        r"compile \(dynamic\).*\n?.*failed to legalize operation 'tosa\.avg_pool2d'",
        "torch.ops.aten.avg_pool2d(torch.zeros((1, 2, 6, 4)), [3, 1]), batch and channels left to the run time",
        ("tosa",),
    ),
)


def known(target: str, case: Case, outcome: Outcome) -> Outcome:
    """Replace the outcome of a bug that we know by one that says so."""
    if outcome.status not in BAD:
        return outcome
    for bug in BUGS:
        is_it = re.match(bug.call, str(case)) and re.search(bug.outcome, f"{outcome.stage}\n{outcome.reason}")
        if target in bug.targets and is_it:
            return Outcome("engine", bug.reason, outcome.reason)
    return outcome
