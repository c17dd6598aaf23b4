"""Modules on disk: MLIR text with the weights beside it as safetensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FileLineColLoc,
    IntAttr,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Operation

from flambeau.api import Module, OutputType
from flambeau.diagnostics import CompileError, Diagnostic, diagnostic_for
from flambeau.dialects.specs import spec_of
from flambeau.ir.module import Argument, Output, Signature, TensorSpec, Weights

ARCHIVES = (".pt", ".pth", ".ts")
"""What files with TorchScript programs are called."""


NO_PROGRAMS = {
    ".onnx": "Flambeau does not read ONNX: compile the PyTorch model that it came from.",
    ".pt2": "Read it with torch.export.load(path), and compile what that gives.",
    ".safetensors": "It holds weights, not a program.",
    ".vmfb": "It is compiled already: flambeau.load(path) runs it.",
    ".xla": "It is compiled already: flambeau.load(path) runs it.",
    ".py": "Import the model and pass it, or write FILE.py:FACTORY on the command line.",
}
"""What files are called that are not read as programs, and what to do with them."""


def program_of(given: Any) -> Any:
    """Read MLIR, from text or a file. Give the path of a TorchScript archive, and all else, as it is."""
    if not isinstance(given, (str, Path)):
        return given
    if isinstance(given, str) and "\n" in given:
        return module_of_text(given)
    path = Path(given)
    if path.suffix == ".mlir":
        return read_module(path)
    if path.suffix not in ARCHIVES:
        raise no_program(path, "compile", f"MLIR (.mlir) and TorchScript ({', '.join(ARCHIVES)})")
    return path


def no_program(path: Path, command: str, known: str) -> CompileError:
    """Make the error for a file that a command does not take."""
    hint = NO_PROGRAMS.get(path.suffix, "")
    try:
        what = "a folder" if path.is_dir() else "no such file" if not path.exists() else "none of these"
    except OSError as e:  # A name that is too long for a file.
        what = f"no such file: {e.strerror}"
    reason = f"{command} reads files of {known}, and {path} is {what}"
    return CompileError([Diagnostic(command, reason, hint=hint)], summary=f"cannot {command} {path}")


def weights_path(path: Path) -> Path:
    """Return the file that holds a module's weights: `model.safetensors` for `model.mlir`."""
    return path.with_suffix(".safetensors")


def save_module(module: Module, path: Path) -> None:
    """Write the text and, if there are any, the weights; each file appears whole or not at all."""
    from flambeau.engines.cache import write_atomically
    from flambeau.engines.safetensors_file import write_safetensors

    if module.weights:
        write_safetensors(weights_path(path), module.weights)
    write_atomically(path, module.text().encode())


def read_module(path: Path) -> Module:
    """Read a module that `save` wrote, or any MLIR text of the dialects that we know."""
    return module_of_text(read_text(path), str(path), weights_path(path))


def module_of_text(text: str, name: str = "the text", weights_file: Path | None = None) -> Module:
    """Make a module of MLIR text. Weights that it refers to are in it, or in the safetensors file."""
    from flambeau.dialects.context import blobs, make_context

    context = make_context()
    op = parse_text(text, name, context)
    weights = _read_weights(op, weights_file, blobs(context))
    dialects = {inner.name.split(".")[0] for inner in op.walk()}
    output = OutputType.RAW if "torch" in dialects else OutputType.LINALG_ON_TENSORS
    if "stablehlo" in dialects:
        output = OutputType.STABLEHLO
    elif "tosa" in dialects:
        output = OutputType.TOSA
    # Once lowered, a private function is what another one calls.
    signatures = {
        f.sym_name.data: signature_of(f)
        for f in op.ops
        if isinstance(f, func.FuncOp) and f.body.blocks and (output is OutputType.RAW or not _is_private(f))
    }
    return Module(op, weights, signatures, output)


def read_text(path: Path) -> str:
    """Read the text of a file; CompileError says why there is none."""
    if path.is_dir():
        raise CompileError([Diagnostic("read", f"cannot read {path}: it is a folder")])
    if not path.exists():
        raise CompileError([Diagnostic("read", f"cannot read {path}: there is no such file")])
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        reason = f"cannot read {path}: byte {e.start} is not UTF-8 text"
        raise CompileError([Diagnostic("read", reason, hint="Flambeau reads MLIR as text, not as bytecode.")]) from e
    except OSError as e:
        raise CompileError([Diagnostic("read", f"cannot read {path}: {e}")]) from e


def parse_text(text: str, name: str, context: Context | None = None) -> ModuleOp:
    """Read and verify MLIR text; CompileError says what is wrong with it, and in which line and column."""
    from xdsl.utils.exceptions import ParseError

    from flambeau.dialects.context import parse_module
    from flambeau.ir.verifying import verify

    if not text.strip():
        raise CompileError([Diagnostic("read", f"cannot read {name}: it is empty", location=_place(name, 1, 1))])
    try:
        op = parse_module(text, name, context)
    except ParseError as e:
        reason = f"{name} is not MLIR that Flambeau reads: {e.msg}"
        problem = Diagnostic("read", reason, location=_place(*e.span.get_location()))
        raise CompileError([problem], summary="cannot read MLIR") from e
    verify(op)
    return op


def _place(file: str, line: int, column: int) -> FileLineColLoc:
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))


def _read_weights(module: ModuleOp, file: Path | None, inline: Mapping[str, bytes]) -> Weights:
    """Read the weights that a module refers to: those in its text, and those in the file, if there is one."""
    import numpy as np

    from flambeau.engines.safetensors_file import read_safetensors, restore
    from flambeau.ir.arrays import numpy_dtype

    found = read_safetensors(file) if file is not None and file.exists() else {}
    for name, spec in resources(module).items():
        shape = tuple(d or 0 for d in spec.shape)
        if name in inline:
            if len(inline[name]) != math.prod(shape) * spec.dtype.size:
                reason = f"the contents of {name} are {len(inline[name])} bytes, which is not what a {spec} has"
                user = next(op for op in module.walk() if name in _handles(op))
                raise CompileError([diagnostic_for(user, "read", reason)], summary="cannot read MLIR")
            elements = np.frombuffer(inline[name], spec.dtype.storage)
            found[name] = elements.view(numpy_dtype(spec.dtype)).reshape(shape)
        elif name in found and spec.dtype.is_complex:
            found[name] = restore(found[name], spec.dtype, shape)
    return Weights(dict(found))


def resources(module: ModuleOp) -> dict[str, TensorSpec]:
    """Map the names of the weights that a module refers to to their types."""
    found: dict[str, TensorSpec] = {}
    for op in module.walk():
        for name, attribute in _handles(op).items():
            spec = spec_of(attribute.type)
            if not isinstance(spec, TensorSpec) or None in spec.shape:
                reason = f"a resource of type {attribute.type} has no size"
                raise CompileError([diagnostic_for(op, "read", reason)], summary="cannot read MLIR")
            found[name] = spec
    return found


def _handles(op: Operation) -> dict[str, DenseResourceAttr]:
    """Map the names of the weights that an op refers to to their attributes."""
    attributes = (*op.properties.values(), *op.attributes.values())
    return {a.resource_handle.data: a for a in attributes if isinstance(a, DenseResourceAttr)}


def require_weights(module: Module, path: Path) -> None:
    """Raise CompileError if weights of a module that was read from a file are missing."""
    missing = [name for name in resources(module.op) if name not in module.weights]
    if missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        reason = f"{path} refers to weights that are neither in it nor in {weights_path(path)}: {names}"
        raise CompileError([Diagnostic("read", reason)])


def _is_private(function: func.FuncOp) -> bool:
    return function.sym_visibility is not None and function.sym_visibility.data == "private"


def signature_of(function: func.FuncOp) -> Signature:
    """Make the signature of a function of which only the IR is known: arguments in order, results as a list."""
    names = [a.name_hint or f"argument {i}" for i, a in enumerate(function.args)]
    arguments = tuple(
        Argument(name, spec_of(t)) for name, t in zip(names, function.function_type.inputs.data, strict=True)
    )
    results = tuple(spec_of(t) for t in function.function_type.outputs.data)
    return Signature(arguments, results, tuple(Output(i) for i in range(len(results))))


def with_literals(module: ModuleOp, weights: Mapping[str, Any]) -> ModuleOp:
    """Copy a module with its weights as literals."""
    from flambeau.ir.arrays import as_bytes

    copy = module.clone()
    for op in copy.walk():
        for name, value in op.properties.items():
            if isinstance(value, DenseResourceAttr):
                data = as_bytes(weights[value.resource_handle.data]).tobytes()
                op.properties[name] = DenseIntOrFPElementsAttr(value.type, BytesAttr(data))  # type: ignore[arg-type]
    return copy


def resources_text(weights: Mapping[str, Any]) -> str:
    """Print the weights as the `dialect_resources` section that ends an MLIR file."""
    from flambeau.ir.arrays import as_bytes

    # A blob starts with its alignment as a 32-bit number.
    alignment = (64).to_bytes(4, "little").hex().upper()
    lines = [f'      {name}: "0x{alignment}{as_bytes(w).tobytes().hex().upper()}"' for name, w in weights.items()]
    return "\n{-#\n  dialect_resources: {\n    builtin: {\n" + ",\n".join(lines) + "\n    }\n  }\n#-}\n"
