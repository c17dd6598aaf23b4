"""Levels: what a backend must do to be called compatible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.testing.results import STAGES, Result, Run, share

BEFORE_THE_BACKEND = STAGES[: STAGES.index("compile")]


@dataclass(frozen=True)
class Level:
    """A part of the cases, and how much of it must pass."""

    name: str
    tags: tuple[str, ...]
    share: float
    description: str

    def holds(self, results: Iterable[Result]) -> list[Result]:
        """Select the results that this level is about: a backend is not judged by what never reached it."""
        return [r for r in results if set(self.tags) <= set(r.tags) and r.stage not in BEFORE_THE_BACKEND]


LEVELS = {
    level.name: level
    for level in (
        Level("core", ("core",), 0.98, "98% of the cases of PyTorch's core ATen ops, in f32, i64 and bool"),
        Level("full", (), 0.95, "95% of all cases of the suites and dtypes that were run"),
    )
}


@dataclass(frozen=True)
class Standing:
    """How a run stands to a level, on one target."""

    level: Level
    target: str
    share: float
    cases: int

    @property
    def reached(self) -> bool:
        return self.cases > 0 and self.share >= self.level.share

    def __str__(self) -> str:
        verdict = "reached" if self.reached else "not reached"
        return (
            f"level {self.level.name} on {self.target}: {verdict}, {self.share:.1%} of {self.cases} lowered cases pass "
            f"and {self.level.share:.0%} must"
        )


def standings(run: Run, level: Level) -> list[Standing]:
    """Compute the share of a level's cases that pass, on each target of the run."""
    found = []
    for target in run.about["targets"]:
        part = Run(run.about, [r for r in level.holds(run.results) if r.target == target])
        counts = part.counts()
        cases = sum(counts.values()) - counts["excluded"]
        found.append(Standing(level, target, share(counts), cases))
    return found
