"""Reading safetensors files, without PyTorch and without holding a copy of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flambeau.ir import dtypes
from flambeau.ir.arrays import numpy_dtype
from flambeau.ir.dtypes import DType

CODES = {
    dtypes.bool_: "BOOL", dtypes.uint8: "U8", dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32",
    dtypes.int64: "I64", dtypes.uint16: "U16", dtypes.uint32: "U32", dtypes.uint64: "U64", dtypes.float16: "F16",
    dtypes.float32: "F32", dtypes.float64: "F64", dtypes.bfloat16: "BF16", dtypes.complex64: "C64",
}  # fmt: skip
CODES |= {
    dtypes.BY_NAME[name]: code
    for name, code in {
        "float8_e5m2": "F8_E5M2",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2fnuz": "F8_E5M2FNUZ",
        "float8_e4m3fnuz": "F8_E4M3FNUZ",
    }.items()
    if name in dtypes.BY_NAME
}
_DTYPES = {code: dtype for dtype, code in CODES.items()}


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map a file into memory as arrays; they can be written, the file never changes. ValueError if damaged."""
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
        raise ValueError(f"{path} is not a safetensors file, or is damaged: {error}") from error


def _read(data: npt.NDArray[np.uint8], entry: dict[str, Any]) -> npt.NDArray[Any]:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= data.nbytes:
        raise ValueError("it is shorter than its header says")
    dtype: DType = _DTYPES[entry["dtype"]]
    elements: npt.NDArray[Any] = np.asarray(data)[start:end].view(dtype.storage).view(numpy_dtype(dtype))
    shape: list[int] = entry["shape"]
    return elements.reshape(shape)
