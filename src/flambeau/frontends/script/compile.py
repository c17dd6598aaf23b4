"""Whatever the user has, as TorchScript; and TorchScript as MLIR."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.jit._trace import TracerWarning
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.script.annotations import ArgumentBound, ExampleArgs
from flambeau.frontends.script.locations import frames_of_error
from flambeau.frontends.script.objects import FORWARD, ObjectGraphImporter
from flambeau.ir.locations import Frame, location_of_frames
from flambeau.ir.module import Weights

_TORCH = os.path.dirname(torch.__file__) + os.sep


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence PyTorch's warnings that TorchScript is deprecated and that a trace leaves things out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=TracerWarning)
        yield


def script_module(model: Any, example_args: Any = None, use_tracing: bool = False) -> Any:
    """Convert a module or function to TorchScript by compiling it, or by tracing it with the example arguments."""
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return model
    if not callable(model):
        raise TypeError(f"TorchScript takes an nn.Module or a function, not {type(model).__name__}")
    if use_tracing and example_args is None:
        raise TypeError("tracing needs example arguments")
    try:
        with _quiet():
            if not use_tracing:
                return torch.jit.script(model)
            values = ExampleArgs.of(example_args).values
            return torch.jit.trace(model, values, check_trace=False, strict=False)
    except Exception as error:
        summary = f"TorchScript could not {'trace' if use_tracing else 'compile'} the model"
        raise CompileError([_failure(error, use_tracing)], summary=summary) from error


def _failure(error: Exception, traced: bool) -> Diagnostic:
    text = str(error).strip()
    frames = frames_of_error(text)
    if traced or not frames:
        stack = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_TORCH)]
        frames = tuple(Frame(f.filename, f.lineno or 0, f.name) for f in reversed(stack) if f.filename != __file__)
    reason = text.split("\n  File ", 1)[0].split("\n\n", 1)[0].strip().rstrip(":")
    hint = "Tracing takes tensors and containers of them; script the model." if "can be traced" in text else ""
    kind, location = type(error).__name__, location_of_frames(frames[::-1])
    return Diagnostic("trace" if traced else "script", reason or kind, op=kind, location=location, hint=hint)


def load_archive(path: str | os.PathLike[str]) -> Any:
    """Load the program in a file that `torch.jit.save` wrote; CompileError if it is none."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise CompileError([Diagnostic("load", f"there is no file {name}")])
    if os.path.isdir(name) or os.path.getsize(name) == 0:
        what = "a folder" if os.path.isdir(name) else "empty"
        raise CompileError([Diagnostic("load", f"{name} is {what}, not a TorchScript archive")])
    try:
        with _quiet():
            return torch.jit.load(name, map_location="cpu")
    except Exception as error:
        reason = f"{name} is not a TorchScript archive"
        hint = "torch.jit.save writes such files; what torch.save writes holds weights, not a program."
        raise CompileError([Diagnostic("load", reason, hint=hint)]) from error


def import_script_module(
    script: Any,
    bounds: Sequence[ArgumentBound] = (),
    name: str = FORWARD,
    exported: Sequence[str] | None = (FORWARD,),
) -> tuple[ModuleOp, Weights]:
    """Import TorchScript as a graph of objects.

    `bounds` say what is known about the arguments of forward, which is called `name` in the result. `exported` are the
    members of the root that callers see; None is all members of all objects.
    """
    importer = ObjectGraphImporter(bounds, name, exported)
    is_function = isinstance(script, torch.jit.ScriptFunction)
    with _quiet():
        module = importer.import_function(script) if is_function else importer.import_module(script)
    return module, importer.weights
