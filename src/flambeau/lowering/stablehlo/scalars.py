"""Scalars, branches and loops of static programs as StableHLO has them; `lowering/whole/scalars.py` has the walk.

Checks (`cf.assert`) become calls of a composite that does nothing,

    stablehlo.composite "flambeau.assert" %holds {composite_attributes = {message = "index out of range"}, ...}

so that a compiler which knows the name can raise, and others inline nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import cf, func
from xdsl.dialects.builtin import (
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir.builder import erase
from flambeau.lowering.builder import i64_array, tensor_type
from flambeau.lowering.stablehlo.ops import StablehloBuilder, StablehloOps
from flambeau.lowering.whole.scalars import ScalarTwins, is_static
from flambeau.lowering.whole.values import element_of, shape_of

ASSERT = "flambeau.assert"
"""The name of the composite, and of the function that it calls where nobody knows it."""


def scalars_to_tensors(module: ModuleOp) -> ModuleOp:
    """Rewrite the functions of a module whose shapes are all known, in place."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp)]
    changed = [_Scalars(f).checked() for f in functions if is_static(f)]
    if any(changed):
        module.body.block.add_op(_nothing())
    return module


def _nothing() -> func.FuncOp:
    """Make the function that stands for a runtime check where the engine does not know it: it does nothing."""
    condition = tensor_type((), i1)
    block = Block([func.ReturnOp()], arg_types=[condition])
    return func.FuncOp(ASSERT, FunctionType.from_lists([condition], []), Region(block), StringAttr("private"))


class _Scalars(ScalarTwins[StablehloOps]):
    """The scalars of one function as tensors of StableHLO."""

    def __init__(self, function: func.FuncOp) -> None:
        super().__init__(StablehloBuilder(function.body.block, StablehloOps))
        self.is_checked = False

    def checked(self) -> bool:
        """Rewrite the function; says whether there are checks."""
        self.rewrite()
        return self.is_checked

    def check(self, op: cf.AssertOp) -> None:
        properties: dict[str, Attribute] = {
            "name": StringAttr(ASSERT),
            "composite_attributes": DictionaryAttr({"message": op.properties["msg"]}),
            "decomposition": SymbolRefAttr(ASSERT),
        }
        self.b.emit(stablehlo.op("composite"), [self.twin(op.operands[0])], (), properties)
        self.is_checked = True
        erase(op)

    def extract(self, x: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        shape = shape_of(x)
        if any(n != 1 for n in shape):
            sizes = {"slice_sizes": i64_array((1,) * len(shape))}
            type_ = tensor_type((1,) * len(shape), element_of(x))
            x = self.target.make("dynamic_slice", (x, *map(self.twin, indices)), type_, sizes)
        return self.target.reshape(x, [])

    def join(self, parts: Sequence[SSAValue], type_: TensorType[Any]) -> SSAValue:
        shape = list(type_.get_shape())
        if len(parts) == 1:
            return self.target.reshape(parts[0], shape)
        flat = tensor_type((len(parts),), type_.element_type)
        ones = [self.target.reshape(p, [1]) for p in parts]
        return self.target.reshape(
            self.target.make("concatenate", ones, flat, {"dimension": IntegerAttr(0, i64)}), shape
        )

    def terminate(self, values: Sequence[SSAValue]) -> None:
        self.b.emit(stablehlo.op("return"), values)

    def branch(self, condition: SSAValue, regions: Sequence[Region], types: Sequence[Attribute]) -> Operation:
        return self.b.emit(stablehlo.op("if"), [condition], types, regions=regions)

    def loop(self, starts: Sequence[SSAValue], regions: Sequence[Region]) -> Operation:
        return self.b.emit(stablehlo.op("while"), starts, [v.type for v in starts], regions=regions)
