"""Torch tensors and numpy arrays behind one set of questions, without importing PyTorch for those who lack it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType


class GradientError(RuntimeError):
    """A program was called where PyTorch records what gradients need, and compiled programs have no gradients."""


def is_torch(value: Any) -> bool:
    """Tell whether a value is a torch tensor. Whoever holds one has imported PyTorch, so this never has to."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_numpy(value: Any) -> TypeGuard[npt.NDArray[Any]]:
    """Tell whether a value is a numpy array; numpy's scalars (`np.float32(1)`) are none."""
    return isinstance(value, np.ndarray)


def is_array(value: Any) -> bool:
    """Tell whether a value may be passed as a tensor: a numpy array or a torch tensor."""
    return is_numpy(value) or is_torch(value)


def prefers_torch(values: Iterable[Any]) -> bool | None:
    """Tell whether results should be torch tensors (True: one value is one) or arrays (False); None without either."""
    seen = None
    for value in values:
        if is_torch(value):
            return True
        if is_numpy(value):
            seen = False
    return seen


def dtype_of(array: Any) -> DType | None:
    """Return the element type of a tensor or array; None for one that programs cannot have."""
    if is_torch(array):
        return dtypes.from_torch(array.dtype)
    dtype = array.dtype.newbyteorder("=")
    # The types that numpy itself lacks come from `ml_dtypes`, under PyTorch's names.
    return dtypes.from_numpy(dtype) or dtypes.BY_NAME.get(dtype.name)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy type of these values, by `ml_dtypes` if it is installed; else that of their bits."""
    if dtype.numpy is not None:
        return dtype.numpy
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.name))
        return found
    except (ImportError, AttributeError):
        return dtype.storage


def as_bytes(array: Any) -> npt.NDArray[np.uint8]:
    """View the memory of a tensor or array as flat bytes; copy it first if it is not contiguous."""
    if is_torch(array):
        if array.device.type != "cpu":
            raise ValueError(f"it is on device {str(array.device)!r}, and this engine reads the memory of the CPU")
        import torch

        flat = array.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        flat = flat.as_strided(flat.shape, (1,))  # of a single element, any stride counts as contiguous
        data: npt.NDArray[np.uint8] = flat.view(torch.uint8).numpy()
        return data
    return np.ascontiguousarray(native(array)).reshape(-1).view(np.uint8)


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array's bytes to this machine's order; return the array itself if they are in it."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class _Memory:
    """The memory of a tensor or array as numpy sees it, whatever its elements are."""

    def __init__(self, array: Any) -> None:
        if is_torch(array):
            size = array.element_size()
            start, strides = array.data_ptr(), tuple(s * size for s in array.stride())
        else:
            size, start, strides = array.itemsize, array.ctypes.data, array.strides
        shape = tuple(array.shape)
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{size}", "shape": shape, "strides": strides, "data": (start, True),
        }  # fmt: skip


def span_of(array: Any) -> tuple[int, int]:
    """Return the address of the first byte of a non-empty tensor or array, and that behind its last."""
    if is_torch(array):
        start, size = array.data_ptr(), array.element_size()
        strides = [s * size for s in array.stride()]
    else:
        start, size, strides = array.ctypes.data, array.itemsize, array.strides
    reach = [(n - 1) * s for n, s in zip(array.shape, strides, strict=True)]
    return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + size


Span = tuple[int, int, int]
"""The first address of some memory, the one behind it, and the number of what lies there."""


def overlapping(spans: Sequence[Span]) -> list[list[Span]]:
    """Group the spans that overlap, directly or by others between them, in the order of addresses."""
    groups: list[list[Span]] = []
    group: list[Span] = []
    end = 0
    for span in sorted(spans):
        if span[0] >= end:
            group = [span]
            end = span[1]
            continue
        group.append(span)
        end = max(end, span[1])
        if len(group) == 2:
            groups.append(group)
    return groups


_WORK = 100_000
"""How long to look for an element that two tensors share; undecided counts as shared."""


def shares_memory(a: Any, b: Any) -> bool:
    """Tell whether some element of one tensor or array is an element of the other too; True if that is hard to say."""
    if 0 in a.shape or 0 in b.shape or _device(a) != _device(b):
        return False
    try:
        return bool(np.shares_memory(np.asarray(_Memory(a)), np.asarray(_Memory(b)), max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def cannot_be_written(array: Any) -> str | None:
    """Say why nothing can be written into a tensor or array; None if it can be."""
    if is_numpy(array):
        if not array.flags.writeable:
            return "is read-only"
        shape, strides = array.shape, array.strides
    else:
        shape, strides = tuple(array.shape), array.stride()
    if any(size > 1 and stride == 0 for size, stride in zip(shape, strides, strict=True)):
        return "has several elements at one place in memory (expand)"
    return None


def has_strides(array: Any, wanted: Sequence[int] | str) -> bool:
    """Tell whether a tensor or array has these strides, or is `contiguous`; dims of size 1 do not count."""
    shape = tuple(array.shape)
    own = array.stride() if is_torch(array) else tuple(s // array.itemsize for s in array.strides)
    if isinstance(wanted, str):
        wanted = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, own, wanted, strict=True))


def _device(array: Any) -> str:
    return str(array.device) if is_torch(array) else "cpu"


def to_torch(array: npt.NDArray[Any]) -> Any:
    """Make a torch tensor over the memory of an array, or of a copy where PyTorch cannot share it."""
    import torch

    dtype = dtype_of(array)
    if dtype is None:
        raise TypeError(f"{array.dtype} is not an element type of programs")
    array = native(array)
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()  # PyTorch has neither read-only tensors nor negative strides
    return torch.from_numpy(np.asarray(array).view(dtype.storage)).view(dtype.torch)


def to_numpy(tensor: Any) -> npt.NDArray[Any]:
    """Make an array over the memory of a torch tensor."""
    dtype = dtype_of(tensor)
    if dtype is None:
        raise TypeError(f"{tensor.dtype} is not an element type of programs")
    return as_bytes(tensor).view(dtype.storage).view(numpy_dtype(dtype)).reshape(tuple(tensor.shape))


def overwrite(target: Any, value: Any) -> None:
    """Copy `value` into the memory of `target`, which keeps its identity and strides."""
    if is_torch(target):
        # On a leaf that requires a gradient, PyTorch forbids what is written here under autograd's eyes.
        target.detach().copy_(value if is_torch(value) else to_torch(value))
    else:
        target[...] = to_numpy(value) if is_torch(value) else value


def copied(array: Any) -> Any:
    """Copy a torch tensor, without its gradient, or an array."""
    return array.detach().clone() if is_torch(array) else array.copy()
