"""What PyTorch writes in Python, or parses by hand, rather than as ATen operators: one small function each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.frontends.nn.core import context, values
from flambeau.frontends.nn.core.seed import generator
from flambeau.frontends.nn.core.values import Tensor
from flambeau.ir import dtypes

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions of `flambeau.ops` that are not ATen operators, or more than that."""

METHODS: dict[str, Callable[..., Any]] = {}
"""The same for methods of tensors."""


def function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function of `flambeau.ops` (decorator)."""
    FUNCTIONS[f.__name__.rstrip("_")] = f
    return f


def method(f: Callable[..., Any]) -> Callable[..., Any]:
    """Register a method of tensors (decorator)."""
    METHODS[f.__name__.rstrip("_")] = f
    return f


def both(f: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function that is also a method (decorator)."""
    return function(method(f))


def aten(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the ATen operator of this name."""
    return context.current().invoke(f"aten.{name}", None, args, kwargs)


# --- Creation ---


@function
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Make a constant tensor of numbers, nested lists of them, or a numpy array."""
    if isinstance(data, Tensor):
        return data.clone() if dtype is None else data.to(dtype)
    if isinstance(data, values.Scalar):
        return _scalar_tensor(data, dtype)
    if not values.is_literal(data):
        if isinstance(data, (list, tuple)):
            return aten("stack", [tensor(item, dtype=dtype) for item in data])
        raise TypeError(
            f"tensor(): argument 'data' must be numbers, lists of them or an array, not {type(data).__name__}"
        )
    tracer = context.current()
    found: Tensor = tracer.wrap(tracer.literal_of(values.as_array(data, _dtype(dtype)), "constant"))
    return found


FUNCTIONS["as_tensor"] = FUNCTIONS["asarray"] = lambda data, dtype=None, device=None: (
    data if isinstance(data, Tensor) and dtype is None else tensor(data, dtype=dtype)
)
FUNCTIONS["from_numpy"] = lambda array: tensor(np.asarray(array))


def _scalar_tensor(value: Any, dtype: Any) -> Tensor:
    default = {values.Int: dtypes.int64, values.Bool: dtypes.bool_}.get(type(value), values.default_dtype())
    found: Tensor = aten("scalar_tensor", value, dtype=dtype or default)
    return found


def _dtype(dtype: Any) -> dtypes.DType | None:
    if dtype is None:
        return None
    found = values.as_dtype(dtype)
    if found is None:
        raise TypeError(f"argument 'dtype' must be dtype, not {type(dtype).__name__}")
    return found


def _creation(name: str, array: Callable[..., Any], floats: Callable[..., bool]) -> None:
    """Register a function that makes a tensor from numbers.

    `floats` says whether it has the default dtype where none is given; ATen's own default is float32. Where tensors
    are objects, the tensor is a literal.
    """

    def create(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        dtype = _dtype(dtype)
        if dtype is None and floats(*args, **kwargs) and values.default_dtype() is not dtypes.float32:
            dtype = values.default_dtype()
        if context.current().objects and "out" not in kwargs:
            contents = array(*args, **{k: v for k, v in kwargs.items() if k in ("size", "fill_value", "n", "m")})
            return tensor(contents, dtype=dtype or (values.default_dtype() if floats(*args, **kwargs) else None))
        return aten(name, *args, dtype=dtype, **kwargs)

    create.__doc__ = f"PyTorch's `{name}`."
    FUNCTIONS[name] = values.named(name, create)


def _sizes(*size: Any, **_: Any) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else size


def _always(*_: Any, **__: Any) -> bool:
    return True


def _is_float(*args: Any, **kwargs: Any) -> bool:
    return any(isinstance(a, (float, values.Float)) for a in (*args, *kwargs.values()))


_creation("ones", lambda *size, **k: np.ones(_sizes(*size, *k.values())), _always)
_creation("zeros", lambda *size, **k: np.zeros(_sizes(*size, *k.values())), _always)
_creation("empty", lambda *size, **k: np.zeros(_sizes(*size, *k.values())), _always)
_creation("rand", lambda *size, **k: generator().random(_sizes(*size, *k.values())), _always)
_creation("randn", lambda *size, **k: generator().standard_normal(_sizes(*size, *k.values())), _always)
_creation("full", lambda size, fill_value: np.full(size, fill_value), _is_float)
_creation("eye", np.eye, _always)
_creation("arange", np.arange, _is_float)
_creation("linspace", np.linspace, _always)


# --- Sizes and types ---


@method
def size(self: Tensor, dim: int | None = None) -> Any:
    """Return the shape, or one size of it."""
    return self.shape if dim is None else self.shape[dim]


@method
def dim(self: Tensor) -> int:
    """Return the rank."""
    return self.ndim


METHODS["ndimension"] = dim


@both
def numel(self: Tensor) -> Any:
    """Return the number of elements: an int if the shape is static, else a value of the program."""
    if all(d is not None for d in self.meta.shape):
        return math.prod(d for d in self.meta.shape if d is not None)
    return context.current().invoke("aten.numel", None, (self,), {})


METHODS["nelement"] = numel


@both
def is_floating_point(self: Tensor) -> bool:
    """Tell whether the elements are floats."""
    return self.dtype.is_float


@both
def is_complex(self: Tensor) -> bool:
    """Tell whether the elements are complex numbers."""
    return self.dtype.is_complex


@method
def element_size(self: Tensor) -> int:
    """Return the size of one element in bytes."""
    return self.dtype.size


@function
def is_tensor(value: Any) -> bool:
    """Tell whether a value is a tensor."""
    return isinstance(value, Tensor)


@method
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Cast to another dtype. Programs have one device, so device names change nothing."""
    wanted: Any = kwargs.get("dtype")
    for arg in (*args, kwargs.get("other")):
        if isinstance(arg, Tensor):
            wanted = arg.dtype
        elif not isinstance(arg, (bool, str, type(None))) or values.is_dtype(arg):
            wanted = arg if arg is not None else wanted
    dtype = _dtype(wanted)
    if dtype is None:
        return self
    return aten("to", self, dtype, copy=bool(kwargs.get("copy", False)))


@method
def type_(self: Tensor, dtype: Any = None) -> Any:
    """Cast to another dtype."""
    return to(self, dtype)


def _cast(name: str, dtype: dtypes.DType) -> None:
    METHODS[name] = lambda self, *_, **__: to(self, dtype)


for _name, _dtype_of in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_,
}.items():  # fmt: skip
    _cast(_name, _dtype_of)


def _same(self: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return the tensor itself: what this changes in PyTorch does not exist in a program."""
    return self


for _name in ("cpu", "cuda", "requires_grad_", "pin_memory", "share_memory_", "detach_", "retain_grad"):
    METHODS[_name] = _same


@method
def is_contiguous(self: Tensor, **_: Any) -> bool:
    """Return True: the contents of a value have no strides."""
    return True


@method
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Broadcast the tensor to the shape of another one."""
    return self.expand(list(other.shape))


@method
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """View the tensor in the shape of another one."""
    return self.view(list(other.shape))


@method
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """Reshape the tensor to the shape of another one."""
    return self.reshape(list(other.shape))


@both
def unflatten(self: Tensor, dim: int, sizes: Sequence[Any]) -> Tensor:
    """Split a dim into several of these sizes."""
    return aten("unflatten", self, dim, list(sizes))


@method
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    """Make a constant tensor with this one's dtype."""
    return tensor(data, dtype=dtype or self.dtype)


# --- Functions of several tensors ---


def _listed(tensors: Sequence[Any]) -> list[Any]:
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


@function
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum products of elements, in Einstein's notation."""
    return aten("einsum", equation, _listed(operands))


@function
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Expand 1-d tensors to grids of coordinates."""
    found: tuple[Tensor, ...] = aten("meshgrid", _listed(tensors), indexing=indexing)
    return found


@function
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Expand the tensors to the shape that all broadcast to."""
    from flambeau.infer.rules import broadcast

    listed = _listed(tensors)
    shape = broadcast(*(t.meta.shape for t in listed))
    sizes: list[Any] = [
        d if d is not None else next(t.shape[i - len(shape)] for t in listed if t.ndim >= len(shape) - i)
        for i, d in enumerate(shape)
    ]
    return tuple(t.expand(sizes) for t in listed)


@both
def split(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Split the tensor along a dim into parts of one size, or of a list of sizes."""
    if isinstance(split_size, (list, tuple)):
        found: tuple[Tensor, ...] = aten("split_with_sizes", self, list(split_size), dim)
        return found
    found = aten("split", self, split_size, dim)
    return found


@both
def norm(self: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Compute the p-norm, Frobenius by default, of all elements or along dims."""
    dims = [dim] if isinstance(dim, int) else dim
    if p in ("fro", None):
        return aten("linalg_vector_norm", self, 2, dims, keepdim, dtype=dtype)
    if p == "nuc":
        return aten("linalg_matrix_norm", self, "nuc", dims or [-2, -1], keepdim, dtype=dtype)
    return aten("linalg_vector_norm", self, p, dims, keepdim, dtype=dtype)


@function
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Contract two tensors: sum their product over pairs of dims."""
    if isinstance(dims, int):
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    return aten("tensordot", a, b, left, right)


@function
def broadcast_shapes(*shapes: Sequence[int]) -> values.Size:
    """Return the shape that all shapes broadcast to."""
    from flambeau.infer.rules import broadcast

    return values.Size(broadcast(*shapes))


@both
def nonzero(self: Tensor, *, as_tuple: bool = False) -> Any:
    """List the indices of elements that are not zero; their number is known at run time only."""
    found = aten("nonzero", self)
    return aten("unbind", found, 1) if as_tuple else found


@function
def concat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Concatenate; PyTorch's other name for `cat`."""
    return aten("cat", list(tensors), dim)


FUNCTIONS["concatenate"] = concat


@function
def item(x: Tensor) -> Any:
    """Read the one element of a tensor as a number of the program."""
    return aten("item", x)
