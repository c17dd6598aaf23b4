"""What the user types: `model.py:make`, `1x3x224x224xf32`, `2x?xi64=ones`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau.commands.errors import usage_error
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.python_files import PythonFileError, import_file

EXAMPLE_SIZE = 2
"""The size that a dynamic dim has in the example which torch.export traces with."""


@dataclass(frozen=True)
class InputSpec:
    """One `--input`."""

    text: str
    shape: tuple[int | None, ...]
    dtype: DType
    value: str = ""
    """What follows `=`: a number, `ones`, `zeros`, `arange`, or `@file.npy`."""

    def tensor(self) -> Any:
        """Make an example tensor: random unless a value was given."""
        import torch

        shape = [EXAMPLE_SIZE if d is None else d for d in self.shape]
        dtype = self.dtype.torch
        if self.value.startswith("@"):
            return self._from_file(Path(self.value[1:]))
        if self.value == "arange":
            count = 1
            for d in shape:
                count *= d
            return torch.arange(count).reshape(shape).to(dtype)
        if self.value:
            number = {"ones": 1.0, "zeros": 0.0}.get(self.value)
            try:
                number = float(self.value) if number is None else number
            except ValueError:
                raise usage_error(
                    f"--input {self.text}: {self.value!r} is not a number, ones, zeros, arange or @file.npy"
                ) from None
            return torch.full(shape, number).to(dtype)
        if self.dtype.is_float or self.dtype.is_complex:
            return torch.randn(shape, dtype=dtype if self.dtype.size >= 4 else None).to(dtype)
        return torch.ones(shape, dtype=dtype)

    def _from_file(self, path: Path) -> Any:
        import numpy as np
        import torch

        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as e:
            raise usage_error(f"--input {self.text}: cannot read {path}: {e}") from None
        if len(array.shape) != len(self.shape) or any(
            want is not None and want != have for want, have in zip(self.shape, array.shape, strict=True)
        ):
            raise usage_error(f"--input {self.text}: {path} holds a {'x'.join(map(str, array.shape))} array")
        return torch.from_numpy(array).to(self.dtype.torch)

    def dynamic_dims(self) -> dict[int, Any] | None:
        """Return `torch.export`'s dynamic shapes of this input; None if all its sizes are static."""
        import torch

        dims = {i: torch.export.Dim.DYNAMIC for i, d in enumerate(self.shape) if d is None}
        return dims or None


def parse_input(text: str) -> InputSpec:
    """Read `1x3x224x224xf32`; `?` is a dim known only at run time, a bare dtype is a 0-d tensor."""
    type_text, _, value = text.partition("=")
    *dims, element = type_text.split("x")
    dtype = dtypes.from_name(element)
    if dtype is None:
        known = "f32, f16, bf16, f64, i64, i32, i8, ui8, i1, complex64"
        raise usage_error(
            f"--input {text}: {element!r} is not a dtype; write sizes and a dtype such as 1x3x224x224xf32 ({known})"
        )
    shape: list[int | None] = []
    for d in dims:
        if d == "?":
            shape.append(None)
        elif d.isdigit():
            shape.append(int(d))
        else:
            raise usage_error(f"--input {text}: {d!r} is not a size; write a number or ?")
    return InputSpec(text, tuple(shape), dtype, value)


def load_factory(target: str) -> Any:
    """Load the model that `FILE.py:NAME` names: NAME is an `nn.Module`, or a function that makes one."""
    path_text, colon, name = target.rpartition(":")
    if not colon or not name:
        raise usage_error(f"{target!r} does not name a model; write FILE.py:FACTORY")
    path = Path(path_text)
    try:
        module = import_file(path)
    except PythonFileError as e:
        raise usage_error(str(e)) from e
    factory: Callable[[], Any] | Any = getattr(module, name, None)
    if factory is None:
        names = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise usage_error(f"{path} has no {name!r}; it defines {', '.join(names) or 'nothing callable'}")
    import torch

    if isinstance(factory, torch.nn.Module):
        return factory
    if not callable(factory):
        raise usage_error(f"{name!r} in {path} is a {type(factory).__name__}, not a model or a function that makes one")
    try:
        model = factory()
    except Exception as e:
        raise usage_error(f"{name}() failed, called without arguments: {type(e).__name__}: {e}") from e
    if not isinstance(model, torch.nn.Module) and not callable(model):
        raise usage_error(f"{name}() gave a {type(model).__name__}, not an nn.Module")
    return model
