"""The program that is being built, and the dtype of new floats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.frontends.nn.core.tracer import Tracer

_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)
_dtype = "float32"
_dtype_here: ContextVar[str | None] = ContextVar("dtype", default=None)


def current() -> Tracer:
    """Return the tracer of the program that is being built; RuntimeError if there is none."""
    tracer = _tracer.get()
    if tracer is None:
        raise RuntimeError(
            "there is no program to add this op to: call it in a function that flambeau.trace traces, or in "
            "`with flambeau.module_context():`"
        )
    return tracer


@contextmanager
def building(tracer: Tracer) -> Iterator[None]:
    """Add ops to this program. One program is built at a time."""
    if _tracer.get() is not None:
        raise RuntimeError("a program is being built already: module_context and trace cannot be nested")
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


def default_dtype_name() -> str:
    return _dtype_here.get() or _dtype


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype of new floats: of parameters, and of what `flambeau.ops` creates. It is float32 at first.

    Within a `module_context` it holds to the end of that.
    """
    global _dtype
    if _dtype_here.get() is None:
        _dtype = _float_name(dtype)
    else:
        _dtype_here.set(_float_name(dtype))


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Set the dtype of new floats for the length of a `with` block."""
    token = _dtype_here.set(_float_name(dtype))
    try:
        yield
    finally:
        _dtype_here.reset(token)


def _float_name(dtype: Any) -> str:
    from flambeau.frontends.nn.core.values import as_dtype

    found = as_dtype(dtype)
    if found is None or not found.is_float:
        raise TypeError(f"the default dtype is a float dtype, not {dtype!r}")
    return found.name
