"""The eager engine: PyTorch runs the torch dialect, op by op, at any stage of its way through the passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.engines.errors import EngineError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from flambeau.engines.eager.executable import EagerExecutable

__all__ = ["EagerEngine", "interpret"]


class EagerEngine:
    """Runs programs of the torch dialect with PyTorch. Nothing is compiled: it is there to check the stages."""

    name = "eager"

    output_types = ("torch", "raw")
    """What it runs."""

    output_type = "torch"
    """What programs are lowered to for it, where nobody says."""

    def compile(self, module: Any) -> EagerExecutable:
        """Make a module callable; it must be of output type `raw` or `torch`."""
        try:
            from flambeau.engines.eager.executable import EagerExecutable
        except ImportError as error:
            raise EngineError(f"the engine 'eager' needs `pip install torch`: {error}") from error
        return EagerExecutable(module.op, module.weights, module.signatures)


def interpret(module: ModuleOp, weights: Mapping[str, Any], function: str, args: Sequence[Any]) -> list[Any]:
    """Run one function, or one method of the root object, on torch tensors and Python values; gives its results."""
    from flambeau.engines.eager.interpreter import Interpreter

    return Interpreter(module, weights).call(function, args)
