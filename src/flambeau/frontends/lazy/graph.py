"""What is recorded: values, the ops that make them, and the kinds that ops of one form share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


class Spec:
    """Shape, dtype and strides of a tensor. There is one object for each, so that comparing is `is`."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.strides = strides

    def empty(self, device: str = "cpu") -> torch.Tensor:
        """Make a tensor that is so; under a fake tensor mode, one without contents."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


_SPECS: dict[tuple[Any, ...], Spec] = {}


def spec_of(tensor: torch.Tensor) -> Spec:
    """Return the one `Spec` for tensors like this."""
    return interned_spec(tuple(tensor.shape), tensor.dtype, tuple(tensor.stride()))


def interned_spec(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...]) -> Spec:
    key = (shape, dtype, strides)
    found = _SPECS.get(key)
    return found if found is not None else _SPECS.setdefault(key, Spec(*key))


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Stands in the arguments of an op for its i-th tensor."""

    index: int


@dataclass(frozen=True, slots=True)
class NumberSlot:
    """Stands in the arguments of an op for its i-th number that may differ between steps."""

    index: int


class Kind:
    """What ops of one form have in common: the overload, arguments that are part of the program, types of results."""

    __slots__ = ("args", "func", "is_random", "kwargs", "lifts", "many", "results", "specs")

    def __init__(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        specs: tuple[Spec, ...],
        results: tuple[Spec | None, ...],
        many: type | None,
        lifts: bool,
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.specs = specs
        """Of the tensors among the arguments."""
        self.results = results
        """None for one that was not asked for, as by `output_mask`."""
        self.many = many
        """`tuple` or `list` where the op returns several tensors; None where it returns one."""
        self.lifts = lifts
        """Whether its numbers are expected to differ from step to step."""
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags

    def call(self, tensors: Sequence[Any], numbers: Sequence[Any], make: Callable[..., Any] | None = None) -> Any:
        """Call the op, or make a node of it, with these tensors and numbers."""

        def fill(value: Any) -> Any:
            if isinstance(value, TensorSlot):
                return tensors[value.index]
            if isinstance(value, NumberSlot):
                return numbers[value.index]
            return type(value)(map(fill, value)) if isinstance(value, (list, tuple)) else value

        args, kwargs = tuple(map(fill, self.args)), {k: fill(v) for k, v in self.kwargs.items()}
        return (make or self.func)(*((self.func,) if make else ()), *args, **kwargs)

    def eagerly(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> Any:
        """Call the op on contents, which lie in memory in order: what was a view there need not be one here."""
        if self.func is torch.ops.aten.view.default:
            return tensors[0].reshape(self.args[1])
        if self.func is torch.ops.aten.as_strided.default:
            return self.in_memory(tensors[0].contiguous())
        return self.call(tensors, numbers)

    def in_memory(self, tensor: torch.Tensor) -> Any:
        """Give the views of a tensor in memory that this op gives, which share it."""
        if self.func is torch.ops.aten.as_strided.default:  # Its offset counts from the tensor's first element here.
            size, stride, offset = self.args[1:]
            return tensor.as_strided(size, stride, offset + tensor.storage_offset())
        return self.call([tensor], [])

    def flat(self, returned: Any) -> list[Any]:
        """List the tensors that a call has returned, one for each of `results`."""
        return [returned] if self.many is None else list(returned)


class Value:
    """Contents of a tensor at one time: to be computed by an op, or there. What is there is never written."""

    __slots__ = ("data", "error", "index", "op", "spec")

    def __init__(
        self, spec: Spec, data: torch.Tensor | None = None, op: Recorded | None = None, index: int = 0
    ) -> None:
        self.spec = spec
        self.data = data
        self.op = op
        self.index = index
        self.error: BaseException | None = None
        """Why there are no contents, if computing them has failed."""

    @property
    def is_usable(self) -> bool:
        """Whether an op may take it; not so for what a cut has left out, as nobody held it."""
        return self.op is not None or self.data is not None or self.error is not None


class Recorded:
    """An op that was recorded."""

    __slots__ = ("kind", "lifts", "numbers", "operands", "place", "results", "trace")

    def __init__(self, kind: Kind, operands: list[Value], numbers: list[Any], trace: Any) -> None:
        self.kind = kind
        self.operands = operands
        self.numbers = numbers
        self.trace = trace
        self.lifts = bool(numbers) and kind.lifts and _is_update()
        """Whether its numbers are inputs of the program from the first time on."""
        self.place = user_place()
        self.results = [None if s is None else Value(s, None, self, i) for i, s in enumerate(kind.results)]


def _is_update() -> bool:
    """Tell whether autograd is neither recording nor running, as while an optimiser computes."""
    return not torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1


Place = tuple[str, int, str] | None
"""File, line and function."""

_TORCH = torch.__path__[0]
_HERE = __file__.rpartition("/")[0]
_LIBRARY: dict[Any, bool] = {}


def user_place() -> Place:
    """Return the user's line that is running, without asking for more than the frames have at hand."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        skipped = _LIBRARY.get(code)
        if skipped is None:
            skipped = _LIBRARY[code] = code.co_filename.startswith((_TORCH, _HERE, "<"))
        if not skipped:
            return code.co_filename, frame.f_lineno, code.co_name
        frame = frame.f_back
    return None
