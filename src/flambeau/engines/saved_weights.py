"""The weights of a saved program: in a file of safetensors, with a description of each in the program's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flambeau.engines.errors import EngineError
from flambeau.engines.safetensors_file import read_safetensors, restore
from flambeau.ir.arrays import dtype_of, is_torch, to_torch
from flambeau.ir.dtypes import BY_NAME


def shared(weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Find the distinct tensors, and for each further name of one of them, its first name."""
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


def describe(name: str, tensor: Any) -> dict[str, Any]:
    """Describe a weight as JSON; raise EngineError for one that cannot be saved."""
    dtype = dtype_of(tensor)
    if dtype is None:
        raise EngineError(f"cannot save the weight {name!r}: {tensor.dtype} is not an element type of programs")
    return {"dtype": dtype.name, "shape": list(tensor.shape), "torch": is_torch(tensor)}


def restore_weights(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """Read the weights of a saved program; `data` has what `describe` and `shared` said, `weights` and `aliases`."""
    arrays = read_safetensors(path)
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
