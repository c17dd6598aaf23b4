"""What users say about the arguments of a TorchScript program: decorators, placeholders, examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from xdsl.ir import Attribute

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, NONE, STR, NonValueTensorType, Shape, VTensorType, intern
from flambeau.ir import dtypes

ArgumentBound = Any
"""What is known about an argument: a type of the torch dialect, a list, tuple or dictionary of bounds, or None."""

F = TypeVar("F", bound=Callable[..., Any])

_ARGUMENTS = "_flambeau_arguments"
_EXPORT = "_flambeau_export"
TRACED_SIZE = 7
"""The size with which a dynamic dimension is traced when nobody names one."""


def export(function: F) -> F:
    """Mark a method that callers of the compiled program see; TorchScript compiles it even if nothing calls it."""
    setattr(function, _EXPORT, True)
    torch.jit.export(function)
    return function


def annotate_args(annotations: Sequence[Any]) -> Callable[[F], F]:
    """Declare the types of a method's arguments: `annotate_args([None, ([-1, 3], torch.float32, True)])`.

    There is an entry for each argument, `self` included. None says nothing; a tensor is its shape, in which -1 is any
    size, its dtype, and whether it is a value that nobody writes.
    """
    for entry in annotations:
        is_triple = isinstance(entry, (tuple, list)) and len(entry) == 3 and isinstance(entry[1], torch.dtype)
        if entry is not None and not is_triple:
            raise TypeError(f"an argument is annotated with None or (shape, dtype, has_value_semantics), not {entry!r}")

    def annotate(function: F) -> F:
        setattr(function, _ARGUMENTS, list(annotations))
        return function

    return annotate


def annotated_bounds(model: Any) -> list[ArgumentBound] | None:
    """Return the types that `annotate_args` gave the model's forward; None without annotations.

    CompileError for a dtype without an MLIR type: only now, so that a file may say more than can be compiled.
    """
    forward = getattr(model, "forward", model)
    entries = getattr(forward, _ARGUMENTS, None)
    if entries is None:
        return None
    return [e and tensor_bound(*e) for e in (entries[1:] if isinstance(model, torch.nn.Module) else entries)]


def exported_members(model: Any) -> tuple[str, ...]:
    """List the members that callers see: the methods marked with `export`, or else forward alone."""
    names = [n for n in dir(type(model)) if getattr(getattr(type(model), n, None), _EXPORT, False)]
    return tuple(names) or ("forward",)


def tensor_bound(shape: Sequence[int | None], dtype: torch.dtype, is_value: bool = True) -> Attribute:
    """Make a tensor type such as `!torch.vtensor<[?,3],f32>`; None and -1 are sizes known only at run time."""
    known = dtypes.from_torch(dtype)
    if known is None:
        reason = f"dtype {dtype} has no MLIR type"
        raise CompileError([Diagnostic("import", reason, hint="Use a standard dtype.")])
    sizes: Shape = tuple(None if d is None or d == -1 else int(d) for d in shape)
    return intern(VTensorType if is_value else NonValueTensorType, (sizes, known.torch_type))


@dataclass(frozen=True)
class TensorPlaceholder:
    """An argument of which only the type is given; -1 in the shape is a size known only at run time."""

    shape: Sequence[int]
    dtype: torch.dtype
    example: torch.Tensor | None = None
    """The tensor to trace with, if there is one."""

    @classmethod
    def like(cls, tensor: torch.Tensor, dynamic_axes: Sequence[int] | None = None) -> TensorPlaceholder:
        """Make a placeholder of a tensor's type; the sizes of `dynamic_axes` are left open."""
        shape = list(tensor.shape)
        for axis in dynamic_axes or ():
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"a tensor of shape {list(tensor.shape)} has no axis {axis}")
            shape[axis] = -1
        return cls(shape, tensor.dtype, tensor)

    def tensor(self) -> torch.Tensor:
        """Return the example, or a tensor of ones of this type, to trace with."""
        if self.example is not None:
            return self.example
        return torch.ones([TRACED_SIZE if d in (-1, None) else d for d in self.shape], dtype=self.dtype)


_SCALARS: dict[type, Attribute] = {bool: BOOL, int: INT, float: FLOAT, str: STR, type(None): NONE}


@dataclass(frozen=True)
class ExampleArgs:
    """Example arguments of forward: what to trace with, and what they say about the arguments."""

    values: tuple[Any, ...]
    bounds: tuple[ArgumentBound, ...]

    @classmethod
    def of(cls, args: Any) -> ExampleArgs:
        """Split tensors, placeholders, numbers and containers of them into values and types; wrap a lone argument."""
        given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        return cls(pytree.tree_map(_concrete, given), pytree.tree_map(_bound, given))


def _concrete(value: Any) -> Any:
    return value.tensor() if isinstance(value, TensorPlaceholder) else value


def _bound(value: Any) -> ArgumentBound:
    if isinstance(value, (torch.Tensor, TensorPlaceholder)):
        return tensor_bound(value.shape, value.dtype)
    if type(value) in _SCALARS:
        return _SCALARS[type(value)]
    raise TypeError(f"an example argument is a tensor, a TensorPlaceholder or a number, not {type(value).__name__}")
