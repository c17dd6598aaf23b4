"""Products of 16-bit floats with results of 16 bits, on GPUs: cuBLAS and cuDNN add up in f32 and round once.

A lowered program says that products are added up in f32, and rounds the sums afterwards:

    %sums = stablehlo.dot_general %x, %w, ... : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xf32>
    %y = stablehlo.convert %sums : (tensor<4x2xf32>) -> tensor<4x2xbf16>

To the letter a GPU writes the sums in f32 to its memory, twice the bytes, and cuDNN has no convolution of bf16 with
results in f32 at all: XLA then converts its operands, and multiplies in TF32. A product that gives bf16 is added up in
f32 all the same. A bias of bf16 is added behind that, in bf16: cuBLAS does it before it rounds. In f16 a sum may be too
large that the bias brings back, so that there the f32 stays.
"""

from __future__ import annotations

import math
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType, bf16, f16, f32
from xdsl.ir import Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.xla.values import before, constant, element_of, only_user, shape_of
from flambeau.ir.builder import erase
from flambeau.lowering.builder import tensor_type

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
_CHOICES = ("stablehlo.maximum", "stablehlo.minimum")
_SPREADS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")


def round_products(module: ModuleOp) -> None:
    """Let products of 16-bit floats give 16 bits where the program rounds them to that, in place."""
    for op in list(module.walk()):
        if op.name in PRODUCTS and (half := _half_operands(op)) is not None and element_of(op.results[0]) == f32:
            _round(op, half)


def choose_in_halves(module: ModuleOp) -> None:
    """Let what chooses among 16-bit floats do so without converting them, in place."""
    for op in list(module.walk()):
        if op.name != "stablehlo.convert" or (half := element_of(op.results[0])) not in (bf16, f16):
            continue
        choice = op.operands[0].owner
        if not isinstance(choice, Operation) or choice.name not in _CHOICES or only_user(choice.results[0]) is not op:
            continue
        operands = [_as_half(operand, half, op) for operand in choice.operands]
        if all(operand is not None for operand in operands):
            chosen = before(op).value(type(choice), [o for o in operands if o is not None], op.results[0].type)
            op.results[0].replace_all_uses_with(chosen)
            erase(op)
            erase(choice)


def _half_operands(op: Operation) -> Any:
    """Return the 16-bit type that both operands of a product have; None if they do not."""
    elements = [element_of(operand) for operand in op.operands]
    return elements[0] if elements[0] in (bf16, f16) and elements[0] == elements[1] else None


def _round(op: Operation, half: Any) -> None:
    sums = op.results[0]
    added = only_user(sums)
    if added is None or added.name != "stablehlo.add" or half != bf16:
        added = None
    end = only_user(sums if added is None else added.results[0])
    if end is None or end.name != "stablehlo.convert" or element_of(end.results[0]) != half:
        return
    bias = None if added is None else _as_half(next(o for o in added.operands if o is not sums), half, end)
    if added is not None and bias is None:
        return
    b = before(end)
    b.location = op.location
    made = b.value(type(op), tuple(op.operands), _with_element(sums, half), op.properties)
    if bias is not None:
        made = b.value(stablehlo.op("add"), (made, bias), made.type)
    end.results[0].replace_all_uses_with(made)
    for old in (end, added, op):
        if old is not None:
            erase(old)


def _as_half(value: SSAValue, half: Any, user: Operation) -> SSAValue | None:
    """Give a value of f32 in 16 bits that is a broadcast of 16-bit floats, or of a number that has 16 bits; else None.

    What has to be built for it stands before `user`.
    """
    spreads: list[Operation] = []
    owner = value.owner
    while isinstance(owner, Operation) and owner.name in _SPREADS:
        spreads.append(owner)
        owner = owner.operands[0].owner
    if not isinstance(owner, Operation):
        return None
    b = before(user)
    if owner.name == "stablehlo.convert" and element_of(owner.operands[0]) == half:
        found: SSAValue = owner.operands[0]
    elif (number := _number(owner)) is not None:
        found = constant(b, number, _with_element(owner.results[0], half))
    else:
        return None
    for op in reversed(spreads):
        found = b.value(type(op), (found,), _with_element(op.results[0], half), op.properties)
    return found


def _number(op: Operation) -> float | None:
    """Return the number that a constant consists of, if 16 bits hold it for sure: a small integer."""
    value = op.properties.get("value")
    if op.name != "stablehlo.constant" or not isinstance(value, DenseIntOrFPElementsAttr) or not value.is_splat():
        return None
    number = float(value.get_values()[0]) if 0 not in value.type.get_shape() else math.nan
    return number if abs(number) <= 128 and number == int(number) else None


def _with_element(value: SSAValue, element: Any) -> TensorType[Any]:
    return tensor_type(shape_of(value), element)
