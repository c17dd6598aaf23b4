"""A sample of random calls, and what the fuzzer promises of itself."""

from __future__ import annotations

import re

import torch
from fuzz.campaign import BAD, run_one
from fuzz.schemas import cases, engine_bugs, exclusions
from fuzz.schemas.check import check_seed, describe


def test_a_sample_of_calls_without_an_engine() -> None:
    bad = {seed: o.reason for seed in range(1500) if (o := run_one(check_seed, seed)).status in BAD}
    assert not bad


def test_a_case_is_one_line_of_python() -> None:
    """As it is printed, it can be run."""
    for seed in range(200):
        line = describe(seed)
        assert line.startswith("torch.ops.aten.")
        assert "\n" not in line
        compile(line, "<case>", "eval")


def test_a_seed_stands_for_one_case() -> None:
    for seed in range(50):
        first, second = cases.generate(seed), cases.generate(seed)
        assert str(first) == str(second)
        for a, b in zip(first.values(), second.values(), strict=True):
            assert not isinstance(a, torch.Tensor) or torch.equal(a.nan_to_num(), b.nan_to_num())


def test_what_is_not_asked_for_exists() -> None:
    assert set(exclusions.AVOIDED) <= set(cases.overloads())


def test_a_known_bug_is_matched_by_its_reproducer() -> None:
    assert all(re.match(bug.call, bug.reproducer) for bug in engine_bugs.BUGS)
