"""A program compiled by IREE, called like the Python callable that it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy.typing as npt

from flambeau.engines.cache import write_atomically
from flambeau.engines.errors import EngineError
from flambeau.engines.executable import ProgramExecutable
from flambeau.engines.iree.flags import host_cpu
from flambeau.engines.iree.runtime import Program
from flambeau.engines.safetensors_file import read_safetensors, restore, write_safetensors
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.ir.arrays import dtype_of, is_torch, to_torch
from flambeau.ir.dtypes import BY_NAME
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
    ) -> None:
        super().__init__(weights, signatures, function)
        self.vmfb = vmfb
        self.device = device
        self.profile = profile
        self._program = Program(vmfb, weights, device)

    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        return self._program.call(name, values, self.signature(name).results, as_torch=as_torch)

    def save(self, path: str | PathLike[str]) -> None:
        """Write `x.vmfb` (a plain IREE artefact), and `x.json` and `x.safetensors` beside it.

        The artefact is for CPUs that have all instructions of this one.
        """
        vmfb, description, weights = _sides(path)
        machine, instructions = host_cpu()
        kept, aliases = _shared(self.weights)
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
            "weights": {name: _describe(name, tensor) for name, tensor in kept.items()},
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
        tensors = _restore(weights, read_safetensors(weights), data)
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


def _shared(weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The distinct tensors, and for each further name of one of them, its first name."""
    kept: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    names: dict[Any, str] = {}
    for name, tensor in weights.items():
        if is_torch(tensor):
            identity: Any = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj())
        else:
            identity = (tensor.ctypes.data, tensor.dtype, tensor.shape, tensor.strides)
        first = names.setdefault(identity, name) if 0 not in tensor.shape else name
        if first == name:
            kept[name] = tensor
        else:
            aliases[name] = first
    return kept, aliases


def _describe(name: str, tensor: Any) -> dict[str, Any]:
    dtype = dtype_of(tensor)
    if dtype is None:
        raise EngineError(f"cannot save the weight {name!r}: {tensor.dtype} is not an element type of programs")
    return {"dtype": dtype.name, "shape": list(tensor.shape), "torch": is_torch(tensor)}


def _restore(path: Path, arrays: dict[str, npt.NDArray[Any]], data: dict[str, Any]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, entry in data["weights"].items():
        if name not in arrays:
            raise EngineError(f"{path} does not have the weight {name!r}")
        try:
            array = restore(arrays[name], BY_NAME[entry["dtype"]], tuple(entry["shape"]))
        except ValueError as error:
            raise EngineError(f"the weight {name!r} in {path} is not the one that was saved: {error}") from error
        tensors[name] = to_torch(array) if entry["torch"] and _has_torch() else array
    return tensors | {name: tensors[first] for name, first in data["aliases"].items()}


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _check_host(artefact: Path, data: dict[str, Any]) -> None:
    # Running code for another CPU would not raise an error but end the process.
    machine, instructions = host_cpu()
    missing = sorted(set(data["instructions"]) - instructions)
    if data["machine"] != machine:
        raise EngineError(f"{artefact} was compiled for {data['machine']}, and this machine is {machine}")
    if missing:
        raise EngineError(f"{artefact} was compiled for a CPU with {', '.join(missing)}, which this one lacks")
