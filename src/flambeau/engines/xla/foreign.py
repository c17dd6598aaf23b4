"""Python functions as handlers of XLA's foreign function interface, in the C structures of its public header.

The header is `xla/ffi/api/c_api.h` in the folder `jax.ffi.include_dir()`. A handler gets a frame with the buffers of
arguments and results and the call's attributes, and returns null, or an error that the frame's functions make.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p, cast
from typing import Any

import jax.ffi
import numpy as np
from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.errors import EngineError
from flambeau.engines.external import Functions, custom_calls, require_called
from flambeau.ir.arrays import as_bytes, dtype_of, numpy_dtype
from flambeau.ir.dtypes import BY_NAME, DType

_DTYPES = {
    code: BY_NAME[name]
    for code, name in {
        1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
        10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128",
        19: "float8_e5m2", 20: "float8_e4m3fn", 24: "float8_e5m2fnuz", 25: "float8_e4m3fnuz",
    }.items()
}  # fmt: skip
_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13
_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4


class _Extension(Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p)]


class _Version(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _ErrorArgs(Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


_CreateError = CFUNCTYPE(c_void_p, POINTER(_ErrorArgs))


class _Api(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("version", _Version), ("internal", c_void_p),
        ("create_error", _CreateError),
    ]  # fmt: skip


class _Buffer(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p), ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]  # fmt: skip


class _Values(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", POINTER(c_int)),
        ("values", POINTER(c_void_p)),
    ]  # fmt: skip


class _Text(Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class _Scalar(Structure):
    _fields_ = [("dtype", c_int), ("data", c_void_p)]


class _Array(Structure):
    _fields_ = [("dtype", c_int), ("count", c_size_t), ("data", c_void_p)]


class _Attributes(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(_Text))), ("values", POINTER(c_void_p)),
    ]  # fmt: skip


class _Frame(Structure):
    _fields_ = [
        ("size", c_size_t), ("extension", POINTER(_Extension)), ("api", POINTER(_Api)), ("context", c_void_p),
        ("stage", c_int), ("arguments", _Values), ("results", _Values), ("attributes", _Attributes),
    ]  # fmt: skip


_Handler = CFUNCTYPE(c_void_p, POINTER(_Frame))


def _numbers(data: int, dtype: DType, count: int) -> Any:
    """Copy numbers out of memory, as an array of their storage."""
    return np.frombuffer(ctypes.string_at(data, count * dtype.size), dtype.storage).copy()


def _tensor(buffer: _Buffer) -> Any:
    """Copy a buffer: a torch tensor, or an array where PyTorch is not imported."""
    dtype, shape = _DTYPES[buffer.dtype], tuple(buffer.dims[: buffer.rank])
    array = _numbers(buffer.data, dtype, int(np.prod(shape))).reshape(shape)
    torch: Any = sys.modules.get("torch")
    return array.view(numpy_dtype(dtype)) if torch is None else torch.from_numpy(array).view(dtype.torch)


def _attribute(kind: int, value: int) -> Any:
    if kind == _SCALAR:
        scalar = cast(value, POINTER(_Scalar)).contents
        return _numbers(scalar.data, _DTYPES[scalar.dtype], 1).view(numpy_dtype(_DTYPES[scalar.dtype]))[0].item()
    if kind == _ARRAY:
        array = cast(value, POINTER(_Array)).contents
        dtype = _DTYPES[array.dtype]
        return _numbers(array.data, dtype, array.count).view(numpy_dtype(dtype)).tolist()
    if kind == _STRING:
        return _read(cast(value, POINTER(_Text)).contents)
    return _named(cast(value, POINTER(_Attributes)).contents)


def _read(text: _Text) -> str:
    return ctypes.string_at(text.data, text.length).decode()


def _named(attributes: _Attributes) -> dict[str, Any]:
    return {
        _read(attributes.names[i].contents): _attribute(attributes.types[i], attributes.values[i])
        for i in range(attributes.count)
    }


def _buffers(values: _Values) -> list[_Buffer]:
    return [cast(values.values[i], POINTER(_Buffer)).contents for i in range(values.count)]


def _call(name: str, function: Callable[..., Any], frame: _Frame) -> None:
    """Call the function with copies of the arguments, and attributes by name; copy its results to their places."""
    results = function(*map(_tensor, _buffers(frame.arguments)), **_named(frame.attributes))
    values: Sequence[Any] = results if isinstance(results, (list, tuple)) else (results,)
    places = _buffers(frame.results)
    if len(values) != len(places):
        raise ValueError(f"{name} gave {len(values)} results, and {len(places)} are taken")
    for i, (value, place) in enumerate(zip(values, places, strict=True)):
        wanted, got = _DTYPES[place.dtype], dtype_of(value)
        shape = tuple(place.dims[: place.rank])
        if got is None or got.builtin != wanted.builtin or tuple(value.shape) != shape:
            raise TypeError(f"result {i} of {name} is {got} {tuple(value.shape)}, and {wanted} {shape} is taken")
        data = as_bytes(value)
        ctypes.memmove(place.data, data.ctypes.data, data.nbytes)


def _handler(name: str, function: Callable[..., Any]) -> Any:
    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.extension and frame.extension.contents.type == _METADATA:
            metadata = cast(frame.extension, POINTER(_MetadataExtension)).contents.metadata.contents
            metadata.version.major, metadata.version.minor = _version(frame)
            metadata.traits = 0
            return None
        if frame.stage != _EXECUTE:
            return None
        try:
            _call(name, function, frame)
        except BaseException as error:
            text = f"a function that the program calls failed: {type(error).__name__}: {error}"
            args = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, text.encode(), _INTERNAL)
            return int(frame.api.contents.create_error(ctypes.byref(args)))
        return None

    return _Handler(handle)


def _version(frame: _Frame) -> tuple[int, int]:
    version = frame.api.contents.version
    return version.major, version.minor


_registered: dict[int, tuple[str, Any, Any]] = {}
_count = itertools.count()
_lock = threading.Lock()


def target_of(symbol: str, function: Callable[..., Any]) -> str:
    """Register a function with XLA, once and for good; gives the name that programs call it by."""
    with _lock:
        known = _registered.get(id(function))
        if known is None:
            name = f"flambeau.{next(_count)}.{symbol}"
            handler = _handler(symbol, function)
            capsule = jax.ffi.pycapsule(handler)  # type: ignore[no-untyped-call]
            jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
            known = _registered[id(function)] = (name, handler, function)
        return known[0]


def bind(module: ModuleOp, functions: Functions, device: str) -> dict[str, str]:
    """Register the functions that a program calls; gives the names that they are registered by."""
    if not device.startswith("cpu"):
        raise EngineError(f"functions of Python's run on the CPU, and the program is for {device}")
    require_called(custom_calls(module), functions)
    return {symbol: target_of(symbol, function) for symbol, function in functions.items()}
