"""The table of decompositions, and what several of them need."""

from __future__ import annotations

from xdsl.ir import SSAValue

from flambeau.dialects.torch.types import BOOL
from flambeau.infer.builder import TorchBuilder
from flambeau.ir.conversion import RuleTable

DECOMPOSITIONS = RuleTable("decompositions")
decomposition = DECOMPOSITIONS


def require_element(t: TorchBuilder, condition: SSAValue, message: str) -> None:
    """Make the program fail with `message` unless a tensor with one element is true."""
    flag = t.op("aten.Bool.Tensor", (condition,), (BOOL,))[0]
    t.require(flag, message)
