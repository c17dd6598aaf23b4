"""What this engine uses of JAX: devices, XLA's compiler, and arrays that share memory with torch tensors."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.dlpack
import jax.extend.backend as backends
import numpy as np
import numpy.typing as npt

from flambeau.engines.cache import ArtefactCache, cache_directory, cache_enabled, cache_key
from flambeau.engines.errors import EngineError
from flambeau.engines.host import host_cpu
from flambeau.ir import dtypes
from flambeau.ir.arrays import dtype_of, is_array, is_torch, native, numpy_dtype, to_numpy
from flambeau.ir.dtypes import DType
from flambeau.ir.module import ScalarSpec, TensorSpec

try:  # JAX's public functions for this take ten times as long as a small program; these are what they call.
    from jaxlib import _jax

    _take: Any = _jax.dlpack_managed_tensor_to_buffer
    _give: Any = _jax.buffer_to_dlpack_managed_tensor
    _has_fast_path = True
except (ImportError, AttributeError):
    _has_fast_path = False

JaxError = jax.errors.JaxRuntimeError
OPTIONS: dict[str, Any] = {
    # By default XLA computes in f32 what a program rounds to 16 bits between two ops.
    "xla_allow_excess_precision": False,
}
"""What XLA is told besides the program."""
GPU_OPTIONS: dict[str, Any] = {
    # Convolutions too are put into CUDA graphs, and so is what is a single kernel: a start costs more than a node.
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONVOLUTION",
    "xla_gpu_graph_min_graph_size": 1,
    # Products of one operand are not merged: their biases are then added by cuBLAS.
    "xla_gpu_dot_merger_threshold_mb": 0,
}
"""What it is told of programs for GPUs, as far as its version knows these options."""


@dataclass(frozen=True)
class Device:
    """A device that XLA compiles for."""

    name: str
    handle: Any
    client: Any
    is_cpu: bool
    """Whether it reads and writes the memory of this process."""


@cache
def get_device(name: str) -> Device:
    """Find the device of a name: `cpu`, `gpu`, `gpu:1`, or another platform of JAX's."""
    platform, _, number = name.partition(":")
    try:
        client = backends.get_backend(platform)
        devices = client.local_devices()
        return Device(name, devices[int(number or 0)], client, devices[0].platform == "cpu")
    except RuntimeError as error:
        raise EngineError(f"XLA has no device {name!r} here: {_first_line(error)}") from error
    except (ValueError, IndexError):
        count = len(backends.get_backend(platform).local_devices())
        raise EngineError(f"there is no device {name!r}: {platform} has the numbers 0 to {count - 1}") from None


def compile_program(text: str, device: Device, use_cache: bool = True) -> Any:
    """Compile a module of StableHLO for one device, or take the artefact of the same program from the disk."""
    told = OPTIONS if device.is_cpu else {**OPTIONS, **_known_options(device)}
    options = backends.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=dict(told))
    if not device.is_cpu and "stablehlo.convolution" in text:
        _start_cudnn(device)
    store = ArtefactCache(cache_directory() / "xla") if use_cache and cache_enabled() else None
    key = cache_key(text, repr(sorted(told.items())), _machine(device))
    if store and (found := store.get(key)) is not None:
        try:
            return device.client.deserialize_executable(found[0], [device.handle], options)
        except (JaxError, ValueError, RuntimeError):
            pass  # of another version, or damaged: compile it again
    try:
        executable = device.client.compile_and_load(text, [device.handle], options)
    except (JaxError, ValueError, RuntimeError) as error:
        if unknown := re.search(r"No FFI handler registered for (\S+)", str(error)):
            raise EngineError(
                f"the program calls functions that XLA does not have: {unknown[1]}. Give them: load(module, functions="
                "{name: function}), or register them with jax.ffi.register_ffi_target"
            ) from error
        raise EngineError(f"XLA could not compile the program: {str(error).strip()[:2000]}") from error
    if store:
        try:
            store.put(key, device.client.serialize_executable(executable), {})
        except (JaxError, RuntimeError, AttributeError):
            pass  # not every platform can
    return executable


@cache
def _known_options(device: Device) -> dict[str, Any]:
    """Return those of GPU_OPTIONS that this version of XLA has: they are tried with an empty program."""
    if _takes_options(device, GPU_OPTIONS):
        return GPU_OPTIONS
    return {name: value for name, value in GPU_OPTIONS.items() if _takes_options(device, {name: value})}


def _takes_options(device: Device, told: dict[str, Any]) -> bool:
    try:
        _compile_plainly(device, "func.func public @main() { return }", told)
    except (JaxError, ValueError, RuntimeError):
        return False  # it is of another version, and is as right without them
    return True


def _compile_plainly(device: Device, text: str, told: dict[str, Any]) -> None:
    options = backends.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=told)
    device.client.compile_and_load(text, [device.handle], options)


@cache
def _start_cudnn(device: Device) -> None:
    """Let XLA start cuDNN, as it does when it compiles a convolution: it cannot while it captures a CUDA graph."""
    image = "tensor<1x8x8x8xf32>"
    call = f"""func.func public @main(%x: {image}, %w: tensor<1x1x8x8xf32>) -> {image} {{
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({image}, tensor<1x1x8x8xf32>) -> {image}
      return %y : {image}
    }}"""
    _compile_plainly(device, call, {})


def _machine(device: Device) -> str:
    machine, instructions = host_cpu()
    kind = f"{device.handle.platform} {device.handle.device_kind} {device.client.platform_version}"
    kind += f" {os.environ.get('XLA_FLAGS', '')}"
    return f"{kind} {jax.__version__} {machine} {' '.join(sorted(instructions))}"


def to_arrays(device: Device, values: Sequence[Any], specs: Sequence[TensorSpec | ScalarSpec]) -> list[Any]:
    """Make arrays of JAX's over the memory of contiguous tensors on the device, and over copies of other values."""
    if not sys.modules.get("torch") or not _has_fast_path:
        return [to_array(device, value, spec) for value, spec in zip(values, specs, strict=True)]
    tensor, strided, ready, to_dlpack, _ = _torch()
    place, stream = _wait_for_torch(device, values)
    arrays = []
    for value, spec in zip(values, specs, strict=True):
        if type(value) is tensor and value.dtype in ready and value.layout is strided and value.is_contiguous():
            if value.device == place and not value.is_neg():
                arrays.append(_take(to_dlpack(value), device.handle, stream))
                continue
        arrays.append(to_array(device, value, spec))
    return arrays


def _wait_for_torch(device: Device, values: Sequence[Any]) -> tuple[Any, int | None]:
    """Let XLA wait for what PyTorch computes on a device; gives the device in PyTorch's terms, and the waiting stream.

    What XLA wrote before, and PyTorch still reads, is given back as soon as its tensor is gone: XLA may write there
    next, and must not before PyTorch has read it. Who takes an array from the stream waits for that, too.
    """
    torch: Any = sys.modules["torch"]
    if device.is_cpu or not torch.cuda.is_available():
        return torch.device("cpu"), None
    place, number, waiting = _torch_stream(device)
    current = torch.cuda.current_stream(place)
    if any(is_torch(value) and value.device == place for value in values):
        waiting.wait_stream(current)
    else:
        current.synchronize()
    return place, number


@cache
def _torch_stream(device: Device) -> tuple[Any, int, Any]:
    """Return a GPU in PyTorch's terms, and the stream that XLA takes arguments from, as a number and a stream."""
    torch: Any = importlib.import_module("torch")
    place = torch.device("cuda", device.handle.local_hardware_id)
    number = device.handle.get_stream_for_external_ready_events()
    return place, number, torch.cuda.ExternalStream(number, device=place)


@cache
def _torch() -> tuple[Any, Any, frozenset[Any], Any, Any]:
    """Of PyTorch: the type of tensors, the layout and dtypes of those that XLA reads as they are, and DLPack."""
    torch: Any = importlib.import_module("torch")
    # WORKAROUND(jax==0.10.2): a thread of XLA's gives an argument back shortly after the results are there, and needs
    # the interpreter for it. One that has ended by then aborts the process ("terminate called without an active
    # exception"). To go when `test_a_process_ends_after_its_last_call` passes without.
    atexit.register(time.sleep, 0.05)
    # A complex tensor may stand for its conjugate.
    ready = frozenset(dtype.torch for dtype in dtypes.DTYPES if not dtype.is_complex)
    return torch.Tensor, torch.strided, ready, torch.to_dlpack, torch.utils.dlpack.from_dlpack


def to_array(device: Device, value: Any, spec: TensorSpec | ScalarSpec) -> Any:
    """Make one such array."""
    if not is_torch(value):
        return _put(device, host_array(value, spec))
    _check_dtype(value)
    value = value.detach().resolve_conj().resolve_neg().contiguous()
    if value.is_cpu and device.is_cpu and _has_fast_path:
        return _take(_torch()[3](value), device.handle, None)
    if value.is_cpu:
        return _put(device, host_array(value, spec))
    with jax.enable_x64(True):
        return jax.device_put(jax.dlpack.from_dlpack(value), device.handle)


def host_array(value: Any, spec: TensorSpec | ScalarSpec | None = None) -> npt.NDArray[Any]:
    """Make a numpy array of a value: over the memory of a contiguous tensor, or over a copy."""
    if not is_array(value):
        kind = {"int": np.int64, "float": np.float64, "bool": np.bool_}
        return np.asarray(value, kind[spec.kind] if isinstance(spec, ScalarSpec) else None)
    _check_dtype(value)
    return to_numpy(value.cpu()) if is_torch(value) else native(value)


def _check_dtype(value: Any) -> None:
    if _dtype(value) is dtypes.complex32:
        raise TypeError(f"{value.dtype} is not an element type of XLA's")


def _put(device: Device, array: Any) -> Any:
    with jax.enable_x64(True):
        return jax.device_put(array, device.handle)


def from_arrays(
    device: Device, arrays: Sequence[Any], specs: Sequence[TensorSpec | ScalarSpec], as_torch: bool, to_cpu: bool
) -> list[Any]:
    """Make values of the arrays that a program gives; see `from_array`."""
    if device.is_cpu or to_cpu or not as_torch or not _has_fast_path:
        return [from_array(device, a, spec, as_torch, to_cpu) for a, spec in zip(arrays, specs, strict=True)]
    torch: Any = sys.modules["torch"]
    from_dlpack = _torch()[4]
    stream = torch.cuda.current_stream(_torch_stream(device)[0]).cuda_stream
    values = []
    for array, spec in zip(arrays, specs, strict=True):
        if isinstance(spec, ScalarSpec):
            values.append(from_array(device, array, spec, as_torch, to_cpu))
            continue
        tensor = from_dlpack(_give(array, stream))  # PyTorch's stream waits until it is computed.
        values.append(tensor if tensor.dtype is spec.dtype.torch else tensor.view(spec.dtype.torch))
    return values


def from_array(device: Device, array: Any, spec: TensorSpec | ScalarSpec, as_torch: bool, to_cpu: bool) -> Any:
    """Make a torch tensor over an array of JAX's, a copy of it for numpy, or the number in it.

    `to_cpu` says that a torch tensor is to lie in the memory of the CPU. Waits until the array is computed.
    """
    if isinstance(spec, ScalarSpec):
        return {"int": int, "float": float, "bool": bool}[spec.kind](np.asarray(array)[()])
    if not as_torch:
        return np.array(array).view(numpy_dtype(spec.dtype))
    *_, from_dlpack = _torch()
    if device.is_cpu and _has_fast_path:
        tensor = from_dlpack(_give(array))
    else:
        tensor = from_dlpack(array)
        tensor = tensor.cpu() if to_cpu else tensor
    return tensor if tensor.dtype is spec.dtype.torch else tensor.view(spec.dtype.torch)


class DeviceWeight:
    """A weight on a device. It keeps the tensor that it was made of, so that no other can have its address."""

    def __init__(self, device: Device, tensor: Any) -> None:
        self.tensor = tensor
        self.array = to_array(device, tensor, TensorSpec(tuple(tensor.shape), _dtype(tensor)))


_WEIGHTS: weakref.WeakValueDictionary[Any, DeviceWeight] = weakref.WeakValueDictionary()


def weights_on(device: Device, weights: Mapping[str, Any], names: Sequence[str]) -> list[DeviceWeight]:
    """Bring weights to a device. Programs that have the same tensor share it there."""
    found = []
    for name in names:
        tensor = weights[name]
        try:
            key = (device.name, *_identity(tensor))
            weight = _WEIGHTS.get(key)
            if weight is None:
                weight = _WEIGHTS[key] = DeviceWeight(device, tensor)
        except (ValueError, TypeError, RuntimeError) as error:
            raise EngineError(f"cannot read the weight {name!r}: {error}") from error
        found.append(weight)
    return found


def _dtype(tensor: Any) -> DType:
    dtype = dtype_of(tensor)
    if dtype is None:
        raise TypeError(f"{tensor.dtype} is not an element type of programs")
    return dtype


def _identity(tensor: Any) -> tuple[Any, ...]:
    """Tell a tensor from others, and from what it was before it was written."""
    if is_torch(tensor):
        version = 0 if tensor.is_inference() else tensor._version
        place = (tensor.data_ptr(), str(tensor.device), tensor.stride())
        return (*place, tuple(tensor.shape), tensor.dtype, tensor.is_conj(), tensor.is_neg(), version)
    # An array tells nobody when it is written, so that it cannot be shared.
    return (id(tensor), object())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
