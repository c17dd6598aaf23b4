"""`x[...]` and `x[...] = y`: PyTorch's indexing as views, and as gathers and scatters where tensors index."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.frontends.nn.core import context, values
from flambeau.frontends.nn.core.values import Tensor
from flambeau.ir.dtypes import INT64_MAX


def get(x: Tensor, index: Any) -> Tensor:
    """Read `x[index]`: views for numbers and slices, then `aten.index` for tensors."""
    view, indices = _view(x, index)
    if not any(i is not None for i in indices):
        return context.current().wrap(view.ssa) if view is x else view
    return _op("index", view, indices)


def put(x: Tensor, index: Any, value: Any) -> None:
    """Write `x[index] = value`, through views of x and `fill_`, `copy_` or `index_put_`."""
    view, indices = _view(x, index)
    if not isinstance(value, Tensor):
        value = _literal(value, x)
    if any(i is not None for i in indices):
        if value.ndim > 0 and value.dtype is not x.dtype:
            value = _op("to", value, x.dtype)
        _op("index_put_", view, indices, value)
    elif value.ndim == 0:
        _op("fill_", view, value)
    else:
        extra = value.ndim - view.ndim
        if extra > 0:  # leading dims of size 1 may be too many
            value = _op("reshape", value, list(value.shape[extra:]))
        _op("copy_", view, value)


def _op(name: str, *args: Any) -> Any:
    return context.current().invoke(f"aten.{name}", None, args, {})


def _literal(value: Any, like: Tensor) -> Tensor:
    tracer = context.current()
    if isinstance(value, values.Scalar):
        found: Tensor = _op("scalar_tensor", value)
        return found
    return tracer.wrap(tracer.literal_of(values.as_array(value, like.dtype), "constant"))


def _view(x: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Apply the numbers, slices and None of an index; return that view and its index tensors, None for other dims."""
    items = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list) and not values.is_literal(index):
        items = index
    items = [_as_tensor(i) for i in items]
    if sum(i is Ellipsis for i in items) > 1:
        raise IndexError("an index has at most one ellipsis")
    used = sum(map(_dims_of, items))
    if used > x.ndim:
        raise IndexError(f"too many indices for a tensor of {x.ndim} dims")
    if not any(i is Ellipsis for i in items):
        items.append(Ellipsis)
    dim, view = 0, x
    indices: list[Tensor | None] = []

    def advance(count: int) -> None:
        nonlocal dim
        dim += count
        indices.extend([None] * (dim - len(indices)))

    for item in items:
        if item is Ellipsis:
            advance(x.ndim - used)
        elif item is None:
            view = _op("unsqueeze", view, dim)
            advance(1)
        elif isinstance(item, (bool, np.bool_)):
            view = _op("unsqueeze", view, dim)
            indices.append(_literal_index(np.array([0] if item else [], np.int64)))
            dim += 1
        elif isinstance(item, slice):
            view = _sliced(view, dim, item, bare=index is item)
            advance(1)
        elif isinstance(item, Tensor):
            if item.dtype.is_bool and item.ndim != 1:
                raise NotImplementedError(
                    "a mask over several dims gives a tensor whose size only the run time knows: flatten those dims "
                    "of both first, or use flambeau.ops.where"
                )
            indices.append(item)
            dim += 1
        elif isinstance(item, (int, np.integer, values.Int)):
            view = _op("select", view, dim, int(item) if not isinstance(item, values.Int) else item)
        else:
            raise TypeError(
                f"an index is made of ints, slices, None, ..., tensors, arrays and lists of numbers, not "
                f"{type(item).__name__}"
            )
    while indices and indices[-1] is None:
        indices.pop()
    return view, indices


def _as_tensor(item: Any) -> Any:
    """Convert lists and arrays of an index to tensors."""
    if isinstance(item, np.ndarray) or (isinstance(item, (list, tuple)) and values.is_literal(item)):
        array = np.asarray(item)
        return _literal_index(array if array.dtype.kind == "b" else array.astype(np.int64))
    return item


def _literal_index(array: np.ndarray[Any, Any]) -> Tensor:
    tracer = context.current()
    found: Tensor = tracer.wrap(tracer.literal_of(array, "index"))
    return found


def _dims_of(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype.is_bool else 1


def _sliced(x: Tensor, dim: int, item: slice, bare: bool) -> Tensor:
    """Slice a dim; as in PyTorch, a slice that takes all emits no op, except for a bare `x[:]`."""
    step = 1 if item.step is None else item.step
    if isinstance(step, int) and step <= 0:
        raise ValueError("the step of a slice must be positive: use flip for the other direction")
    start = 0 if item.start is None else item.start
    if not bare and isinstance(start, int) and start == 0 and item.stop is None and isinstance(step, int) and step == 1:
        return x
    found: Tensor = _op("slice", x, dim, start, INT64_MAX if item.stop is None else item.stop, step)
    return found
