"""Weights to and from safetensors files, with or without PyTorch and without holding a copy of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from flambeau.engines.cache import write_atomically
from flambeau.engines.errors import EngineError
from flambeau.ir import safetensors_file
from flambeau.ir.arrays import as_bytes, dtype_of, numpy_dtype
from flambeau.ir.dtypes import DType
from flambeau.ir.safetensors_file import CODES

_ALIGNMENT = 64


def write_safetensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write torch tensors and numpy arrays to a file, straight from their memory."""
    entries = []
    for name, tensor in tensors.items():
        dtype = dtype_of(tensor)
        if dtype is None:
            raise EngineError(f"cannot save the weight {name!r}: safetensors has no type {tensor.dtype}")
        shape = list(tensor.shape)
        if dtype not in CODES:  # complex numbers other than C64, as pairs of their parts
            dtype, shape = dtype.real, [*shape, 2]
        try:
            entries.append((name, dtype, shape, as_bytes(tensor)))
        except (ValueError, RuntimeError, TypeError) as error:
            raise EngineError(f"cannot save the weight {name!r}: {error}") from error
    # The format allows no padding, so this order is what keeps elements, and all big tensors, aligned when mapped.
    entries.sort(key=lambda e: (e[3].nbytes % _ALIGNMENT != 0, -e[1].size, e[0]))
    header, offset = {}, 0
    for name, dtype, shape, data in entries:
        end = offset + data.nbytes
        header[name] = {"dtype": CODES[dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    head += b" " * (-(len(head) + 8) % _ALIGNMENT)
    write_atomically(path, len(head).to_bytes(8, "little"), head, *(e[3].data for e in entries))


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map a file into memory as arrays; they can be written, and the file never changes."""
    try:
        return safetensors_file.read_safetensors(path)
    except ValueError as error:
        raise EngineError(str(error)) from error


def restore(array: npt.NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Restore the dtype that an array had before `write_safetensors`; ValueError if this cannot be the same one."""
    if dtype not in CODES and array.dtype == numpy_dtype(dtype.real):
        array = array.view(dtype.storage).reshape(array.shape[:-1]).view(numpy_dtype(dtype))
    if array.dtype != numpy_dtype(dtype) or array.shape != shape:
        raise ValueError(f"it has {array.dtype} elements and shape {list(array.shape)}, not {dtype} and {list(shape)}")
    return array
