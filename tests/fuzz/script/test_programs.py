"""Random programs: Python, TorchScript and every stage of ours agree.

`make fuzz` runs many more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from fuzz.script.check import Outcome, Tally, check, check_on_iree, difference, expected, in_python, observe, together
from fuzz.script.programs import generate
from fuzz.script.shrink import shrink
from fuzz.script.variables import FLOAT, Program, Spec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

PROGRAMS = 100
PARTS = 4
"""The test is in parts, which may run at the same time."""


def assert_no_failure(program: Program, outcome: Outcome) -> None:
    if outcome.status == "failed":
        small = shrink(program, lambda p: check(p).kind == outcome.kind)
        pytest.fail(f"{outcome.stage} breaks this program:\n\n{small.source}\n{check(small).reason}")


@pytest.mark.engine
@pytest.mark.parametrize("part", range(PARTS))
def test_every_stage_agrees_with_pytorch(part: int) -> None:
    """Results and written arguments are the same behind each pass; few programs are refused."""
    tally, on_iree = Tally(), []
    for seed in range(part, PROGRAMS, PARTS):
        program = generate(Random(seed))
        outcome = check(program)
        assert_no_failure(program, outcome)
        tally.add(outcome)
        if outcome.is_compiled and not program.buffers and seed % 20 < PARTS:
            on_iree.append(program)
    assert tally.share("refused") < 0.05
    assert tally.share("refused alone") < 0.2
    assert tally.share("limited") < 0.75
    assert tally.share("rejected") < 0.15
    assert on_iree
    assert_same_on_iree(on_iree)


def assert_same_on_iree(programs: Sequence[Program]) -> None:
    outcome = check_on_iree(together(programs))
    assert outcome.status == "same", f"{outcome.stage}: {outcome.reason}"


@pytest.mark.long
@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(random=st.randoms(use_true_random=False))
def test_programs_of_extreme_choices(random: Random) -> None:
    """Hypothesis makes the choices: it prefers the smallest and the largest, and repeats itself."""
    program = generate(random)
    assert_no_failure(program, check(program))


def test_a_seed_is_a_program() -> None:
    assert generate(Random(7)) == generate(Random(7))
    assert len({generate(Random(seed)).source for seed in range(50)}) == 50


WRITES = """
def f(x):
    y = x[1:]
    z = y + 1.0
    if bool(x.sum() > 100.0):
        z = z * 2.0
    y.add_(1.0)
    return (z, 3)
"""


def test_differences_are_found() -> None:
    """The comparison sees results, written arguments and numbers."""
    program = Program(WRITES, (Spec((3,), FLOAT),))
    wanted = expected(program)
    assert difference(observe(in_python(program), program), wanted) == ""
    for old, new, found in [
        ("x[1:]", "x[1:].clone()", "wrong argument"),
        ("y + 1.0", "y + 1.5", "wrong result"),
        ("z, 3", "z, 4", "wrong result"),
        ("z, 3", "z, z, 3", "instead of 2"),
    ]:
        other = Program(WRITES.replace(old, new), program.arguments)
        assert found in difference(observe(in_python(other), other), wanted)


def test_shrinking_leaves_what_matters() -> None:
    small = shrink(Program(WRITES, (Spec((3,), FLOAT),)), lambda p: "add_" in p.source)
    assert small.source == "def f(x):\n    y.add_(1.0)\n    return z\n"
