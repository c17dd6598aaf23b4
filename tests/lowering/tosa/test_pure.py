"""How much of static TOSA is TOSA alone: the cases of the compatibility test suite, and what is left by op name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
import torch

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.frontends.fx.compile import export
from flambeau.testing.cases import Case
from flambeau.testing.suites import load_suite

CHECKS = frozenset({"cf.assert", "tensor.extract"})
EMPTY = frozenset({"tensor.empty"})
NOT_STATIC = frozenset({"item", "combinations", "masked_select", "unique", "unique_consecutive", "nonzero", "argwhere"})
"""Results whose sizes are known when the program has run, and a number as a result."""


def foreign(case: Case) -> frozenset[str] | None:
    """Find the ops of a case's first sample that are not TOSA's; None where PyTorch or we do not take it."""
    torch.manual_seed(case.seed)
    sample = next(iter(case.samples()), None)
    if sample is None:
        return None
    call = sample.calls[0]
    try:
        module = flambeau.compile(export(sample.module, call.args, dict(call.kwargs), None), output_type="tosa")
    except CompileError:
        return None
    return frozenset(op.name for op in module.op.walk() if op.name.split(".")[0] not in ("tosa", "func", "builtin"))


def count(cases: Iterable[Case]) -> Counter[str]:
    """How many cases have which foreign ops; fails for those that have no reason to."""
    found: Counter[str] = Counter()
    for case in cases:
        ops = foreign(case)
        if ops is None:
            continue
        assert case.name in NOT_STATIC or ops <= CHECKS | EMPTY, f"{case.id}: {sorted(ops)}"
        found[" ".join(sorted(ops))] += 1
    return found


@pytest.mark.long
def test_a_sample_of_the_op_cases_is_pure_but_for_checks_and_empty_tensors() -> None:
    """One case in 20; `--full-models` has them all."""
    found = count(list(load_suite("ops", ["float32"]).cases.values())[::20])
    assert found[""] > 20


@pytest.mark.full_models
@pytest.mark.parametrize("suite, least", [("ops", 475), ("models", 48)])
def test_every_case_is_pure_but_for_checks_and_empty_tensors(suite: str, least: int) -> None:
    found = count(load_suite(suite, ["float32"]).cases.values())
    for ops, number in found.most_common():
        print(f"{suite}: {number} {ops or 'pure'}")
    assert found[""] >= least
