"""Weights to and from safetensors files, with or without PyTorch and without holding a copy of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flambeau.engines.arrays import as_bytes, dtype_of, numpy_dtype
from flambeau.engines.cache import write_atomically
from flambeau.engines.errors import EngineError
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType

_CODES = {
    dtypes.bool_: "BOOL", dtypes.uint8: "U8", dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32",
    dtypes.int64: "I64", dtypes.uint16: "U16", dtypes.uint32: "U32", dtypes.uint64: "U64", dtypes.float16: "F16",
    dtypes.float32: "F32", dtypes.float64: "F64", dtypes.bfloat16: "BF16", dtypes.complex64: "C64",
}  # fmt: skip
_CODES |= {
    dtypes.BY_NAME[name]: code
    for name, code in {
        "float8_e5m2": "F8_E5M2",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2fnuz": "F8_E5M2FNUZ",
        "float8_e4m3fnuz": "F8_E4M3FNUZ",
    }.items()
    if name in dtypes.BY_NAME
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_ALIGNMENT = 64


def write_safetensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write torch tensors and numpy arrays to a file, straight from their memory."""
    entries = []
    for name, tensor in tensors.items():
        dtype = dtype_of(tensor)
        if dtype is None:
            raise EngineError(f"cannot save the weight {name!r}: safetensors has no type {tensor.dtype}")
        shape = list(tensor.shape)
        if dtype not in _CODES:  # complex numbers other than C64, as pairs of their parts
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
        header[name] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    head += b" " * (-(len(head) + 8) % _ALIGNMENT)
    write_atomically(path, len(head).to_bytes(8, "little"), head, *(e[3].data for e in entries))


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map a file into memory as arrays; they can be written, and the file never changes."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError("its header does not fit into it")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        data = np.memmap(path, np.uint8, "c", 8 + length) if size > 8 + length else np.empty(0, np.uint8)
        return {name: _read(data, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{path} is not a safetensors file, or is damaged: {error}") from error


def restore(array: npt.NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array with the dtype that it had before `write_safetensors`; ValueError if this cannot be the same one."""
    if dtype not in _CODES and array.dtype == numpy_dtype(dtype.real):
        array = array.view(dtype.storage).reshape(array.shape[:-1]).view(numpy_dtype(dtype))
    if array.dtype != numpy_dtype(dtype) or array.shape != shape:
        raise ValueError(f"it has {array.dtype} elements and shape {list(array.shape)}, not {dtype} and {list(shape)}")
    return array


def _read(data: npt.NDArray[np.uint8], entry: dict[str, Any]) -> npt.NDArray[Any]:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= data.nbytes:
        raise ValueError("it is shorter than its header says")
    dtype: DType = _DTYPES[entry["dtype"]]
    elements: npt.NDArray[Any] = np.asarray(data)[start:end].view(dtype.storage).view(numpy_dtype(dtype))
    shape: list[int] = entry["shape"]
    return elements.reshape(shape)
