"""A sample of random FX programs: none does at any stage what eager PyTorch does not."""

from __future__ import annotations

import pytest
import torch
from fuzz.campaign import Outcome
from fuzz.fx import check
from fuzz.fx.programs import Program, data, grow


@pytest.mark.parametrize("start", [0, 1000])
def test_random_programs_run_as_in_eager(start: int) -> None:
    outcomes = {seed: check.check(grow(seed)) for seed in range(start, start + 12)}
    assert {s: o.reason for s, o in outcomes.items() if o.status == "failed"} == {}
    assert sum(o.status == "same" for o in outcomes.values()) > 3


def test_a_seed_is_one_program() -> None:
    assert grow(5) == grow(5)
    assert grow(5) != grow(6)
    assert torch.equal(data(8, (3,)), data(8, (3,)))
    assert data(7, (40,)).isnan().any()


def test_failures_are_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    program = grow(2)
    extra = Program(program.init, (*program.body, "torch.manual_seed(3)"), program.result, program.calls)

    def fails(candidate: Program, on_iree: bool = False) -> Outcome:
        return Outcome("failed" if "torch.manual_seed(3)" in candidate.body else "same", "raw", "wrong")

    monkeypatch.setattr(check, "check", fails)
    small, outcome = check.shrink(extra, fails(extra), False)
    assert small.body == ("torch.manual_seed(3)",)
    assert small.init == ()
    assert outcome.status == "failed"


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program((), ("y = x0 + 1",), "y", ("(data(1, (3,)), data(2, (3,)), None)",))
    assert check.check(program).status == "same"
    expected = check.expected_calls(program)
    monkeypatch.setattr(check, "expected_calls", lambda p, mode=None: [([e[0][0] + 1], *e[1:]) for e in expected])
    assert check.check(program).kind[:2] == ("failed", "raw: result")


def overlapping(line: str) -> Program:
    """Make a program whose second argument is the diagonal of the first."""
    return Program((), (line,), "x0", ("(lambda t: (t, t.diagonal(), None))(data(1, (3, 3)))",))


def test_what_eager_itself_leaves_undefined_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: object) -> Outcome:
        raise check.Different("raw", "wrong")

    monkeypatch.setattr(check, "_check_stages", wrong)
    undefined = check.check(overlapping("x0.sub_(x1)"))
    assert (undefined.status, undefined.stage) == ("rejected", "eager")
    assert undefined.reason == "its result depends on the order of writes"
    for line in ("x0.sub_(x0)", "x0.sub_(x1.clone())", "x1.add_(x1)", "y = x0 + x1"):
        assert check.check(overlapping(line)).status == "failed", line
