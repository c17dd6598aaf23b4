"""Passes as xDSL has them: frozen dataclasses with a name, whose fields are the options."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from flambeau.diagnostics import CompileError, reporting


@dataclass(frozen=True)
class TorchPass(ModulePass):
    """A pass on programs in the torch dialect: a name and options around a plain function, which the API calls.

    The first line of a pass's docstring is what lists of passes say about it.
    """

    @abstractmethod
    def run(self, module: ModuleOp) -> ModuleOp:
        """Run the pass; gives the module, rewritten in place, or a new one."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run the pass for xDSL's own drivers: always in place, and with problems as xDSL's diagnostics."""
        try:
            with reporting(self.name):
                result = self.run(op)
        except CompileError as error:
            raise DiagnosticException(str(error)) from error
        if result is not op:
            op.body.detach_block(op.body.block)
            op.body.add_block(result.body.detach_block(result.body.block))
