"""Checks that a program consists of the dialects of its target, each a pass."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, diagnostic_for
from flambeau.ir.module_pass import TorchPass


class _VerifyDialects(TorchPass):
    allowed: ClassVar[frozenset[str]]

    def run(self, module: ModuleOp) -> ModuleOp:
        dialects = ", ".join(sorted(self.allowed - {"builtin"}))
        reason = f"the program is to consist of {dialects}"
        found = [op for op in module.walk() if op.name.partition(".")[0] not in self.allowed]
        if found:
            raise CompileError([diagnostic_for(op, self.name, reason) for op in found])
        return module


class VerifyLinalgOnTensors(_VerifyDialects):
    """Check that a program is linalg on tensors, with arithmetic and control flow, and nothing else."""

    name = "torch-verify-linalg-on-tensors-backend-contract"
    allowed = frozenset(
        {"builtin", "func", "linalg", "tensor", "arith", "math", "complex", "scf", "cf", "tm_tensor", "ml_program"}
    )


class VerifyStablehlo(_VerifyDialects):
    """Check that a program is StableHLO and CHLO; one of dynamic sizes computes these in shape, tensor and arith."""

    name = "torch-verify-stablehlo-backend-contract"
    allowed = frozenset(
        {"builtin", "func", "stablehlo", "chlo", "sdy", "tensor", "arith", "math", "shape", "scf", "cf", "ml_program"}
    )


class VerifyTosa(_VerifyDialects):
    """Check that a program is TOSA; one of dynamic sizes computes these in tensor and arith."""

    name = "torch-verify-tosa-backend-contract"
    allowed = frozenset({"builtin", "func", "tosa", "tensor", "arith", "math", "scf", "cf", "ml_program"})
