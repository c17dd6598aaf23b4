"""The backend that `torch.compile(model, backend="flambeau")` finds by its entry point."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

WEIGHTS = ("passed", "tracked", "compared")
"""How large weights come to a program: as arguments; or bound to it, so that IREE packs them once. Then PyTorch's
version counters say whether they changed, which a write through `.data` does not move, or their contents are compared
in each call. The first is the default: it is never wrong, keeps no copy, and for one row it is the fastest but one."""


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a captured graph. For inference: a graph whose result requires a gradient raises when it is called.

    `torch.compile`'s `options` are `engine` (`iree` if it is not given), `weights` (one of `WEIGHTS`), and the options
    of that engine.
    """
    from flambeau.api import compile as compile_module
    from flambeau.api import load
    from flambeau.engines import get_engine, output_type_of
    from flambeau.frontends.fx.dynamo import flambeau_backend

    if options.pop("mode", None) not in (None, "default"):
        raise ValueError("the backend 'flambeau' has no modes: leave `mode` out")
    chosen = dict(options.pop("options", None) or {})
    if options:
        raise ValueError(f"the backend 'flambeau' does not know {', '.join(options)}")
    engine = get_engine(chosen.pop("engine", "iree"))
    weights = chosen.pop("weights", WEIGHTS[0])
    if weights not in WEIGHTS:
        raise ValueError(f"torch.compile's option 'weights' is {' or '.join(map(repr, WEIGHTS))}, not {weights!r}")
    _check_options(chosen, engine)
    output_type = output_type_of(engine)
    return flambeau_backend(
        graph_module,
        example_inputs,
        lambda graph: load(compile_module(graph, output_type=output_type), engine=engine, **chosen),
        weights if getattr(engine, "binds_weights", False) else "passed",
    )


def _check_options(options: dict[str, Any], engine: Any) -> None:
    """Raise for an option that the engine does not have."""
    parameters = inspect.signature(engine.compile).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = ["engine", "weights", *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"torch.compile's `options` have {name!r}, which is no option here; {hint}")
