"""IR in, IR out: run passes on text and check what comes out, with filecheck and with PyTorch's numbers."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser as CheckParser
from filecheck.parser import pattern_for_opts
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from flambeau.dialects.context import parse_module
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, TensorType
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline


@pytest.fixture
def filecheck() -> Callable[[str, str], None]:
    """`filecheck(pipeline, text)`: the `CHECK` lines in the text must match what the pipeline makes of it."""
    return run_filecheck


def run_filecheck(pipeline: str, text: str) -> None:
    module = run_pipeline(parse_module(text), pipeline)
    module.verify()
    output = pretty_text(module)
    options = Options(match_filename="<text>")
    checks = CheckParser(options, io.StringIO(text), *pattern_for_opts(options))
    code = Matcher(options, FInput("<output>", output), checks).run()
    assert code == 0, output
    verify_with_torch_mlir(output)


def verify_with_torch_mlir(text: str) -> None:
    """Where torch-mlir is installed, it takes the program too."""
    if find_spec("torch_mlir") is None:
        return
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.ir import Context, Module

    with Context() as context:
        torch_dialect.register_dialect(context)
        Module.parse(text).operation.verify()


@pytest.fixture
def same_numbers() -> Callable[[str, str], None]:
    """`same_numbers(pipeline, text)`: PyTorch gets the same out of @f before and after, for all flags and counts."""
    return run_same_numbers


@pytest.fixture
def check() -> Callable[[str, str], None]:
    """Both: the `CHECK` lines match, and PyTorch gets the same numbers."""

    def run(pipeline: str, text: str) -> None:
        run_same_numbers(pipeline, text)
        run_filecheck(pipeline, text)

    return run


def run_same_numbers(pipeline: str, text: str) -> None:
    before, after = parse_module(text), run_pipeline(parse_module(text), pipeline)
    before.verify()
    after.verify()
    count = 0
    for arguments in inputs_of(before):
        theirs, ours = [[_copied(a) for a in arguments] for _ in range(2)]
        expected = flat([*Interpreter(before, {}).call("f", theirs), theirs])
        actual = flat([*Interpreter(after, {}).call("f", ours), ours])
        torch.testing.assert_close(
            actual, expected, equal_nan=True, msg=lambda m, a=arguments: f"{m}\n{a}\n{pretty_text(after)}"
        )
        count += 1
    assert count


_CHOICES: dict[Attribute, tuple[Any, ...]] = {BOOL: (True, False), INT: (0, 1, 3), FLOAT: (0.5,)}


def inputs_of(module: ModuleOp) -> Iterator[list[Any]]:
    """Arguments for @f: every combination of flags and counts, with fresh tensors."""
    function = next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "f")
    types = function.function_type.inputs.data
    choices = [_CHOICES.get(t, (None,)) for t in types]
    generator = torch.Generator().manual_seed(0)
    for chosen in itertools.product(*choices):
        yield [
            _random(t, generator) if isinstance(t, TensorType) else value
            for t, value in zip(types, chosen, strict=True)
        ]


def _random(type_: TensorType, generator: torch.Generator) -> torch.Tensor:
    shape = [3 if d is None else d for d in type_.shape or ()]
    dtype = getattr(torch, type_.dtype.name) if type_.dtype is not None else torch.float32
    return torch.randint(-9, 9, shape, generator=generator).to(dtype)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def flat(value: Any) -> list[Any]:
    """List the leaves of nested containers."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flat(part)]
    return [value]
