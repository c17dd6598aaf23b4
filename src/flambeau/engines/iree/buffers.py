"""Tensors to IREE's buffer views and back, without copying wherever that is safe."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import iree.runtime as rt
import numpy as np
import numpy.typing as npt

from flambeau.ir import dtypes
from flambeau.ir.arrays import Span, as_bytes, dtype_of, is_array, is_torch, numpy_dtype, overlapping, span_of
from flambeau.ir.dtypes import DType
from flambeau.ir.module import ScalarSpec, TensorSpec

_ALIGNMENT = 64
DLPACK_CPU = 1
_COMPLEX_32 = 0x23000020
"""IREE's element type of complex numbers of two 16-bit floats, which its Python enum leaves out."""


class Inputs(NamedTuple):
    """The arguments of a call as IREE takes them."""

    variants: Any
    spans: list[Span]
    """Where the memory lies that IREE reads."""
    owners: list[Any]
    """Tensors and arrays that must stay alive during the call: not every view keeps the memory that it shows."""
    are_in_place: bool
    """Whether all tensors are read where the caller has them, so that what he writes there is seen."""


def to_inputs(device: Any, args: Sequence[Any]) -> Inputs:
    """Convert arguments for IREE: views of the memory of tensors, or of copies, and numbers."""
    variants = rt.VmVariantList(len(args))
    push, take = variants.push_ref, device.from_dlpack_capsule
    spans: list[Span] = []
    owners: list[Any] = []
    are_in_place = True
    tensor, strided, dtypes_, to_dlpack, _ = torch_parts() if sys.modules.get("torch") else _NO_TORCH
    for arg in args:
        if type(arg) is tensor and arg.dtype in dtypes_ and arg.layout is strided and arg.is_contiguous():
            start, size = arg.data_ptr(), arg.nbytes
            if size and not start % _ALIGNMENT and arg.is_cpu and not arg.is_neg():
                # Not by `arg.__dlpack__()`, whose own checks take almost as long as a call of IREE's.
                push(take(to_dlpack(arg)).ref)
                spans.append((start, start + size, ARGUMENT))
                continue
        if is_array(arg):
            view, owner = to_buffer_view(device, arg)
            push(view.ref)
            if owner is not None:
                owners.append(owner)
                spans.append((*span_of(owner), ARGUMENT))
                are_in_place = are_in_place and spans[-1][:2] == span_of(arg)
        elif isinstance(arg, (float, np.floating)):
            variants.push_float(float(arg))
        elif isinstance(arg, (int, np.integer, np.bool_)):
            variants.push_int(int(arg))
        else:
            raise TypeError(f"a program takes tensors and numbers, not a {type(arg).__name__}")
    return Inputs(variants, spans, owners, are_in_place)


_NO_TORCH: tuple[Any, Any, frozenset[Any], Any, Any] = (None, None, frozenset(), None, None)
ARGUMENT = -1
"""What has this number in place of that of a result is an argument."""


@cache
def torch_parts() -> tuple[Any, Any, frozenset[Any], Any, Any]:
    """Return PyTorch's tensor type, the layout and dtypes that IREE reads as they are, and DLPack's functions."""
    torch: Any = importlib.import_module("torch")
    # A complex tensor may stand for its conjugate.
    ready = frozenset(dtype.torch for dtype in dtypes.DTYPES if has_dlpack(dtype) and not dtype.is_complex)
    # What the public function does with a capsule, without asking what it was given.
    from_dlpack = getattr(torch._C, "_from_dlpack", torch.utils.dlpack.from_dlpack)
    return torch.Tensor, torch.strided, ready, torch.to_dlpack, from_dlpack


def to_buffer_view(device: Any, array: Any) -> tuple[Any, Any]:
    """Make a buffer view of a tensor's memory; return it and what must stay alive while it is in use.

    The view is of a copy if the tensor is strided, or not aligned as IREE's vector code expects.
    """
    dtype = dtype_of(array)
    if dtype is None:
        raise TypeError(f"{array.dtype} is not an element type of programs")
    if 0 in array.shape:
        return _empty(device, array.shape, dtype), None
    if is_torch(array):
        if not has_dlpack(dtype) or array.device.type != "cpu":
            return _import_bytes(device, as_bytes(array), tuple(array.shape), dtype)
        array = array.detach().resolve_conj().resolve_neg().contiguous()
        if array.data_ptr() % _ALIGNMENT:
            array = array.clone()
        return device.from_dlpack_capsule(array.__dlpack__()), array
    return _import_bytes(device, as_bytes(array), array.shape, dtype)


def is_plain(spec: Any) -> bool:
    """Whether PyTorch takes a result as IREE gives it: no number, no signless integers, nor what has no elements."""
    return isinstance(spec, TensorSpec) and spec.dtype.is_float and has_dlpack(spec.dtype) and all(spec.shape)


def results_reader(
    device: Any, specs: Sequence[TensorSpec | ScalarSpec]
) -> Callable[[Any, bool, list[Span]], list[Any]]:
    """Make a function that reads results of these types from IREE's list of them, as torch tensors or arrays.

    It is told where the arguments lie: no result shares memory with one of them, or with another result.
    """
    view_type, capsule_of = rt.HalBufferView, device.create_dlpack_capsule
    are_plain = [is_plain(spec) for spec in specs]

    def read(outputs: Any, as_torch: bool, arguments: list[Span]) -> list[Any]:
        if not as_torch:
            return [_read(device, outputs, i, spec, False) for i, spec in enumerate(specs)]
        *_, from_dlpack = torch_parts()
        if are_plain == [True]:
            result = from_dlpack(capsule_of(outputs.get_as_object(0, view_type), DLPACK_CPU, 0))
            start = result.data_ptr()
            end = start + result.nbytes
            is_shared = any(low < end and start < high for low, high, _ in arguments)
            return [result.clone() if is_shared else result]
        results: list[Any] = []
        spans = arguments.copy()
        for i, spec in enumerate(specs):
            if are_plain[i]:
                result = from_dlpack(capsule_of(outputs.get_as_object(i, view_type), DLPACK_CPU, 0))
            else:
                result = _read(device, outputs, i, spec, True)
                if isinstance(spec, ScalarSpec) or not result.nbytes:
                    results.append(result)
                    continue
            start = result.data_ptr()
            spans.append((start, start + result.nbytes, i))
            results.append(result)
        # IREE returns an argument that did not change as it came, a part of it as a view, equal results as one buffer.
        for group in overlapping(spans):
            shared = sorted(i for _, _, i in group)
            for i in shared[1:]:
                if i != ARGUMENT:
                    results[i] = results[i].clone()
        return results

    return read


def _read(device: Any, outputs: Any, i: int, spec: TensorSpec | ScalarSpec, as_torch: bool) -> Any:
    if isinstance(spec, ScalarSpec):
        return {"int": int, "float": float, "bool": bool}[spec.kind](outputs.get_variant(i))
    return from_buffer_view(device, outputs.get_as_object(i, rt.HalBufferView), spec.dtype, as_torch)


def from_buffer_view(device: Any, view: Any, dtype: DType, as_torch: bool) -> Any:
    """Make a tensor over a result's memory, which it keeps alive; for numpy, copy it."""
    shape = tuple(view.shape)
    if as_torch:
        import torch

        if 0 in shape:
            return torch.empty(shape, dtype=dtype.torch)
        if not has_dlpack(dtype):
            return torch.from_numpy(_mapped(view, dtype.storage)).view(dtype.torch)
        tensor = torch.utils.dlpack.from_dlpack(device.create_dlpack_capsule(view, DLPACK_CPU, 0))
        # IREE's integers have no sign of their own: they all come back signed.
        return tensor if tensor.dtype == dtype.torch else tensor.view(dtype.torch)
    if 0 in shape:
        return np.empty(shape, numpy_dtype(dtype))
    return _mapped(view, dtype.storage).view(numpy_dtype(dtype))


def has_dlpack(dtype: DType) -> bool:
    """Tell whether PyTorch and IREE agree on these elements' DLPack form: not on float8, nor on complex32."""
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


def copy_to_buffer_view(device: Any, array: Any) -> Any:
    """Make a buffer view of a copy of a tensor, in memory of IREE's own: nobody else has to keep it alive."""
    dtype = dtype_of(array)
    if dtype is None:
        raise TypeError(f"{array.dtype} is not an element type of programs")
    if 0 in array.shape:
        return _empty(device, array.shape, dtype)
    return device.allocator.allocate_buffer_copy(
        memory_type=rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
        device=device,
        buffer=as_bytes(array).view(dtype.storage).reshape(tuple(array.shape)),
        element_type=_element_type(dtype),
    )


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
