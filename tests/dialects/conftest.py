"""Fixtures: our own parser and printer, and the C++ torch-mlir as the oracle."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from flambeau.dialects.context import make_context, parse_module


class Ours:
    """Reads and prints with this project's dialects."""

    def parse(self, text: str, context: Context | None = None) -> ModuleOp:
        module = parse_module(text, context=context)
        module.verify()
        return module

    def print(self, module: ModuleOp, generic: bool = False, context: Context | None = None) -> str:
        out = StringIO()
        printer = Printer(out, print_generic_format=generic)
        printer.print_op(module)
        if context is not None:
            printer.print_metadata(context.loaded_dialects)
        return out.getvalue()

    def text(self, text: str, generic: bool = False) -> str:
        """Parse, verify and print."""
        context = make_context()
        return self.print(self.parse(text, context), generic, context)


class Upstream:
    """Reads and prints with the torch-mlir wheel."""

    def __init__(self) -> None:
        from torch_mlir.dialects import torch as torch_dialect
        from torch_mlir.ir import Context, Module
        from torch_mlir.passmanager import PassManager

        def make() -> Context:
            with Context() as context:
                torch_dialect.register_dialect(context)
                # A pass that makes ops of torch_c or tm_tensor loads their dialect, which nothing in Python registers.
                passes = "torch-func-backend-type-conversion,func.func(convert-torch-to-tmtensor)"
                PassManager.parse(f"builtin.module({passes})").run(Module.parse("").operation)
            return context

        self.make_context = make
        self.context = make()

    def text(self, text: str, generic: bool = False, **flags: bool) -> str:
        """Parse, verify and print."""
        from torch_mlir.ir import Module

        # A context keeps the resources of all programs that it has read, and renames those of the next.
        with self.make_context() if "dialect_resources" in text else self.context:
            return str(Module.parse(text).operation.get_asm(print_generic_op_form=generic, **flags))

    def error(self, text: str) -> str:
        """Return what upstream says against a program; empty when it accepts it."""
        from torch_mlir.ir import MLIRError

        try:
            self.text(text)
        except MLIRError as error:
            return str(error)
        return ""


@pytest.fixture(scope="session")
def ours() -> Ours:
    return Ours()


@pytest.fixture(scope="session")
def upstream() -> Upstream:
    pytest.importorskip("torch_mlir")
    return Upstream()


class RoundTrip:
    """Checks that a program survives every way between the two implementations, in custom and in generic form."""

    def __init__(self, ours: Ours, upstream: Upstream) -> None:
        self.ours = ours
        self.upstream = upstream

    def __call__(self, text: str) -> str:
        """Check that all forms of a program round-trip; return upstream's own print of it."""
        expected = self.upstream.text(text)
        for written in (text, expected, self.upstream.text(text, generic=True)):
            for generic in (False, True):
                printed = self.ours.text(written, generic)
                assert self.upstream.text(printed) == expected
                assert self.ours.text(printed, generic) == printed
        return expected


@pytest.fixture(scope="session")
def round_trip(ours: Ours, upstream: Upstream) -> RoundTrip:
    return RoundTrip(ours, upstream)
