"""`torch.compile(model, backend="flambeau")`: what Dynamo captures runs on an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from flambeau.frontends.fx.bound_weights import BoundProgram, weights_to_bind, with_attributes
from flambeau.frontends.fx.expansion import plain_ops
from flambeau.frontends.fx.layouts import laid_out, layouts_of, sizes_at_run_time


def flambeau_backend(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    compile_graph: Callable[[GraphModule], Any],
    weights: str = "passed",
) -> Callable[..., Any]:
    """Compile the graphs that AOTAutograd makes of a captured program: forward, and backward if it is trained.

    Unless `weights` are to be passed, what `compile_graph` gives is a program that can be had with other weights, and
    large parameters of the model are such weights: `compared` in each call, or `tracked` by PyTorch's version counters.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]
    from torch.utils._python_dispatch import _disable_current_modes

    trains = _has_gradient(graph_module)

    def compiler(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        layouts, sizes = layouts_of(graph.graph), sizes_at_run_time(graph.graph)
        # Dynamo compiles under a fake tensor mode, in which the graph's constants cannot be read.
        with _disable_current_modes():
            held = weights_to_bind(inputs, example_inputs) if weights != "passed" and not trains else {}
            if held:
                bound: Any = compile_graph(with_attributes(graph, held))
                run: Any = BoundProgram(bound, held, lambda: compile_graph(graph), weights == "tracked")
            if not held or bound.random_states:
                run = compile_graph(graph)

        is_random = bool(getattr(run, "random_states", ()))

        def call(*arguments: Any) -> Any:
            if is_random:  # PyTorch's own generator says what is drawn: torch.manual_seed() makes it the same again.
                run.seed(int(torch.randint(_SEEDS, ())))
            # Weights come as arguments too, and most of them require gradients, which a compiled program has none of.
            results = run(*(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments))
            return laid_out(results, layouts, sizes(arguments))

        return make_boxed_func(call)

    # AOTAutograd cuts a program that is trained in two: the second computes the gradients from what the first kept.
    with plain_ops() if trains else torch.no_grad():
        compile_parts = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler)
        compiled: Callable[..., Any] = compile_parts(graph_module, example_inputs)
    return compiled


_SEEDS = (1 << 63) - 1


def _has_gradient(graph_module: GraphModule) -> bool:
    """Tell whether a result of the graph requires a gradient. Dynamo captures anew where the grad mode differs."""
    (results,) = next(reversed(graph_module.graph.nodes)).args
    metas = [node.meta.get("example_value") for node in results if hasattr(node, "meta")]
    return any(isinstance(m, torch.Tensor) and m.requires_grad for m in metas)
