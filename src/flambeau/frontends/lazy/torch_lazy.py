"""Graphs of PyTorch's own LazyTensorCore, as TorchScript functions.

LazyTensorCore lowers what it has recorded to a TorchScript graph, and gives it out as text alone. PyTorch's parser of
that text makes the graph of it again: nothing is parsed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau.diagnostics import CompileError, Diagnostic


@dataclass(frozen=True)
class TorchLazyFunction:
    """What computes tensors of LazyTensorCore's, and what it is called with."""

    script: Any
    """A `torch.jit.ScriptFunction`."""
    inputs: tuple[torch.Tensor, ...]


def torch_lazy_function(tensors: Sequence[torch.Tensor]) -> TorchLazyFunction:
    """Take what is recorded for some tensors on the device `lazy`, which stay as they are: nothing is run."""
    for tensor in tensors:
        if tensor.device.type != "lazy" or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(
                f"from_torch_lazy() takes tensors of PyTorch's LazyTensorCore, not a {type(tensor).__name__} on "
                f"{tensor.device}: start it with torch._C._lazy_ts_backend._init(), and make tensors on 'lazy'"
            )
    held = [tensor.detach() for tensor in tensors]
    text = torch._C._lazy._get_tensors_backend(held)
    _, inputs = torch._C._lazy_ts_backend._get_tensors_ts_device_data_node(held)
    try:
        graph = torch._C.parse_ir(text)
    except RuntimeError as error:
        reason = f"PyTorch does not read the graph of its LazyTensorCore: {str(error).strip().splitlines()[0]}"
        hint = "A constant tensor or an infinite number has no text that it reads. Use flambeau.lazy.device() instead."
        raise CompileError([Diagnostic("import", reason, hint=hint)]) from error
    if len(list(graph.inputs())) != len(inputs):
        reason = (
            f"the graph of LazyTensorCore has {len(list(graph.inputs()))} inputs, and {len(inputs)} tensors for them"
        )
        raise CompileError([Diagnostic("import", reason)])
    script = torch._C._create_function_from_graph("main", graph)
    return TorchLazyFunction(script, tuple(inputs))
