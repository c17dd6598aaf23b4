"""A program compiled by IREE, called like the Python callable that it came from."""

from __future__ import annotations

import hashlib
import json
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from flambeau.engines.cache import write_atomically
from flambeau.engines.errors import EngineError
from flambeau.engines.executable import ProgramExecutable
from flambeau.engines.host import host_cpu
from flambeau.engines.iree.external import Bound
from flambeau.engines.iree.quick_calls import MISSED, quick_calls
from flambeau.engines.iree.runtime import Program
from flambeau.engines.safetensors_file import write_safetensors
from flambeau.engines.saved_weights import describe, restore_weights, shared
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.ir.module import Signature

FORMAT = "flambeau-iree"
FORMAT_VERSION = 3
"""Artefacts of earlier versions are refused: IREE's data tiling, as it was used then, made some of them wrong."""


class IreeExecutable(ProgramExecutable):
    """A program compiled by IREE. Its timings are those of `print`, `compile` and `load`."""

    vmfb: bytes
    device: str
    profile: str
    """The compiler profile that was used."""

    def __init__(
        self,
        vmfb: bytes,
        weights: Mapping[str, Any],
        signatures: Mapping[str, Signature],
        *,
        function: str = "main",
        device: str = "local-task",
        profile: str = "model",
        functions: tuple[Bound, ...] = (),
    ) -> None:
        super().__init__(weights, signatures, function)
        self.vmfb = vmfb
        self.device = device
        self.profile = profile
        self.functions = functions
        """Functions of Python's that the program calls."""
        self._program = Program(vmfb, weights, device, functions)

    @property
    def default(self) -> str:
        """The function that a call of the program calls."""
        return self._default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._program.quick
        if call is not None and not kwargs and (result := call(args)) is not MISSED:
            return result
        result = self._run(self._default, args, kwargs)
        if call is None:
            self._prepare_quick_calls()
        return result

    def _prepare_quick_calls(self) -> None:
        """Prepare quick calls of a function that has been called."""
        name, program = self._default, self._program
        if program.quick is None and name in self._plans and "torch" in sys.modules:
            function = program.function(name, self.signatures[name].results)
            program.quick, program.quick_bind = quick_calls(program.device, function, self._plans[name])

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Bind these arguments to a call, which takes the quick way while they are as they were."""
        slow, program, key = super().bind(*args, **kwargs), self._program, object()

        def call() -> Any:
            quick = program.__dict__.get("quickly_bound", {}).get(key)
            if quick is not None and (result := quick()) is not MISSED:
                return result
            result = slow()
            self._prepare_quick_calls()
            if program.quick_bind is not None and not kwargs and (quick := program.quick_bind(args)) is not None:
                program.quickly_bound[key] = quick
            return result

        weakref.finalize(call, program.unbind, key).atexit = False
        return call

    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        inputs = self._program.inputs(values)
        return self._program.function(name, self.signature(name).results).call(inputs, as_torch)

    def bind_flat(self, name: str, values: Sequence[Any], as_torch: bool) -> Callable[[], list[Any]]:
        return self._program.bind(name, values, self.signature(name).results, as_torch)

    def with_weights(self, weights: Mapping[str, Any]) -> IreeExecutable:
        """Make the same program over other weights, of the same names and types; nothing is compiled."""
        options: Any = {"function": self._default, "device": self.device, "profile": self.profile}
        return IreeExecutable(self.vmfb, weights, self.signatures, **options, functions=self.functions)

    def save(self, path: str | PathLike[str]) -> None:
        """Write `x.vmfb` (a plain IREE artefact), and `x.json` and `x.safetensors` beside it.

        The artefact is for CPUs that have all instructions of this one.
        """
        if self.functions:
            names = ", ".join(f"{bound.module}.{bound.name}" for bound in self.functions)
            raise EngineError(f"the program calls functions of Python's, which cannot be saved: {names}")
        vmfb, description, weights = _sides(path)
        machine, instructions = host_cpu()
        kept, aliases = shared({**self.weights, **self.state()})
        data = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "sha256": hashlib.sha256(self.vmfb).hexdigest(),
            "machine": machine,
            "instructions": sorted(instructions),
            "profile": self.profile,
            "device": self.device,
            "function": self._default,
            "signatures": {name: signature_to_json(name, s) for name, s in self.signatures.items()},
            "weights": {name: describe(name, tensor) for name, tensor in kept.items()},
            "aliases": aliases,
        }
        text = json.dumps(data, indent=1).encode()
        write_safetensors(weights, kept)
        write_atomically(vmfb, self.vmfb)
        write_atomically(description, text)


def load_executable(path: str | PathLike[str], *, device: str | None = None) -> IreeExecutable:
    """Load what `IreeExecutable.save` wrote; nothing is compiled, and weights are mapped from their file."""
    artefact, description, weights = _sides(path)
    for side in (artefact, description, weights):
        if not side.is_file():
            raise EngineError(f"cannot load {artefact.name}: {side} is missing")
    vmfb = artefact.read_bytes()
    try:
        data = json.loads(description.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}")
        if data["version"] != FORMAT_VERSION:
            raise EngineError(
                f"{description} has format version {data['version']}, and this Flambeau reads {FORMAT_VERSION}: "
                "compile the program again"
            )
        _check_host(artefact, data)
        if data["sha256"] != hashlib.sha256(vmfb).hexdigest():
            raise EngineError(f"{artefact} is damaged, or does not belong to {description}")
        signatures = {name: signature_from_json(s) for name, s in data["signatures"].items()}
        tensors = restore_weights(weights, data)
        return IreeExecutable(
            vmfb,
            tensors,
            signatures,
            function=data["function"],
            device=device or data["device"],
            profile=data["profile"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{description} does not describe a program of Flambeau, or is damaged: {error}") from error
    except ImportError as error:
        raise EngineError(f"{artefact} takes or gives trees of tensors, which needs PyTorch: {error}") from error


def _sides(path: str | PathLike[str]) -> tuple[Path, Path, Path]:
    base = str(path).removesuffix(".vmfb")
    return Path(f"{base}.vmfb"), Path(f"{base}.json"), Path(f"{base}.safetensors")


def _check_host(artefact: Path, data: dict[str, Any]) -> None:
    # Running code for another CPU would not raise an error but end the process.
    machine, instructions = host_cpu()
    missing = sorted(set(data["instructions"]) - instructions)
    if data["machine"] != machine:
        raise EngineError(f"{artefact} was compiled for {data['machine']}, and this machine is {machine}")
    if missing:
        raise EngineError(f"{artefact} was compiled for a CPU with {', '.join(missing)}, which this one lacks")
