"""The same program written against torch and against flambeau: the same IR after the pipeline, the same numbers."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np
import pytest
import torch
from support import assert_same
from xdsl.dialects import func
from xdsl.dialects.builtin import DenseResourceAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.printer import Printer

import flambeau
from flambeau import nn
from flambeau.dialects.torch.constants import ConstantOp, LiteralOp
from flambeau.ir import dtypes
from flambeau.ir.arrays import as_bytes

NOTES = ("torch.symbolic_int", "torch.bind_symbolic_shape")
"""Ops that name the sizes of a program that torch.export traced; they compute nothing."""

SAME = ("torch.aten.lift_fresh_copy", "torch.aten.contiguous")
"""Ops that give the value that they take: torch.export leaves them where there is a constant, and drops the second
where PyTorch sees that strides are as it wants them."""


def canonical(module: flambeau.Module) -> list[str]:
    """List the ops of a program in order by what they compute from; names and places of constants do not matter."""
    lines: list[str] = []
    for function in module.op.ops:
        assert isinstance(function, func.FuncOp)
        keys: dict[SSAValue, str] = {a: f"argument {i}" for i, a in enumerate(function.args)}
        _walk(function.body.block, keys, lines, module.weights)
    return lines


def _walk(block: Block, keys: dict[SSAValue, str], lines: list[str], weights: Any) -> None:
    for op in block.ops:
        if op.name in NOTES:
            continue
        if isinstance(op, (ConstantOp, LiteralOp)) or op.name == "torch.prim.ListConstruct":
            keys[op.results[0]] = _constant(op, keys, weights)
            continue
        if op.name in SAME:
            keys[op.results[0]] = keys[op.operands[0]]
            continue
        operands = ", ".join(keys[o] for o in op.operands)
        types = ", ".join(str(r.type) for r in op.results)
        for i, result in enumerate(op.results):
            keys[result] = f"%{len(lines)}.{i}"
        lines.append(f"{op.name}({operands}) -> {types}")
        for region in op.regions:
            for inner in region.blocks:
                keys.update({a: f"%{len(lines)}.argument{i}" for i, a in enumerate(inner.args)})
                _walk(inner, keys, lines, weights)


def _constant(op: Operation, keys: dict[SSAValue, str], weights: Any) -> str:
    """Describe a constant by its contents, a weight by a digest of them."""
    if op.name == "torch.prim.ListConstruct":
        return f"[{', '.join(keys[o] for o in op.operands)}]"
    value = op.properties.get("value")
    if isinstance(value, DenseResourceAttr):
        digest = hashlib.sha256(as_bytes(weights[value.resource_handle.data]).tobytes()).hexdigest()[:12]
        return f"weight {digest} : {op.results[0].type}"
    out = StringIO()
    if value is not None:
        Printer(out).print_attribute(value)
    return f"{op.name}<{out.getvalue()}>"


def specs_of(inputs: Sequence[torch.Tensor], dynamic: bool = False) -> list[nn.TensorSpec]:
    """List the types of inputs; `dynamic` makes every size over 1 unknown."""
    found = []
    for x in inputs:
        dtype = dtypes.from_torch(x.dtype)
        assert dtype is not None
        found.append(nn.TensorSpec([None if dynamic and d > 1 else d for d in x.shape], dtype))
    return found


class Wrapped(torch.nn.Module):
    """A function as a module, for `torch.export`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def programs(
    torch_fn: Any, flambeau_fn: Any, inputs: Sequence[torch.Tensor], dynamic: bool = False
) -> tuple[flambeau.Module, flambeau.Module]:
    """Compile through torch.export and through flambeau.trace, both to the backend contract."""
    is_module = isinstance(torch_fn, torch.nn.Module)
    auto = torch.export.Dim.AUTO
    shapes: Any = tuple({i: auto for i, d in enumerate(x.shape) if d > 1} for x in inputs) if dynamic else None
    model = torch_fn if is_module else Wrapped(torch_fn)
    theirs = flambeau.compile(
        model, tuple(inputs), output_type="torch",
        dynamic_shapes=shapes if is_module or shapes is None else {"args": shapes},
    )  # fmt: skip
    traced = flambeau.trace(flambeau_fn, *specs_of(inputs, dynamic))
    return theirs, flambeau.compile(traced, output_type="torch")


def same_ir(torch_fn: Any, flambeau_fn: Any, *inputs: torch.Tensor, dynamic: bool = False) -> flambeau.Module:
    """Assert that both give the same torch dialect IR after the pipeline; gives ours."""
    theirs, ours = programs(torch_fn, flambeau_fn, inputs, dynamic)
    mine, wanted = canonical(ours), canonical(theirs)
    if mine != wanted:
        difference = "\n".join(difflib.unified_diff(wanted, mine, "torch", "flambeau", lineterm="", n=1))
        pytest.fail(f"the programs differ\n{difference}", pytrace=False)
    return ours


def same_numbers(torch_fn: Any, module: flambeau.Module, *inputs: torch.Tensor, **tolerance: float) -> None:
    """Assert that a program, run on IREE with numpy arrays, gives what torch does."""
    expected = torch_fn(*(x.clone() for x in inputs))
    run = flambeau.load(flambeau.compile(module), engine="iree", profile="quick", device="local-sync")
    actual = run(*(x.clone().numpy() for x in inputs))
    assert_same(as_torch(actual), as_torch(expected), **tolerance)


def same_program(
    torch_fn: Any, flambeau_fn: Any, *inputs: torch.Tensor, dynamic: bool = False, **tolerance: float
) -> flambeau.Module:
    """Assert both: the same IR and the same numbers."""
    module = same_ir(torch_fn, flambeau_fn, *inputs, dynamic=dynamic)
    same_numbers(torch_fn, module, *inputs, **tolerance)
    return module


def as_torch(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [as_torch(v) for v in value]
    if isinstance(value, dict):
        return [as_torch(v) for v in value.values()]
    return torch.from_numpy(np.asarray(value)) if isinstance(value, np.ndarray) else value
