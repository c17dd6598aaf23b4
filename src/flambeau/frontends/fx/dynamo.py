"""`torch.compile(model, backend="flambeau")`: what Dynamo captures runs on an engine."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import GraphModule

from flambeau.diagnostics import CompileError
from flambeau.frontends.fx.bound_weights import BoundProgram, weights_to_bind, with_attributes
from flambeau.frontends.fx.captured import Outputs, computes, devices_of, giving, size_arguments
from flambeau.frontends.fx.expansion import plain_kernels, plain_ops
from flambeau.frontends.fx.layouts import Layouts

COUNTERS = "flambeau"
"""Where in `torch._dynamo.utils.counters` the counts of this backend are."""


class CompileGraph(Protocol):
    """Compiles a graph of ATen ops. `held` are attributes of it by name, whose contents are weights of the program."""

    def __call__(self, graph: GraphModule, held: Mapping[str, torch.Tensor]) -> Any: ...


@dataclass(frozen=True)
class GraphBackend:
    """What becomes of the graphs that Dynamo captures."""

    compile_graph: CompileGraph
    weights: str = "passed"
    """`passed`: as arguments. Large ones may be the program's own, which can be had with others: then they are
    `compared` in each call, or `tracked` by PyTorch's version counters."""
    errors: tuple[type[Exception], ...] = ()
    """With which errors a graph is left to PyTorch; with none, they are raised."""
    takes_sizes: bool = True
    """Whether a program may take sizes as arguments; otherwise it is compiled for each."""

    def __call__(self, graph_module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile the graphs that AOTAutograd makes of a captured program: forward, and backward if it is trained."""
        from torch._dynamo.backends.common import aot_autograd

        trains = _has_gradient(graph_module)

        def compiler(graph: GraphModule, inputs: Sequence[Any]) -> Any:
            return self.compiled(graph, inputs, () if trains else example_inputs)

        # AOTAutograd cuts a program that is trained in two: the second computes the gradients from what the first kept.
        compile_parts = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler)
        with plain_ops() if trains else _inference():
            compiled: Callable[..., Any] = compile_parts(graph_module, example_inputs)
        return compiled

    def compiled(self, graph: GraphModule, inputs: Sequence[Any], examples: Sequence[Any]) -> Any:
        """Compile one of these graphs; `examples` are the real arguments where they may be bound as weights."""
        from torch.utils._python_dispatch import _disable_current_modes

        is_abstract = any(device.type == "meta" for device in devices_of(graph.graph))
        if is_abstract or not computes(graph.graph):
            count("left_to_pytorch")
            return _boxed(graph)
        count("graphs")
        # Dynamo compiles under a fake tensor mode, in which the graph's constants cannot be read.
        with _disable_current_modes():
            try:
                return self._call_of(graph, inputs, examples)
            except self.errors as error:
                return _left_to_pytorch(graph, error)

    def _call_of(self, graph: GraphModule, inputs: Sequence[Any], examples: Sequence[Any]) -> Any:
        """Compile a graph to a function of the list of its arguments."""
        layouts, outputs = Layouts(graph.graph), Outputs.of(graph.graph)
        sizes = [] if self.takes_sizes else size_arguments(graph.graph)
        if sizes:
            run: Any = SizedPrograms(self, graph, outputs, sizes)
            run.prepare(inputs)
        else:
            run = _seeded(self._program(giving(graph, outputs.computed, {}), inputs, examples))
        is_plain = [kind for kind, _ in outputs.sources] == ["computed"] * len(outputs.computed)
        is_bare = len(outputs.computed) == 1
        tensor = torch.Tensor

        def call(boxed: list[Any]) -> list[Any]:
            # Weights come as arguments too, and most of them require gradients, which a compiled program has none of.
            arguments = [a if type(a) is tensor and not a.requires_grad else _detached(a) for a in boxed]
            boxed.clear()
            given = run(*arguments)
            results = [given] if is_bare else given
            if not is_plain:
                results = outputs.gathered(results, arguments)
            return layouts.laid_out(results, arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _program(self, graph: GraphModule, inputs: Sequence[Any], examples: Sequence[Any]) -> Any:
        held = weights_to_bind(inputs, examples) if self.weights != "passed" and examples else {}
        if held:
            owner, names = with_attributes(graph, held)
            bound: Any = self.compile_graph(owner, {names[i]: weight.contents for i, weight in held.items()})
            if not bound.random_states:
                return BoundProgram(bound, held, lambda: self.compile_graph(graph, {}), self.weights == "tracked")
        return self.compile_graph(graph, {})


class SizedPrograms:
    """A graph that takes sizes as numbers, compiled for the sizes that it is called with: the last few are kept."""

    def __init__(self, backend: GraphBackend, graph: GraphModule, outputs: Outputs, sizes: Sequence[int]) -> None:
        self._backend, self._graph, self._outputs = backend, graph, outputs
        self._sizes, self._others = sizes, _others(graph, sizes)
        self._found: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Compile for the sizes that were captured with, so that what cannot be compiled is said at once."""
        hints = [inputs[i].node.hint if isinstance(inputs[i], torch.SymInt) else inputs[i] for i in self._sizes]
        if all(isinstance(hint, int) for hint in hints):
            self._at(tuple(hints))

    def __call__(self, *arguments: Any) -> Any:
        run = self._at(tuple(arguments[i] for i in self._sizes))
        return run(*(arguments[i] for i in self._others))

    def _at(self, sizes: tuple[int, ...]) -> Any:
        run = self._found.get(sizes)
        if run is None:
            fixed = dict(zip(self._sizes, sizes, strict=True))
            graph = giving(self._graph, self._outputs.computed, fixed)
            run = self._found[sizes] = _seeded(self._backend.compile_graph(graph, {}))
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(sizes)
        return run


_KEPT = 32
_SEEDS = (1 << 63) - 1


@contextmanager
def _inference() -> Iterator[None]:
    with plain_kernels(), torch.no_grad():
        yield


def count(what: str) -> None:
    """Count an event where Dynamo counts its own."""
    from torch._dynamo.utils import counters

    counters[COUNTERS][what] += 1


def _seeded(run: Any) -> Any:
    """Let PyTorch's own generator say what a program draws: `torch.manual_seed()` makes it the same again."""
    if not getattr(run, "random_states", ()):
        return run

    def call(*arguments: Any) -> Any:
        run.seed(int(torch.randint(_SEEDS, ())))
        return run(*arguments)

    return call


def _others(graph: GraphModule, sizes: Sequence[int]) -> list[int]:
    arguments = sum(node.op == "placeholder" for node in graph.graph.nodes)
    return [i for i in range(arguments) if i not in sizes]


def _detached(value: Any) -> Any:
    if value is None:  # a token of an op with effects: AOTAutograd orders these by it, as a tensor without elements
        return torch.empty(0)
    return value.detach() if isinstance(value, torch.Tensor) else value


def _boxed(graph: GraphModule) -> Any:
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]

    return make_boxed_func(graph.forward)


def _left_to_pytorch(graph: GraphModule, error: Exception) -> Any:
    """Let PyTorch run a graph that cannot be compiled, and say why."""
    count("fallbacks")
    if isinstance(error, CompileError):
        reason = "; ".join(dict.fromkeys(f"{d.op}: {d.reason}" if d.op else d.reason for d in error.diagnostics))
    else:
        reason = str(error).strip().split("\n")[0]
    warnings.warn(f"PyTorch runs a graph that cannot be compiled: {reason}", FallbackWarning, stacklevel=2)
    return _boxed(graph)


class FallbackWarning(UserWarning):
    """A graph is left to PyTorch."""


def _has_gradient(graph_module: GraphModule) -> bool:
    """Tell whether a result of the graph requires a gradient. Dynamo captures anew where the grad mode differs."""
    (results,) = next(reversed(graph_module.graph.nodes)).args
    metas = [node.meta.get("example_value") for node in results if hasattr(node, "meta")]
    return any(isinstance(m, torch.Tensor) and m.requires_grad for m in metas)
