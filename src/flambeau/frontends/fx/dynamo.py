"""`torch.compile(model, backend="flambeau")`: what Dynamo captures runs on an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from flambeau.frontends.fx.layouts import laid_out, layouts_of, sizes_at_run_time
from flambeau.ir.arrays import GradientError


def flambeau_backend(
    graph_module: GraphModule, example_inputs: Sequence[Any], compile_graph: Callable[[GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Compile the forward graph that AOTAutograd makes of a captured program."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]
    from torch.utils._python_dispatch import _disable_current_modes

    def compiler(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        layouts, sizes = layouts_of(graph.graph), sizes_at_run_time(graph.graph)
        # Dynamo compiles under a fake tensor mode, in which the graph's constants cannot be read.
        with _disable_current_modes():
            run = compile_graph(graph)

        def call(*arguments: Any) -> Any:
            # Weights come as arguments too, and most of them require gradients, which a compiled program has none of.
            results = run(*(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments))
            return laid_out(results, layouts, sizes(arguments))

        return make_boxed_func(call)

    has_gradient = _has_gradient(graph_module)
    with torch.no_grad():
        compiled = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)(graph_module, example_inputs)

    def inference(*arguments: Any) -> Any:
        if has_gradient and torch.is_grad_enabled():
            raise GradientError(
                "the result of this part of the model requires a gradient, and a compiled program gives none: call it "
                "under torch.no_grad() or torch.inference_mode(); to train, compile with another backend"
            )
        return compiled(*arguments)

    return inference


def _has_gradient(graph_module: GraphModule) -> bool:
    """Whether PyTorch would give a result of the graph a gradient. Dynamo captures anew where the grad mode differs."""
    (results,) = next(reversed(graph_module.graph.nodes)).args
    metas = [node.meta.get("example_value") for node in results if hasattr(node, "meta")]
    return any(isinstance(m, torch.Tensor) and m.requires_grad for m in metas)
