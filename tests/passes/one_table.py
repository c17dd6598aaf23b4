"""One call of an op as a program: from MLIR text, through `torch.export`, and traced with `flambeau.ops`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Region

import flambeau
from flambeau import nn
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.ops import ListUnpackOp
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import ListType, vtensor
from flambeau.frontends.nn.core.operators import Overload
from flambeau.infer.builder import TorchBuilder, infer, meta_of, type_of
from flambeau.ir import dtypes
from flambeau.ir.printing import pretty_text


class Call:
    """An overload and its arguments, in the schema's order; what is missing at the end has its default."""

    def __init__(self, name: str, *args: Any) -> None:
        schema = registry.schema(name)
        assert schema is not None, name
        self.schema: Schema = schema
        self.args = args
        self.tensors = [v for a in args for v in (a if isinstance(a, list) else [a]) if isinstance(v, torch.Tensor)]

    def bound(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Bind other values to the tensors among the arguments, as a Python call has them."""
        left = iter(values)

        def fill(value: Any) -> Any:
            if isinstance(value, list):
                return [fill(v) for v in value]
            return next(left) if isinstance(value, torch.Tensor) else value

        pairs = list(zip(self.schema.arguments, map(fill, self.args), strict=False))
        return [v for a, v in pairs if not a.kwarg_only], {a.name: v for a, v in pairs if a.kwarg_only}

    def eager(self, values: Sequence[Any]) -> Any:
        """Call PyTorch."""
        _, base, *overload = self.schema.name.split(".", 2)
        positional, named = self.bound(values)
        return getattr(getattr(torch.ops.aten, base), overload[0] if overload else "default")(*positional, **named)

    def traced(self, values: Sequence[Any]) -> Any:
        """Call the overload of `flambeau.ops`."""
        positional, named = self.bound(values)
        named = {k: dtypes.from_torch(v) if isinstance(v, torch.dtype) else v for k, v in named.items()}
        return Overload(self.schema)(*positional, **named)


class _Program(torch.nn.Module):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call.eager(args)


def _dynamic_dims(x: torch.Tensor, dynamic: bool) -> dict[int, Any]:
    return {i: torch.export.Dim.AUTO for i, d in enumerate(x.shape) if dynamic and d > 1}


def from_fx(call: Call, output: str, dynamic: bool = False) -> flambeau.Module:
    """Compile the call through `torch.export`."""
    return flambeau.compile(_exported(call, dynamic), output_type=output)


@cache
def _exported(call: Call, dynamic: bool) -> flambeau.Module:
    """Export the call once for all tests: that takes longest."""
    shapes = {"args": tuple(_dynamic_dims(x, dynamic) for x in call.tensors)} if dynamic else None
    return flambeau.compile(_Program(call), tuple(call.tensors), output_type="raw", dynamic_shapes=shapes)


def from_nn(call: Call, output: str, dynamic: bool = False) -> flambeau.Module:
    """Compile the call traced without PyTorch."""
    specs = [nn.TensorSpec(_shape(x, dynamic), dtypes.from_torch(x.dtype)) for x in call.tensors]
    return flambeau.compile(flambeau.trace(lambda *args: call.traced(args), *specs), output_type=output)


def from_text(call: Call, output: str, path: Path, dynamic: bool = False) -> flambeau.Module:
    """Compile the call written in MLIR."""
    block = Block()
    arguments = [block.insert_arg(_type(x, dynamic), i) for i, x in enumerate(call.tensors)]
    positional, named = call.bound(arguments)
    defaults = [named.get(a.name, a.default) for a in call.schema.arguments][len(positional) :]
    given = [dtypes.from_torch(v) if isinstance(v, torch.dtype) else v for v in (*positional, *defaults)]
    builder = TorchBuilder(block)
    results = builder.build(call.schema, given)
    metas = infer(call.schema, [meta_of(v) for v in given])
    results = list(results) if isinstance(results, tuple) else [results]
    if isinstance(results[0].type, ListType):
        results = list(builder.emit(ListUnpackOp, results, [type_of(m) for m in metas[0]]).results)
    builder.emit(func.ReturnOp, results)
    types = [a.type for a in arguments], [r.type for r in results]
    path.write_text(pretty_text(ModuleOp([func.FuncOp("main", FunctionType.from_lists(*types), Region(block))])))
    return flambeau.compile(path, output_type=output)


def _shape(x: torch.Tensor, dynamic: bool) -> tuple[int | None, ...]:
    return tuple(None if i in _dynamic_dims(x, dynamic) else d for i, d in enumerate(x.shape))


def _type(x: torch.Tensor, dynamic: bool) -> Any:
    dtype = dtypes.from_torch(x.dtype)
    assert dtype is not None
    return vtensor(_shape(x, dynamic), dtype.torch_type)


def plain_text(module: flambeau.Module) -> str:
    """Print a program with values numbered in order and without notes on symbolic sizes."""
    text = "\n".join(line for line in str(module).splitlines() if "symbolic" not in line)
    numbers: dict[str, str] = {}
    return re.sub(r"%[\w$.-]+", lambda m: numbers.setdefault(m[0], f"%{len(numbers)}"), text)
