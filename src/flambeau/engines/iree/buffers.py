"""Tensors to IREE's buffer views and back, without copying wherever that is safe."""

from __future__ import annotations

from typing import Any

import iree.runtime as rt
import numpy as np
import numpy.typing as npt

from flambeau.ir import dtypes
from flambeau.ir.arrays import as_bytes, dtype_of, is_torch, numpy_dtype
from flambeau.ir.dtypes import DType

_ALIGNMENT = 64
_DLPACK_CPU = 1
_COMPLEX_32 = 0x23000020
"""IREE's element type of complex numbers of two 16-bit floats, which its Python enum leaves out."""


def to_buffer_view(device: Any, array: Any) -> tuple[Any, Any]:
    """A buffer view of a tensor's memory, and the tensor or array that must stay alive while it is in use.

    The view is of a copy if the tensor is strided, or not aligned as IREE's vector code expects.
    """
    dtype = dtype_of(array)
    if dtype is None:
        raise TypeError(f"{array.dtype} is not an element type of programs")
    if 0 in array.shape:
        return _empty(device, array.shape, dtype), None
    if is_torch(array):
        if not _has_dlpack(dtype) or array.device.type != "cpu":
            return _import_bytes(device, as_bytes(array), tuple(array.shape), dtype)
        array = array.detach().resolve_conj().resolve_neg().contiguous()
        if array.data_ptr() % _ALIGNMENT:
            array = array.clone()
        return device.from_dlpack_capsule(array.__dlpack__()), array
    return _import_bytes(device, as_bytes(array), array.shape, dtype)


def from_buffer_view(device: Any, view: Any, dtype: DType, as_torch: bool) -> Any:
    """A tensor over a result's memory, which it keeps alive; a copy of it for numpy."""
    shape = tuple(view.shape)
    if as_torch:
        import torch
        from torch.utils.dlpack import from_dlpack

        if 0 in shape:
            return torch.empty(shape, dtype=dtype.torch)
        if not _has_dlpack(dtype):
            return torch.from_numpy(_mapped(view, dtype.storage)).view(dtype.torch)
        tensor = from_dlpack(device.create_dlpack_capsule(view, _DLPACK_CPU, 0))
        # IREE's integers have no sign of their own: they all come back signed.
        return tensor if tensor.dtype == dtype.torch else tensor.view(dtype.torch)
    if 0 in shape:
        return np.empty(shape, numpy_dtype(dtype))
    return _mapped(view, dtype.storage).view(numpy_dtype(dtype))


def memory_of(array: Any) -> range:
    """The addresses of the elements of a contiguous tensor."""
    start: int = array.data_ptr() if is_torch(array) else array.ctypes.data
    return range(start, start + array.nbytes)


def overlaps(a: range, b: range) -> bool:
    """Whether two pieces of memory share an address."""
    return a.start < b.stop and b.start < a.stop


def _has_dlpack(dtype: DType) -> bool:
    """Whether PyTorch and IREE agree on how to hand these elements over: not on float8, nor on complex32."""
    return dtype is not dtypes.complex32 and not (dtype.is_float and dtype.size == 1)


def _import_bytes(device: Any, data: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: DType) -> tuple[Any, Any]:
    if data.ctypes.data % _ALIGNMENT or not data.flags.writeable:
        data = _aligned_copy(data)
    buffer = device.allocator.import_host_allocation(
        data,
        memory_type=rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
    )
    # The view does not keep the memory alive, unlike one that comes through DLPack.
    return rt.HalBufferView(buffer, list(shape), _element_type(dtype)), data


def _aligned_copy(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    room = np.empty(data.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + data.nbytes]
    copy[:] = data
    return copy


def _empty(device: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    # IREE crashes on a DLPack tensor without elements if it has a dynamic dimension.
    buffer = device.allocator.allocate_buffer(
        memory_type=rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
        allocation_size=_ALIGNMENT,
    )
    return rt.HalBufferView(buffer, list(shape), _element_type(dtype))


def _element_type(dtype: DType) -> Any:
    if dtype is dtypes.complex32:
        return _COMPLEX_32
    names = {
        "bool": "BOOL_8",
        "bfloat16": "BFLOAT_16",
        "float8_e5m2": "FLOAT_8_E5M2",
        "float8_e4m3fn": "FLOAT_8_E4M3_FN",
        "float8_e5m2fnuz": "FLOAT_8_E5M2_FNUZ",
        "float8_e4m3fnuz": "FLOAT_8_E4M3_FNUZ",
    }
    kind = "COMPLEX" if dtype.is_complex else "FLOAT" if dtype.is_float else "SINT" if dtype.signed else "UINT"
    return getattr(rt.HalElementType, names.get(dtype.name, f"{kind}_{dtype.bits}"))


def _mapped(view: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    # A copy: the array that IREE makes does not keep the memory alive, and one that did would outlive IREE at exit.
    array: npt.NDArray[Any] = view.map().asarray(view.shape, dtype).copy()
    return array
