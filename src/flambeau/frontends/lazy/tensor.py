"""The tensor itself: a wrapper without memory, whose contents are a value of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau.frontends.lazy.graph import Kind, Spec, Value, spec_of

DEVICE = torch.device("lazy", 1)
"""Where lazy tensors say that they are."""


class Storage:
    """What tensors that are views of one another share: the contents of the one that they are views of."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


class View:
    """How a tensor looks at its storage: an op that gives a view, applied to the whole or to another view."""

    __slots__ = ("base", "index", "kind", "parent", "value")

    def __init__(self, parent: View | None, kind: Kind, index: int) -> None:
        self.parent = parent
        self.kind = kind
        self.index = index
        self.base: Value | None = None
        """The contents of the storage that `value` was read from."""
        self.value: Value | None = None


class LazyTensor(torch.Tensor):
    """A tensor that records. It is a `torch.Tensor` to autograd, to modules and to optimisers."""

    storage_: Storage
    view_: View | None
    spec_: Spec

    @staticmethod
    def __new__(cls: Any, *args: Any, **kwargs: Any) -> LazyTensor:
        raise TypeError("a lazy tensor is made by to(flambeau.lazy.device()), or under flambeau.lazy.mode()")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _DISPATCH[0](func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    # What PyTorch does with the memory of a tensor, it does here with a copy of the contents.

    def numpy(self, *, force: bool = False) -> Any:
        return (self.detach() if force else self).cpu().numpy()

    def untyped_storage(self) -> Any:
        raise NotImplementedError("a lazy tensor has no memory: what cpu() gives has")

    storage = untyped_storage

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.cpu().__array__(dtype) if dtype is not None else self.cpu().__array__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the contents: what is read again is a tensor in memory."""
        eager = self.detach().cpu()
        if getattr(self, "_is_param", False):
            return torch.nn.Parameter(eager, self.requires_grad).__reduce_ex__(protocol)
        return eager.requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        text = repr(self.detach().cpu())[:-1] + f", device='{DEVICE}'"
        if self.grad_fn is not None:
            text += f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            text += ", requires_grad=True"
        parameter = getattr(self, "_is_param", False)
        return f"Parameter containing:\n{text})" if parameter else text + ")"

    __str__ = __repr__


_wrapper = torch.Tensor._make_wrapper_subclass


def tensor_on(storage: Storage, spec: Spec, view: View | None = None) -> LazyTensor:
    """Make a tensor of a storage: the whole, or what a view sees of it."""
    # Not by calling the class, which initialises a tensor for a second time, and takes ten times as long.
    made: LazyTensor = _wrapper(LazyTensor, spec.shape, strides=spec.strides, dtype=spec.dtype, device=DEVICE)
    made.storage_ = storage
    made.view_ = view
    made.spec_ = spec
    return made


def _data_of(tensor: LazyTensor) -> Any:
    """Return the tensor without its history, as `Tensor.data` does."""
    return tensor.detach()


def become(tensor: LazyTensor, other: LazyTensor) -> None:
    """Make a tensor what another one is, in place: its storage, shape and dtype."""
    torch.Tensor.data.__set__(tensor, other)  # type: ignore[attr-defined]
    tensor.storage_, tensor.view_, tensor.spec_ = other.storage_, other.view_, other.spec_


def _set_data(tensor: LazyTensor, other: Any) -> None:
    if not isinstance(other, LazyTensor):
        raise TypeError(
            "a lazy tensor's `data` can only be set to a lazy tensor: move the other with .to(flambeau.lazy.device())"
        )
    become(tensor, other)


LazyTensor.data = property(_data_of, _set_data)  # type: ignore[assignment]

_DISPATCH: list[Callable[..., Any]] = []
"""What records; `recording` puts it here, since it makes lazy tensors itself."""


def on_dispatch(function: Callable[..., Any]) -> Callable[..., Any]:
    _DISPATCH[:] = [function]
    return function


def with_data(data: torch.Tensor) -> LazyTensor:
    """Make a lazy tensor with contents that nobody else will write."""
    spec = spec_of(data)
    return tensor_on(Storage(Value(spec, data)), spec)
