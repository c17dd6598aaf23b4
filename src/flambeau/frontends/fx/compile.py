"""Whatever PyTorch program the user has, as something that can be imported."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.fx.exported import Keep, import_exported_program, import_graph_module
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.ir.locations import location_of_trace
from flambeau.ir.module import Signature, Weights

Program = Callable[[Keep, str], tuple[ModuleOp, Weights, Signature]]


def import_model(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    timings: dict[str, float],
) -> Program:
    """Export the model where that is needed; the result imports it."""
    if isinstance(model, torch.export.ExportedProgram):
        return lambda keep, name: import_exported_program(model, keep, name)
    if isinstance(model, torch.fx.GraphModule) and args is None:
        return lambda keep, name: import_graph_module(model, keep, name)
    if not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise TypeError(
                f"compile() takes an nn.Module, an ExportedProgram, an fx.GraphModule or a function, "
                f"not {type(model).__name__}"
            )
        model = FunctionModule(model)
    if args is None and kwargs is None:
        raise TypeError("compile() needs example inputs for an nn.Module: compile(model, (x,))")
    if args is not None and not isinstance(args, (tuple, list)):
        args = (args,)
    start = time.process_time()
    program = export(model, tuple(args or ()), dict(kwargs or {}), dynamic_shapes)
    timings["export"] = time.process_time() - start
    return lambda keep, name: import_exported_program(program, keep, name)


class FunctionModule(torch.nn.Module):
    """A plain function as a module, which is what torch.export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def export(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Any:
    """`torch.export.export`; its failures become CompileErrors that show the user's line."""
    register_known_containers()
    if isinstance(model, FunctionModule) and isinstance(dynamic_shapes, (tuple, list)):
        dynamic_shapes = {"args": tuple(dynamic_shapes)}
    try:
        with _whole_stacks(), _quiet():
            return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as e:
        raise CompileError([_export_failure(e)], summary="torch.export could not trace the model") from e


@contextmanager
def _whole_stacks() -> Iterator[None]:
    """Make torch.export record the user's functions: of a stack, it keeps the frames named `forward` only."""
    from torch.fx.proxy import TracerBase

    hook = "_filter_traceback_frames"
    original = getattr(TracerBase, hook, None)
    if original is None:
        yield
        return
    setattr(TracerBase, hook, lambda tracer, stack: _model_frames(stack))
    try:
        yield
    finally:
        setattr(TracerBase, hook, original)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.export from printing half of a graph before it raises: the exception says what is to be said."""
    from torch.export import _trace

    loggers = [logging.getLogger(f"torch.{name}") for name in ("export", "fx.experimental.symbolic_shapes")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    vars(_trace)["print"] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del vars(_trace)["print"]
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


_TORCH = os.path.dirname(torch.__file__) + os.sep
_TORCH_MODULES = os.path.join(_TORCH, "nn", "modules") + os.sep


def _model_frames(stack: traceback.StackSummary) -> traceback.StackSummary:
    """From the model's `forward` inwards: the user's frames, and those of PyTorch's own modules."""
    kept = [f for f in stack if not f.filename.startswith(_TORCH) or f.filename.startswith(_TORCH_MODULES)]
    start = next((i for i, frame in enumerate(kept) if frame.name == "forward"), len(kept))
    ours = [f for f in kept[start:] if f.filename not in (__file__, "<string>") and "_call_impl" not in f.name]
    return traceback.StackSummary.from_list(ours)


def _export_failure(error: Exception) -> Diagnostic:
    trace = "".join(_model_frames(traceback.extract_tb(error.__traceback__)).format())
    reason = str(error).strip().split("\n\n")[0]
    hint = ""
    if "data-dependent" in str(error) or "GuardOnDataDependent" in type(error).__name__:
        hint = (
            "The program branches on the value of a tensor. Write the choice with torch.where, "
            "or assert what is known about the value with torch._check."
        )
    elif isinstance(error, TypeError):
        hint = "Check the example inputs against the model's forward()."
    return Diagnostic("export", reason, op=type(error).__name__, location=location_of_trace(trace), hint=hint)
