"""module_context() and trace(): programs built in Python, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

from flambeau.api import Module, OutputType, paused_gc, stage
from flambeau.frontends.nn.core import context
from flambeau.frontends.nn.core.program import trace_function
from flambeau.frontends.nn.core.tracer import Tracer
from flambeau.ir.module import Weights


def trace(function: Callable[..., Any], *args: Any, name: str = "main", **kwargs: Any) -> Module:
    """Trace a function or an `nn.Module` to a program, without PyTorch.

    `args` and `kwargs` say what it is called with: `nn.TensorSpec` for a tensor, or a numpy array as an example of one;
    `int`, `float` or `bool` for a number that the caller passes; lists, tuples and dicts of these. Anything else is a
    constant. The function is called once.
    What it returns may be nested in lists, tuples and dicts. `flambeau.compile` takes the program further.
    """
    timings: dict[str, float] = {}
    with paused_gc(), stage(timings, "import"):
        op, weights, signature = trace_function(function, args, kwargs, name)
    return Module(op, weights, {name: signature}, OutputType.RAW, timings)


@contextmanager
def module_context(dtype: Any = "float64") -> Iterator[Module]:
    """Build torch dialect IR op by op: what is called within the block is added to the module.

    Tensors are objects, `!torch.tensor`, and results have no type before RefineTypes has run. `dtype` is the default
    for floats within the block. Contexts cannot be nested.
    """
    block = Block()
    module = Module(ModuleOp(Region(block)), Weights(), {}, OutputType.RAW)
    with context.default_dtype(dtype), context.building(Tracer(block, module.weights, objects=True)):
        yield module
