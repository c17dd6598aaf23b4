"""The device that lazy tensors are on, and the mode in which new tensors are there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from flambeau.frontends.lazy.dispatch import dispatch
from flambeau.frontends.lazy.overloads import aten, overload_of
from flambeau.frontends.lazy.tensor import DEVICE, LazyTensor
from flambeau.frontends.lazy.trace import current_trace

_LIBRARY: list[Any] = []


def install() -> torch.device:
    """Give PyTorch the kernels that make tensors on the device, once; gives the device."""
    if has_torch_lazy():
        raise RuntimeError(
            "PyTorch's own LazyTensorCore has the device 'lazy' in this process, and Flambeau's lazy tensors are on it "
            "too: use one of them only, or flambeau.lazy.from_torch_lazy() for graphs of the former"
        )
    if _LIBRARY:
        return DEVICE
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The last two are what torch.tensor() does to fill a tensor, past the class of the tensor.
        for func in (*_factories(), aten.copy_.default, aten._local_scalar_dense.default):
            library.impl(func, partial(_make, func), DEVICE.type.capitalize())
    _LIBRARY.append(library)
    torch._register_device_module(DEVICE.type, _DeviceModule(f"torch.{DEVICE.type}"))
    register_optimizer_step_post_hook(_after_step)
    return DEVICE


def _factories() -> Iterator[Any]:
    """Find the ops that make tensors on a device from no tensor, and that backends have kernels for."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        # PyTorch selects the backend of these by their argument `device`, for want of a tensor.
        if (
            namespace != "aten"
            or rest.startswith(("_", "sparse"))
            or not torch._C._dispatch_has_kernel_for_dispatch_key(name, "BackendSelect")
        ):
            continue
        base, _, overload = rest.partition(".")
        func = getattr(getattr(aten, base), overload or "default")
        found = overload_of(func)
        if found.is_factory and not found.is_composite and not found.written and found.returns_tensors:
            yield func


class _DeviceModule(ModuleType):
    """What PyTorch asks a device for under `torch.lazy`, as activation checkpoints do.

    Random numbers come from PyTorch's generator, whose state is saved and restored anyway; a graph begins where that is
    done, so that what is drawn in it depends on nothing before.
    """

    _initialized = True

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return DEVICE.index

    def device(self, index: Any) -> Any:
        return nullcontext()

    def synchronize(self, index: Any = None) -> None:
        current_trace().cut()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        current_trace().cut()
        return torch.empty(0, dtype=torch.uint8, device="cpu")

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        current_trace().cut()


def _make(func: Any, *args: Any, **kwargs: Any) -> Any:
    return dispatch(func, args, kwargs)


def has_torch_lazy() -> bool:
    """Tell whether PyTorch's own LazyTensorCore was started in this process."""
    try:
        torch._C._lazy._get_default_device_type()
    except (RuntimeError, AttributeError):
        return False
    return True


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Cut the graph where an optimiser has taken a step: the next one looks like it then."""
    if any(isinstance(p, LazyTensor) for group in optimizer.param_groups for p in group["params"]):
        current_trace().cut()


class _OnDevice(TorchFunctionMode):
    """Makes tensors on the device where nobody says on which."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _constructors() and kwargs.get("device") is None and not _is_number(func, args):
            kwargs["device"] = DEVICE
        return func(*args, **kwargs)


def _constructors() -> Any:
    from torch.utils._device import _device_constructors

    return _device_constructors()


def _is_number(func: Any, args: Any) -> bool:
    """Tell whether a tensor is made of one number, as optimisers count their steps: it stays where it is."""
    return func in (torch.tensor, torch.scalar_tensor) and bool(args) and isinstance(args[0], (int, float))


@contextmanager
def on_device() -> Iterator[None]:
    """Make tensors on the device, and cut the graph at the end."""
    install()
    with _OnDevice():
        yield
    current_trace().cut()
