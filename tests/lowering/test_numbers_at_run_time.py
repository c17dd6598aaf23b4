"""Python's numbers that only a call knows, where most programs have constants: right, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType

import flambeau
from flambeau import CompileError
from flambeau.dialects.torch.constants import ConstantOp
from flambeau.dialects.torch.ops import TorchOp
from flambeau.dialects.torch.types import FLOAT, INT
from flambeau.ir.module import Argument, ScalarSpec


def lift_numbers(module: flambeau.Module) -> list[float]:
    """Make an argument of each constant that stands for a `Scalar` or a `float`; return what they were."""
    (function,) = (op for op in module.op.ops if isinstance(op, func.FuncOp))
    block, numbers = function.body.block, []
    for op in list(block.ops):
        value = op.python_value if isinstance(op, ConstantOp) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        uses = [u for u in op.results[0].uses if _base(u.operation, u.index) in ("Scalar", "float")]
        if uses:
            argument = block.insert_arg(FLOAT if isinstance(value, float) else INT, len(block.args))
            for use in uses:
                use.operation.operands[use.index] = argument
            numbers.append(value)
    outputs = list(function.function_type.outputs.data)
    function.properties["function_type"] = FunctionType.from_lists([a.type for a in block.args], outputs)
    signature = module.signatures["main"]
    added = [Argument(f"number{i}", ScalarSpec(type(n).__name__)) for i, n in enumerate(numbers)]
    arguments = (*signature.arguments, *added)
    module.signatures["main"] = replace(signature, arguments=arguments, in_spec=None, inputs=None, fixed=())
    return numbers


def _base(op: Any, index: int) -> str:
    schema = op.schema if isinstance(op, TorchOp) else None
    return schema.arguments[index].type.base if schema is not None and index < len(schema.arguments) else ""


X, Y = torch.linspace(-2, 3, 12).reshape(3, 4), torch.linspace(1, 2, 12).reshape(3, 4)
A, B = torch.linspace(-1, 1, 9).reshape(3, 3), torch.linspace(0, 1, 12).reshape(3, 4)


def programs(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    """Call each op with numbers that are not neutral: what is left out shows."""
    f = torch.nn.functional
    return [
        torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=-2.5), torch.rsub(x, y, alpha=3), x * 1.7, x / 3, 2.5 / y,
        x.clamp(-0.5, 1.5), torch.addmm(x, a, b, beta=0.5, alpha=2.0),
        torch.addcmul(x, x, y, value=0.4), torch.addcdiv(x, x, y, value=-0.4), torch.full_like(x, 0.7),
        f.leaky_relu(x, 0.2), f.elu(x, 1.3), f.hardtanh(x, -0.3, 0.9), f.threshold(x, 0.1, 20.0), f.celu(x, 0.8),
        f.pad(x, (1, 1), value=4.5), x.remainder(0.7), x.fmod(0.7), x > 0.3, x.eq(3.0),
        torch.where(x > 0.5, x, 0.25), x.masked_fill(x > 1, -9.0), f.softshrink(x, 0.4), f.hardshrink(x, 0.4),
        x.lerp(y, 0.3), torch.index_add(x, 0, torch.tensor([2, 0]), y[:2], alpha=0.5), x.floor_divide(0.6),
    ]  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo"])
def test_numbers_that_a_call_gives(target: str) -> None:
    inputs = (X, Y, A, B)
    raw = flambeau.compile(programs, inputs, output_type="raw")
    numbers = lift_numbers(raw)
    assert len(numbers) > 20  # equal constants are one
    run = flambeau.load(flambeau.compile(raw, output_type=target), profile="quick")
    torch.testing.assert_close(run(*inputs, *numbers), programs(*inputs), rtol=1e-5, atol=1e-5)
    doubled = run(*inputs, *(2 * n for n in numbers))
    assert not torch.equal(doubled[0], programs(*inputs)[0])


def test_a_rule_that_needs_to_know_the_number_says_so() -> None:
    interpolated = lambda x: torch.nn.functional.interpolate(x[None], scale_factor=1.5)  # noqa: E731
    for function in (interpolated, lambda x: x.nan_to_num(7.0), lambda x: x.norm(3.0)):
        raw = flambeau.compile(function, (X,), output_type="raw")
        if not lift_numbers(raw):
            continue
        with pytest.raises(CompileError, match="known") as error:
            flambeau.compile(raw)
        assert "internal error" not in str(error.value)
