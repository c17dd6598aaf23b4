"""The backend that `torch.compile(model, backend="flambeau")` finds by its entry point."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

WEIGHTS = ("passed", "tracked", "compared")
"""How large weights come to a program: as arguments; or bound to it, so that IREE packs them once. Then PyTorch's
version counters say whether they changed, which a write through `.data` does not move, or their contents are compared
in each call. The first is the default: it is never wrong, keeps no copy, and for one row it is the fastest but one."""

FALLBACKS = ("error", "eager")
"""What becomes of a graph that cannot be compiled: the error is raised, or PyTorch runs the graph."""

MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"weights": "tracked"},
}
"""The options that `torch.compile`'s modes stand for."""

SMALL_WORK = 1 << 20
"""A graph of at most so many additions and multiplications takes less time than it takes to wake other threads."""

_OURS = ("engine", "target", "weights", "fallback")
_COUNTS = ("graphs", "compiled", "cache_hits", "cache_misses", "cache_bypasses", "left_to_pytorch", "fallbacks")


def counters() -> dict[str, int]:
    """Return what this backend has done since `torch._dynamo.utils.counters`, which holds these counts, was cleared.

    `graphs` that came to be compiled, of which some were `compiled` and others found on disk (`cache_hits`);
    `cache_misses` are kept for the next time, `cache_bypasses` cannot be. Graphs without anything to compute are
    `left_to_pytorch`. `fallbacks` are those that could not be compiled, with `fallback="eager"`.
    """
    from torch._dynamo.utils import counters as of_dynamo

    return {name: of_dynamo["flambeau"][name] for name in _COUNTS}


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a graph that Dynamo has captured, for inference or for training.

    `torch.compile`'s `options` are `engine` (`iree` if it is not given), `target` (the output type that programs are
    lowered to for it), `weights` (one of `WEIGHTS`), `fallback` (one of `FALLBACKS`), and the options of that engine;
    its modes are `MODES`.
    """
    from flambeau.diagnostics import CompileError
    from flambeau.engines import EngineError, get_engine
    from flambeau.frontends.fx.dynamo import GraphBackend

    chosen = _chosen(options)
    engine = get_engine(chosen.pop("engine", "iree"))
    output_type = _target(engine, chosen.pop("target", None))
    weights, fallback = chosen.pop("weights", WEIGHTS[0]), chosen.pop("fallback", FALLBACKS[0])
    _check_choice("weights", weights, WEIGHTS)
    _check_choice("fallback", fallback, FALLBACKS)
    _check_options(chosen, engine)
    run = GraphBackend(
        lambda graph, held: _compiled(graph, held, engine, output_type, chosen),
        weights if getattr(engine, "binds_weights", False) else "passed",
        (CompileError, EngineError) if fallback == "eager" else (),
        takes_sizes=getattr(engine, "takes_sizes", True),
    )
    return run(graph_module, example_inputs)


def _compiled(graph: Any, held: Mapping[str, Any], engine: Any, output_type: str, options: Mapping[str, Any]) -> Any:
    """Compile a graph of ATen ops, or find it compiled on disk."""
    from flambeau.api import compile as compile_module
    from flambeau.api import load
    from flambeau.diagnostics import CompileError
    from flambeau.graph_cache import GraphCache

    chosen = {**_placed(graph, engine, options), **options}
    compile_graph = GraphCache(
        engine,
        output_type,
        chosen,
        lambda g: load(compile_module(g, output_type=output_type), engine=engine, **chosen),
    )
    try:
        return compile_graph(graph, held)
    except CompileError as error:
        error.summary += "\ntorch.compile(..., options={'fallback': 'eager'}) leaves such graphs to PyTorch"
        raise


def _placed(graph: Any, engine: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the device for a graph where nobody says: that of its tensors, or one thread for little work."""
    import torch

    from flambeau.frontends.fx.captured import devices_of, work_of

    if "device" in options:
        return {}
    places = {device for device in devices_of(graph.graph) if device.type not in ("cpu", "meta")}
    if places:
        of_device = getattr(engine, "device_of", None)
        place = sorted(places, key=str)[0]
        if of_device is None:
            raise ValueError(
                f"the graph has tensors on {place}, and the engine {engine.name!r} reads the memory of the CPU: "
                "torch.compile(..., options={'engine': 'xla'}) runs on GPUs"
            )
        return {"device": of_device(place.type, place.index or 0)}
    for_little = getattr(engine, "device_for_little_work", None)
    if for_little is None:
        return {}
    work = work_of(graph.graph)
    return {"device": for_little} if torch.get_num_threads() == 1 or (work or SMALL_WORK + 1) <= SMALL_WORK else {}


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, with those that a mode stands for."""
    others = dict(options)
    mode, given = others.pop("mode", None) or "default", others.pop("options", None)
    if others:
        raise ValueError(f"the backend 'flambeau' does not know {', '.join(others)}")
    if mode not in MODES:
        known = " and ".join(map(repr, MODES))
        raise ValueError(
            f"the backend 'flambeau' has no mode {mode!r}: it has {known}. IREE's profile \"model\", the default, is "
            'its fastest code already; options={"weights": "tracked"} lets it pack weights once'
        )
    return {**MODES[mode], **dict(given or {})}


def _target(engine: Any, target: str | None) -> str:
    """Return the output type that programs are lowered to for an engine; ValueError for one that it does not take."""
    from flambeau.api import OutputType
    from flambeau.engines import output_type_of

    usual = output_type_of(engine)
    if target is None:
        return usual
    output = OutputType.get(target)
    takes = getattr(engine, "output_types", None)
    if takes is not None and output not in takes:
        raise ValueError(f"the engine {engine.name!r} runs {' or '.join(map(str, takes))}, not {str(output)!r}")
    return output


def _check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"torch.compile's option {name!r} is {' or '.join(map(repr, known))}, not {value!r}")


def _check_options(options: Mapping[str, Any], engine: Any) -> None:
    """Raise for an option that the engine does not have."""
    parameters = inspect.signature(engine.compile).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [*_OURS, *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"torch.compile's `options` have {name!r}, which is no option here; {hint}")
