"""The backend contract's checker cites the constraint that is broken."""

from __future__ import annotations

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.passes.backend_contract import Constraint, require_backend_contract, violations

BROKEN = {
    "C2": "func.func @f(%a: !torch.tensor<[2],f32>) { func.return }",
    "C3": "func.func @f(%a: !torch.vtensor<*,f32>) { func.return }",
    "C4": "func.func @f(%a: !torch.vtensor<[2],unk>) { func.return }",
    "C5": "func.func @f(%a: !torch.tuple<int, int>) { func.return }",
    "C6": "func.func @f(%a: i32) { %0 = arith.addi %a, %a : i32\n func.return }",
}


@pytest.mark.parametrize("constraint", BROKEN)
def test_a_broken_constraint_is_cited(constraint: str) -> None:
    """S69, S91: an unknown dtype or rank blocks the backend with a message."""
    with pytest.raises(CompileError) as caught:
        require_backend_contract(parse_module(BROKEN[constraint]))
    assert f"{constraint}: {Constraint[constraint].value}" in str(caught.value)


def test_what_satisfies_the_contract_passes() -> None:
    module = parse_module(
        """
        func.func @f(%a: !torch.vtensor<[2,?],f32>) -> !torch.vtensor<[2,?],f32> {
          %0 = torch.aten.relu %a : !torch.vtensor<[2,?],f32> -> !torch.vtensor<[2,?],f32>
          func.return %0 : !torch.vtensor<[2,?],f32>
        }
        """
    )
    assert require_backend_contract(module) is module


def test_a_violation_says_what_breaks_which_constraint() -> None:
    """The constraint, the op and the type are data: nobody has to read a message to know."""
    module = parse_module(
        """
        func.func @f(%a: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %0 = torch.aten.relu %a : !torch.vtensor<[2],f32> -> !torch.vtensor<*,f32>
          %1 = torch.tensor_static_info_cast %0 : !torch.vtensor<*,f32> to !torch.vtensor<[2],f32>
          func.return %1 : !torch.vtensor<[2],f32>
        }
        """
    )
    (found,) = violations(module)
    assert found.constraint is Constraint.C3
    assert found.op.name == "torch.aten.relu"
    assert found.type == found.op.results[0].type
    assert found.diagnostic.reason == found.reason
