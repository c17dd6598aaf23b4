"""Programs for XLA on disk: `x.xla`, JSON with MLIR in it, and `x.safetensors` with the weights.

What is saved is the program and not machine code, so that it runs on every device, and XLA compiles it when it is
loaded (or takes it from its cache). Functions of static shapes are StableHLO; those of dynamic shapes are in the torch
dialect, from which they are specialised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from flambeau.dialects.context import parse_module
from flambeau.engines.cache import write_atomically
from flambeau.engines.errors import EngineError
from flambeau.engines.safetensors_file import write_safetensors
from flambeau.engines.saved_weights import describe, restore_weights, shared
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.engines.xla.executable import XlaExecutable
from flambeau.engines.xla.gpu import for_gpu
from flambeau.engines.xla.programs import Program, Wanted
from flambeau.ir.module import Signature
from flambeau.ir.printing import pretty_text

FORMAT = "flambeau-xla"
FORMAT_VERSION = 1


def save_executable(executable: XlaExecutable, path: str | PathLike[str]) -> None:
    """Write `x.xla` and `x.safetensors`; each file appears whole or not at all."""
    program, weights = _sides(path)
    kept, aliases = shared(executable.weights)
    is_open = any(name not in executable.programs for name in executable.signatures)
    data = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "device": executable.device,
        "function": executable.default,
        "checks": executable.wanted.checks,
        "exact_products": executable.wanted.exact_products,
        "signatures": {name: signature_to_json(name, s) for name, s in executable.signatures.items()},
        "programs": {name: _program_to_json(p) for name, p in executable.programs.items()},
        "origin": pretty_text(executable.origin) if is_open and executable.origin is not None else None,
        "weights": {name: describe(name, tensor) for name, tensor in kept.items()},
        "aliases": aliases,
    }
    text = json.dumps(data, indent=1).encode()
    write_safetensors(weights, kept)
    write_atomically(program, text)


def load_executable(path: str | PathLike[str], *, device: str | None = None, **options: Any) -> XlaExecutable:
    """Load what `XlaExecutable.save` wrote; weights are mapped from their file. The options are the engine's."""
    program, weights = _sides(path)
    for side in (program, weights):
        if not side.is_file():
            raise EngineError(f"cannot load {program.name}: {side} is missing")
    try:
        data = json.loads(program.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}")
        if data["version"] != FORMAT_VERSION:
            raise EngineError(
                f"{program} has format version {data['version']}, and this Flambeau reads {FORMAT_VERSION}: "
                "compile the program again"
            )
        device = device or data["device"]
        is_cpu = device.startswith("cpu")
        return XlaExecutable(
            {name: _program_from_json(p, is_cpu) for name, p in data["programs"].items()},
            _origin(data["origin"], program),
            restore_weights(weights, data),
            {name: signature_from_json(s) for name, s in data["signatures"].items()},
            function=data["function"],
            wanted=Wanted(data["checks"], data["exact_products"], is_cpu=is_cpu),
            device=device,
            **options,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{program} does not describe a program of Flambeau, or is damaged: {error}") from error
    except ImportError as error:
        raise EngineError(f"{program} takes or gives trees of tensors, which needs PyTorch: {error}") from error


def packed(executable: XlaExecutable) -> bytes:
    """Write what XLA compiles of a program, without weights and signatures."""
    is_open = any(name not in executable.programs for name in executable.signatures)
    if executable.wanted.functions or any(program.axes for program in executable.programs.values()):
        raise EngineError("a program for many devices, or with functions of Python's, is not kept")
    data = {
        "function": executable.default,
        "checks": executable.wanted.checks,
        "exact_products": executable.wanted.exact_products,
        "programs": {name: _program_to_json(p) for name, p in executable.programs.items()},
        "origin": pretty_text(executable.origin) if is_open and executable.origin is not None else None,
    }
    return json.dumps(data).encode()


def unpacked(
    payload: bytes,
    weights: Mapping[str, Any],
    signatures: Mapping[str, Signature],
    *,
    device: str = "cpu",
    cache: bool = True,
    specializations: int = 32,
    **options: Any,
) -> XlaExecutable:
    """Make the program of which this was kept; the options are the engine's, and those that it was compiled with."""
    data = json.loads(payload)
    on_cpu = device.startswith("cpu")
    late = options.get("checks") == "late" and not on_cpu
    gather = bool(options.get("gather", True))
    wanted = Wanted(data["checks"], data["exact_products"], gather=gather, is_cpu=on_cpu, late=late)
    return XlaExecutable(
        {name: _program_from_json(p, on_cpu) for name, p in data["programs"].items()},
        _origin(data["origin"], Path("a kept program")),
        weights,
        signatures,
        function=data["function"],
        wanted=wanted,
        device=device,
        cache=cache,
        kept=specializations,
    )


def _sides(path: str | PathLike[str]) -> tuple[Path, Path]:
    base = str(path).removesuffix(".xla")
    return Path(f"{base}.xla"), Path(f"{base}.safetensors")


def _origin(text: str | None, path: Path) -> ModuleOp | None:
    from xdsl.utils.exceptions import ParseError

    try:
        return None if text is None else parse_module(text, str(path))
    except ParseError as error:
        raise ValueError(error.msg) from error


def _program_to_json(program: Program) -> dict[str, Any]:
    return {
        "text": program.text,
        "weights": list(program.weights),
        "axes": dict(program.axes),
        "layouts": program.layouts,
        "results": program.results,
        "checks": list(program.checks),
    }


def _program_from_json(data: dict[str, Any], is_cpu: bool) -> Program:
    axes = tuple((name, int(size)) for name, size in data["axes"].items())
    layouts = tuple(tuple(map(tuple, layout)) for layout in data["layouts"])
    results = tuple(None if r is None else tuple(map(tuple, r)) for r in data.get("results", ()))
    text, checks = data["text"], tuple(data["checks"])
    gpu = None if is_cpu or axes else for_gpu(parse_module(text), bool(checks))
    return Program(text, tuple(data["weights"]), axes, layouts, results, checks, gpu)
