"""Every op that linalg takes, StableHLO and TOSA take too, or say why not: there is no third state."""

from __future__ import annotations

import pytest
import torch

import flambeau
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.stablehlo import lower as stablehlo
from flambeau.lowering.stablehlo.rules import CANNOT as NOT_IN_STABLEHLO
from flambeau.lowering.tosa import lower as tosa
from flambeau.lowering.tosa.rules import CANNOT as NOT_IN_TOSA

TARGETS = {"stablehlo": (stablehlo.rules, NOT_IN_STABLEHLO), "tosa": (tosa.rules, NOT_IN_TOSA)}


@pytest.mark.parametrize("target", TARGETS)
def test_no_third_state(target: str) -> None:
    rules, cannot = TARGETS[target]
    have, wanted = set(rules()), set(linalg_rules())
    assert not wanted - have, "neither lowered nor explained"
    assert set(cannot) <= wanted, "explained, but linalg has no such rule"
    assert len(cannot) < 40
    assert all(len(reason) > 10 for reason in cannot.values())


@pytest.mark.parametrize(
    ("target", "reason"),
    [("tosa", "TOSA has no complex numbers"), ("stablehlo", "complex numbers are pairs of 32- or 64-bit floats")],
)
def test_what_cannot_be_expressed_is_named_with_the_reason(target: str, reason: str) -> None:
    x = torch.ones(3, dtype=torch.float16)
    with pytest.raises(flambeau.CompileError, match=f"aten.complex: .*{reason}"):
        flambeau.compile(torch.complex, (x, x), output_type=target)
