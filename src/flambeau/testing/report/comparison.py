"""One run beside another: what got better, what got worse."""

from __future__ import annotations

from dataclasses import dataclass, field

from flambeau.testing.results import EXCLUDED, PASS, XPASS, Result, Run


@dataclass
class Comparison:
    """The differences between two runs, for the cases and targets that both have."""

    better: list[tuple[Result, Result]] = field(default_factory=list)
    """Failed before, pass now."""
    worse: list[tuple[Result, Result]] = field(default_factory=list)
    other: list[tuple[Result, Result]] = field(default_factory=list)
    """Fail as before, but elsewhere."""
    new: list[Result] = field(default_factory=list)
    gone: list[Result] = field(default_factory=list)
    slower: list[tuple[Result, Result, float]] = field(default_factory=list)
    """Models that take longer, relative to eager, and by how much."""

    def __bool__(self) -> bool:
        return bool(self.better or self.worse or self.other or self.new or self.gone or self.slower)


SLOWER = 1.5
"""From which ratio on a model counts as slower: these are measurements."""


def compare_runs(before: Run, after: Run) -> Comparison:
    """Compare two runs: which results are new, gone, better, worse, slower, or fail otherwise."""
    found = Comparison()
    old = {r.key: r for r in before.results}
    new = {r.key: r for r in after.results}
    found.new = [r for key, r in new.items() if key not in old]
    found.gone = [r for key, r in old.items() if key not in new]
    for key in (k for k in new if k in old):
        was, now = old[key], new[key]
        if EXCLUDED in (was.status, now.status):
            continue
        if _passes(was) != _passes(now):
            (found.better if _passes(now) else found.worse).append((was, now))
        elif not _passes(now) and (was.stage, was.reason) != (now.stage, now.reason):
            found.other.append((was, now))
        elif (ratio := _slowdown(was, now)) > SLOWER:
            found.slower.append((was, now, ratio))
    return found


def _passes(result: Result) -> bool:
    return result.status in (PASS, XPASS)


def _slowdown(was: Result, now: Result) -> float:
    """Compute how much slower a model runs than before, each relative to eager on its own machine; 0 if unknown."""
    a, b = relative_time(was), relative_time(now)
    return b / a if a and b else 0.0


def relative_time(result: Result) -> float | None:
    """Return the run time of a model as a multiple of eager's; None if it was not measured."""
    run, eager = result.timings.get("run again"), result.timings.get("eager again")
    return run / eager if run and eager else None
