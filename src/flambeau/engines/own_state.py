"""State in variables, for engines that have none: the program over tensors of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flambeau.engines.errors import EngineError
from flambeau.ir.arrays import copied
from flambeau.ir.module import Weights
from flambeau.lowering.globals import GET_STATE


def over_own_state(module: Any, engine: str) -> Any:
    """Return a module with its state as arguments, over copies of what that starts with; one without state as it is.

    What is loaded from it keeps the copies between calls, as if they were variables.
    """
    if GET_STATE not in module.signatures:
        return module
    functional = module.functional
    if functional is None:
        raise EngineError(
            f"{engine} has no variables, and this program was read from a file that keeps its state in them: "
            "compile the model with state='functional'"
        )
    states = {a.state for s in functional.signatures.values() for a in s.arguments if a.state is not None}
    own = {name: copied(tensor) if name in states else tensor for name, tensor in functional.weights.items()}
    return replace(functional, weights=Weights(own))
