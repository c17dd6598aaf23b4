"""The backend that `torch.compile(model, backend="flambeau")` finds by its entry point."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a captured graph. For inference: a graph whose result requires a gradient raises when it is called.

    `torch.compile`'s `options` are `engine` (`iree` if it is not given), and the options of that engine.
    """
    from flambeau.api import compile as compile_module
    from flambeau.api import load
    from flambeau.engines import get_engine
    from flambeau.frontends.fx.dynamo import flambeau_backend

    if options.pop("mode", None) not in (None, "default"):
        raise ValueError("the backend 'flambeau' has no modes: leave `mode` out")
    chosen = dict(options.pop("options", None) or {})
    if options:
        raise ValueError(f"the backend 'flambeau' does not know {', '.join(options)}")
    engine = get_engine(chosen.pop("engine", "iree"))
    _check_options(chosen, engine)
    output_type = "torch" if engine.name == "eager" else "linalg-on-tensors"
    return flambeau_backend(
        graph_module,
        example_inputs,
        lambda graph: load(compile_module(graph, output_type=output_type), engine=engine, **chosen),
    )


def _check_options(options: dict[str, Any], engine: Any) -> None:
    """Raise for an option that the engine does not have."""
    parameters = inspect.signature(engine.compile).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = ["engine", *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"torch.compile's `options` have {name!r}, which is no option here; {hint}")
