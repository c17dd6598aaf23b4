"""Whatever PyTorch program the user has, as something that can be imported."""

from __future__ import annotations

import ast
import logging
import os
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.fx.assignments import noted_assignments, refuse_lost_assignments
from flambeau.frontends.fx.autocast import ambient_autocast
from flambeau.frontends.fx.expansion import TRACING
from flambeau.frontends.fx.exported import Keep, import_exported_program, import_graph_module
from flambeau.frontends.fx.numbers import depends_on, noted_numbers
from flambeau.frontends.fx.own_ops import whole_permutations
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.frontends.fx.state import memory_of, untouched
from flambeau.ir.locations import location_of_trace
from flambeau.ir.module import Signature, Weights

Program = Callable[[Keep, str, Sequence[torch.Tensor]], tuple[ModuleOp, Weights, Signature]]
"""Imports a program, given which ops stay whole, the name of the function, and which tensors others write."""


def import_model(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    timings: dict[str, float],
) -> Program:
    """Export the model where that is needed; the result imports it."""
    if isinstance(model, torch.export.ExportedProgram):
        if has_transforms(model):
            reason = "the exported program has steps of torch.func or torch.vmap in it, and not what they compute"
            hint = "Give the nn.Module itself and example inputs, or the result of run_decompositions()."
            raise CompileError([Diagnostic("import", reason, hint=hint)])
        return lambda keep, name, shared: import_exported_program(model, keep, name, None, shared)
    if isinstance(model, torch.fx.GraphModule) and args is None:
        return lambda keep, name, shared: import_graph_module(model, keep, name)
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
    autocast = ambient_autocast()
    program = export(model, tuple(args or ()), dict(kwargs or {}), dynamic_shapes)
    timings["export"] = time.process_time() - start
    return lambda keep, name, shared: import_exported_program(program, keep, name, autocast, shared)


class FunctionModule(torch.nn.Module):
    """A plain function as a module, which is what torch.export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def export(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Any:
    """Run `torch.export.export`; turn its failures into CompileErrors that show the user's line."""
    register_known_containers()
    if isinstance(model, FunctionModule) and isinstance(dynamic_shapes, (tuple, list)):
        dynamic_shapes = {"args": tuple(dynamic_shapes)}
    args, kwargs = _apart(model, args, kwargs)
    try:
        with (
            TRACING, whole_stacks(), quiet(), whole_permutations(), untouched(model) as reshaped,
            noted_assignments(model) as assigned_buffers, noted_numbers(model) as numbers,
            warnings.catch_warnings(record=True) as caught,
        ):  # fmt: skip
            warnings.simplefilter("always")
            program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
            if has_transforms(program):
                program = _export_below_transforms(model, args, kwargs, dynamic_shapes)
            changes = tuple(numbers)
            depends = bool(changes) and depends_on(changes, program, model, args, kwargs, dynamic_shapes)
    except Exception as e:
        raise CompileError([export_failure(e)], summary="torch.export could not trace the model") from e
    if reshaped:
        reason = f"forward() changes the shape of {' and '.join(reshaped)} itself, which a further call would see"
        hint = "Make a new tensor of the other shape: give `out=` one that has the shape of the result."
        raise CompileError([Diagnostic("export", reason, hint=hint)])
    if depends:
        names = ", ".join(dict.fromkeys(map(str, changes)))
        reason = f"forward() changes Python numbers that it computes with: {names}; they would stay what they were"
        raise CompileError([Diagnostic("export", reason, hint="Make what changes a buffer: register_buffer().")])
    refuse_lost_assignments(model, program, assigned_buffers)
    for warning in caught:
        if (assigned := _ASSIGNED.match(str(warning.message))) is not None:
            _refuse_lost_state(model, program, assigned[1].split(", "))
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno, registry=_WARNED)
    return program


def has_transforms(program: Any) -> bool:
    """Tell whether a program contains steps of `torch.func` or `torch.vmap` instead of the ops that they trace to."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(isinstance(t, torch.Tensor) and wrapped(t) for t in program.constants.values()):
        return True
    parts = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = [n.target for part in parts for n in part.graph.nodes if n.op == "call_function"]
    return any(getattr(t, "__module__", "") == "torch._functorch.predispatch" for t in targets)


def _export_below_transforms(model: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
    """Export a model as the ops that remain when PyTorch's function transforms are done."""
    from torch.export._trace import _export

    return _export(model, args, kwargs, dynamic_shapes, strict=False, pre_dispatch=False)


def _apart(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Copy those example inputs that share memory with each other or with a tensor of the model.

    `torch.export` takes two inputs that are one tensor for one input: what it does with the first it does with both.
    """
    seen = [extent for t in (*model.parameters(), *model.buffers()) if (extent := memory_of(t)) is not None]

    def apart(value: Any) -> Any:
        extent = memory_of(value) if type(value) in (torch.Tensor, torch.nn.Parameter) else None
        if extent is None:
            return value
        if not any(extent[0] < stop and start < extent[1] for start, stop in seen):
            seen.append(extent)
            return value
        storage = value.detach().untyped_storage().clone()
        copy = torch.empty(0, dtype=value.dtype).set_(storage, value.storage_offset(), value.shape, value.stride())
        return copy.requires_grad_(value.requires_grad)

    return pytree.tree_map(apart, (args, kwargs))


_WARNED: dict[Any, Any] = {}
"""What has been said to the user already, in the way of the module `warnings`."""

_ASSIGNED = re.compile(r"The tensor attributes? (.*) (?:was|were) assigned during export")


def _refuse_lost_state(model: torch.nn.Module, program: Any, paths: list[str]) -> None:
    """Raise if an attribute that `forward` assigns is read as well: each call would start from its first value."""
    read = {id(program.constants[t]) for t in program.graph_signature.lifted_tensor_constants if t in program.constants}
    lost = [path for path in paths if id(_at_path(model, path)) in read]
    if lost:
        reason = f"forward() assigns {', '.join(lost)}, which it also reads: the next call would not see the new value"
        hint = "Register it with register_buffer(), or write in place: copy_()."
        raise CompileError([Diagnostic("export", reason, hint=hint)])


def _at_path(model: Any, path: str) -> Any:
    """Look up the value at a path such as `self.layers[0]` in the model; None where the path leads nowhere."""
    value = model
    for name, key in re.findall(r"\.(\w+)|\[([^\]]*)\]", path.removeprefix("self")):
        try:
            value = value[ast.literal_eval(key)] if key else getattr(value, name)
        except (AttributeError, LookupError, TypeError, ValueError, SyntaxError):
            return None
    return value


@contextmanager
def whole_stacks() -> Iterator[None]:
    """Make torch.export record the user's functions: of a stack, it keeps the frames named `forward` only.

    Only while TRACING is held: the hook is PyTorch's own, for all threads.
    """
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
def quiet() -> Iterator[None]:
    """Keep torch.export from printing half of a graph before it raises: the exception says what is to be said.

    Only while TRACING is held: two threads at once would restore what the other has set.
    """
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
    """Keep the frames from the model's `forward` inwards: the user's, and those of PyTorch's own modules."""
    kept = [f for f in stack if not f.filename.startswith(_TORCH) or f.filename.startswith(_TORCH_MODULES)]
    start = next((i for i, frame in enumerate(kept) if frame.name == "forward"), len(kept))
    ours = [f for f in kept[start:] if f.filename not in (__file__, "<string>") and "_call_impl" not in f.name]
    return traceback.StackSummary.from_list(ours)


def export_failure(error: Exception) -> Diagnostic:
    """Describe what went wrong in a trace, with the line of the model that it was at."""
    trace = "".join(_model_frames(traceback.extract_tb(error.__traceback__)).format())
    reason = str(error).strip().split("\n\n")[0]
    hint = ""
    if "data-dependent" in str(error) or "GuardOnDataDependent" in type(error).__name__:
        hint = (
            "The program branches on the value of a tensor. Write the choice with torch.where, "
            "or assert what is known about the value with torch._check."
        )
        if "specialized integer" in reason:
            hint = "int() asks for a number that only the run time knows. Leave it out: .item() is an integer already."
    elif isinstance(error, TypeError):
        hint = "Check the example inputs against the model's forward()."
    elif "higher_order.scan" in trace and "data pointer" in reason:
        hint = "The body of a scan uses a tensor that is no argument, parameter or buffer: register it as a buffer."
    return Diagnostic("export", reason, op=type(error).__name__, location=location_of_trace(trace), hint=hint)
