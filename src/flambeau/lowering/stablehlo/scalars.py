"""Scalars as tensors without dims, so that a static program has ops of StableHLO and CHLO alone.

Rules compute with Python's numbers on scalars of `arith`, which StableHLO does not serialise. Where all shapes are
known, what is left of them is made of constants and of elements that are taken out of tensors: each op gets a twin on
tensors without dims. Checks (`cf.assert`) become calls of a composite that does nothing,

    stablehlo.composite "flambeau.assert" %holds {composite_attributes = {message = "index out of range"}, ...}

so that a compiler which knows the name can raise, and others inline nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, cf, func, tensor
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
from xdsl.dialects.complex import ConstantOp as ComplexConstantOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir.builder import erase
from flambeau.lowering.builder import i64_array, tensor_type
from flambeau.lowering.stablehlo.ops import StablehloBuilder, StablehloOps
from flambeau.lowering.whole.values import shape_in, shape_of

ASSERT = "flambeau.assert"
"""The name of the composite, and of the function that it calls where nobody knows it."""

_FOLDS: dict[str, Callable[..., Any]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
    "arith.index_cast": lambda x: x,
    "arith.sitofp": float,
}
"""Ops on known numbers, which are nearly all that a static program has."""


def scalars_to_tensors(module: ModuleOp) -> ModuleOp:
    """Rewrite the functions of a module whose shapes are all known, in place."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp)]
    changed = [_Scalars(f).rewrite() for f in functions if _is_static(f)]
    if any(changed):
        module.body.block.add_op(_nothing())
    return module


def _nothing() -> func.FuncOp:
    """What a check is for those who do not know it."""
    condition = tensor_type((), i1)
    block = Block([func.ReturnOp()], arg_types=[condition])
    return func.FuncOp(ASSERT, FunctionType.from_lists([condition], []), Region(block), StringAttr("private"))


def _is_static(function: func.FuncOp) -> bool:
    """Whether a function has tensors of known shapes, as arguments and everywhere, and neither branches nor loops."""
    type_ = function.function_type
    if not all(isinstance(t, TensorType) for t in (*type_.inputs, *type_.outputs)):
        return False
    return all(
        not op.name.startswith("scf.") and not any(_is_open(v.type) for v in (*op.results, *op.operands))
        for op in function.walk()
    )


def _is_open(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and None in shape_in(type_)


class _Scalars:
    """The scalars of one function, and the tensors that stand for them."""

    def __init__(self, function: func.FuncOp) -> None:
        self.block = function.body.block
        self.b = StablehloBuilder(self.block, StablehloOps)
        self.target = self.b.target
        self.numbers: dict[SSAValue, Any] = {}
        """Scalars that are known."""
        self.tensors: dict[SSAValue, SSAValue] = {}
        self.is_checked = False

    def rewrite(self) -> bool:
        """Give each op on scalars a twin. Says whether there are checks."""
        for op in list(self.block.ops):
            self.b.before, self.b.location = op, op.location
            self._convert(op)
        for op in reversed(list(self.block.ops)):
            if op.results and all(r in self.tensors or r in self.numbers for r in op.results):
                erase(op)
        return self.is_checked

    def _convert(self, op: Operation) -> None:
        if isinstance(op, cf.AssertOp):
            self._check(op)
        elif isinstance(op, tensor.ExtractOp):
            self.tensors[op.result] = self._extracted(*op.operands)
        elif isinstance(op, tensor.FromElementsOp):
            op.result.replace_all_uses_with(self._joined(op))
            erase(op)
        elif isinstance(op, arith.ConstantOp) and not isinstance(op.result.type, TensorType):
            attr: Any = op.value
            self.numbers[op.result] = attr.value.data
        elif isinstance(op, ComplexConstantOp):
            real, imaginary = (part.value.data for part in op.properties["value"].data)  # type: ignore[attr-defined]
            self.numbers[op.results[0]] = complex(real, imaginary)
        elif len(op.results) == 1 and not isinstance(op.results[0].type, TensorType):
            result, fold = op.results[0], _FOLDS.get(op.name)
            if fold is not None and all(v in self.numbers for v in op.operands):
                self.numbers[result] = fold(*(self.numbers[v] for v in op.operands))
            else:
                operands = [self._tensor(v) for v in op.operands]
                element = self.b.dtype_of(result.type).builtin
                self.tensors[result] = self.target.apply(op.name, operands, element, op.properties)

    def _tensor(self, scalar: SSAValue) -> SSAValue:
        if scalar in self.numbers:
            return self.target.splat(self.numbers[scalar], self.b.dtype_of(scalar.type), [])
        return self.tensors[scalar]

    def _check(self, op: cf.AssertOp) -> None:
        properties: dict[str, Attribute] = {
            "name": StringAttr(ASSERT),
            "composite_attributes": DictionaryAttr({"message": op.properties["msg"]}),
            "decomposition": SymbolRefAttr(ASSERT),
        }
        self.b.emit(stablehlo.op("composite"), [self._tensor(op.operands[0])], (), properties)
        self.is_checked = True
        erase(op)

    def _extracted(self, x: SSAValue, *indices: SSAValue) -> SSAValue:
        shape = shape_of(x)
        if any(n != 1 for n in shape):
            type_ = tensor_type((1,) * len(shape), x.type.element_type)  # type: ignore[attr-defined]
            sizes = {"slice_sizes": i64_array((1,) * len(shape))}
            x = self.target.make("dynamic_slice", (x, *map(self._tensor, indices)), type_, sizes)
        return self.target.reshape(x, [])

    def _joined(self, op: tensor.FromElementsOp) -> SSAValue:
        """The tensor of some scalars."""
        shape = [n for n in shape_of(op.result) if n is not None]
        parts = [self._tensor(v) for v in op.operands]
        if len(parts) == 1:
            return self.target.reshape(parts[0], shape)
        flat = tensor_type((len(parts),), self.b.dtype_of(op.result.type.element_type).builtin)
        joined = self.target.make(
            "concatenate", [self.target.reshape(p, [1]) for p in parts], flat, {"dimension": IntegerAttr(0, i64)}
        )
        return self.target.reshape(joined, shape)
