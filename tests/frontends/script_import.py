"""What the tests of the TorchScript frontend share: the import with its checks, and programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.frontends.script.compile import import_script_module, script_module
from flambeau.ir.printing import pretty_text

# ruff: noqa: UP006, UP045
# TorchScript wants the names of `typing`.


def upstream_accepts(text: str) -> None:
    """Check that the real torch-mlir parses and verifies the program."""
    pytest.importorskip("torch_mlir")
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.ir import Context, Module

    with Context() as context:
        torch_dialect.register_dialect(context)
        Module.parse(text)


def imported(model: Any, *args: Any, tracing: bool = False, **options: Any) -> ModuleOp:
    """Import a model; both implementations of the dialect must accept what comes out."""
    module, _ = import_script_module(script_module(model, args, tracing), **options)
    module.verify()
    text = pretty_text(module)
    assert pretty_text(parse_module(text)) == text
    upstream_accepts(text)
    upstream_accepts(pretty_text(module, locations=True))
    return module


def text_of(model: Any, *args: Any, **options: Any) -> str:
    return pretty_text(imported(model, *args, **options))


def has(text: str, *lines: str) -> None:
    """Each line is in the text, in this order."""
    at = 0
    for line in lines:
        assert line in text[at:], f"{line!r} is not behind {lines[: lines.index(line)]} in\n{text}"
        at = text.index(line, at) + len(line)


def ops_of(module: ModuleOp, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def failure(model: Any, *args: Any, **options: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        imported(model, *args, **options)
    return caught.value


# --- Programs ---


class TestModule(nn.Module):
    __module__ = "__main__"
    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.arange = torch.arange(4)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return x * self.arange


@torch.jit.script
class Accumulator:
    def __init__(self, start: int) -> None:
        self.start = start
        self.items: List[Tensor] = []
        self.name = torch.jit.annotate(Optional[str], None)

    def add(self, x: Tensor) -> int:
        self.items.append(x)
        if x.dim() > 3:
            self.name = "big"
        return len(self.items) + self.start


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Accumulator(7)

    def forward(self, x: Tensor) -> int:
        return self.held.add(x)


def loops(n: int) -> int:
    while n < 10:
        n += 1
        if n == 4:
            continue
        if n == 7:
            break
    return n
