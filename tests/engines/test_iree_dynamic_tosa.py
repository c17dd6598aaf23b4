"""Elementwise TOSA ops on dynamic sizes, which the IREE engine turns into loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.engines.iree.prepare import for_iree
from flambeau.engines.iree.tosa_ops import BODIES
from flambeau.files import read_module

ELEMENTS = {
    "f32": (
        np.array([0.5, -3.0, np.inf, np.nan, -0.0, 2.0], np.float32),
        np.array([2.0, 2.0, 1.0, 1.0, 0.0, -1.5], np.float32),
    ),
    "i32": (np.array([7, -7, 2**31 - 1, -5, 0, 12], np.int32), np.array([2, 3, 5, 2, 1, 4], np.int32)),
    "i8": (np.array([7, -7, 127, -5, -128, 12], np.int8), np.array([2, 3, 5, -2, 1, 4], np.int8)),
    "i1": (np.array([True, False, True, False]), np.array([True, True, False, False])),
}
NUMBERS = ("f32", "i32")
CASES = {
    "add": NUMBERS, "sub": NUMBERS, "mul": NUMBERS, "maximum": NUMBERS, "minimum": NUMBERS, "equal": NUMBERS,
    "greater": NUMBERS, "greater_equal": NUMBERS, "select": (*NUMBERS, "i8"), "pow": ("f32",), "intdiv": ("i32",),
    "bitwise_and": ("i32", "i8"), "bitwise_or": ("i32",), "bitwise_xor": ("i32",), "logical_left_shift": ("i32", "i8"),
    "logical_right_shift": ("i32", "i8"), "arithmetic_right_shift": ("i32", "i8"), "logical_and": ("i1",),
    "logical_or": ("i1",), "logical_xor": ("i1",),
}  # fmt: skip
PROPERTIES = {
    "maximum": "nan_mode = #tosa.nan_mode<PROPAGATE>",
    "minimum": "nan_mode = #tosa.nan_mode<PROPAGATE>",
    "arithmetic_right_shift": "round = false",
}


def function(name: str, element: str, strict: bool, second: str = "?") -> str:
    x, y = f"tensor<?x{element}>", f"tensor<{second}x{element}>"
    result = "tensor<?xi1>" if name in ("equal", "greater", "greater_equal") else x
    operands, types, before = "%x, %y", f"{x}, {y}", ""
    if name == "mul":
        before = '%shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>'
        operands, types = "%x, %y, %shift", f"{types}, tensor<1xi8>"
    if name == "select":
        before = '%mask = "tosa.const"() <{values = dense<true> : tensor<1xi1>}> : () -> tensor<1xi1>'
        operands, types = "%mask, %x, %y", f"tensor<1xi1>, {types}"
    label = f"{name}_{element}_{'strict' if strict else 'loose'}"
    return f"""
      func.func @{label}(%x: {x}, %y: {y}) -> {result} {"attributes {torch.assume_strict_symbolic_shapes}" * strict} {{
        {before}
        %r = "tosa.{name}"({operands}) <{{{PROPERTIES.get(name, "")}}}> : ({types}) -> {result}
        func.return %r : {result}
      }}"""


def module(folder: Path, *functions: str) -> flambeau.Module:
    path = folder / "program.mlir"
    path.write_text("module {" + "\n".join(functions) + "\n}")
    return read_module(path)


def names(program: Any) -> list[str]:
    return [op.name for op in program.walk()]


def test_every_op_has_a_case() -> None:
    assert {f"tosa.{name}" for name in CASES} == set(BODIES)


@pytest.mark.engine
def test_loops_give_what_the_ops_give(tmp_path: Path) -> None:
    cases = [(name, element) for name, elements in CASES.items() for element in elements]
    program = module(tmp_path, *(function(*case, strict) for case in cases for strict in (False, True)))
    run = flambeau.load(program, profile="quick")
    for name, element in cases:
        loose, strict = (
            run.call_flat(f"{name}_{element}_{kind}", list(ELEMENTS[element]))[0] for kind in ("loose", "strict")
        )
        np.testing.assert_array_equal(loose, strict, err_msg=f"{name} on {element}")


def test_loops_stand_for_ops_of_which_two_sizes_are_open(tmp_path: Path) -> None:
    strict = for_iree(module(tmp_path, function("add", "f32", True)).op)
    assert "linalg.generic" in names(strict)
    assert "tosa.add" not in names(strict)
    # A size that is known does not make the other known.
    assert "tosa.add" not in names(for_iree(module(tmp_path, function("add", "f32", True, second="6")).op))


@pytest.mark.parametrize("text", [function("add", "f32", False), function("add", "f32", True, second="1")])
def test_other_ops_are_left_to_iree(tmp_path: Path, text: str) -> None:
    """One size that is open is no matter, and sizes may broadcast in functions that do not say otherwise."""
    program = module(tmp_path, text).op
    assert for_iree(program) is program
