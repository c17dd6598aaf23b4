"""`torch.compile(model, backend="flambeau")`: what Dynamo captures runs on an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule


def flambeau_backend(
    graph_module: GraphModule, example_inputs: Sequence[Any], compile_graph: Callable[[GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """Compile the forward graph that AOTAutograd makes of a captured program."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]
    from torch.utils._python_dispatch import _disable_current_modes

    def compiler(graph: GraphModule, inputs: Sequence[Any]) -> Any:
        # Dynamo compiles under a fake tensor mode, in which the graph's constants cannot be read.
        with _disable_current_modes():
            run = compile_graph(graph)

        def call(*arguments: Any) -> Any:
            # Weights come as arguments too, and most of them require gradients, which a compiled program has none of.
            return run(*(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments))

        return make_boxed_func(call)

    with torch.no_grad():
        return aot_autograd(fw_compiler=compiler, inference_compiler=compiler)(graph_module, example_inputs)
