"""The backend that `torch.compile(model, backend="flambeau")` finds by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a captured graph with the default engine. For inference: a graph that is trained raises."""
    from flambeau.api import compile as compile_module
    from flambeau.api import load
    from flambeau.frontends.fx.dynamo import flambeau_backend

    engine = options.get("options", {}).get("engine", "iree")
    return flambeau_backend(graph_module, example_inputs, lambda graph: load(compile_module(graph), engine=engine))
