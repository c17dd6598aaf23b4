"""The ml_program dialect: xDSL's, with the ops that read and write a global variable."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import FlatSymbolRefAttrConstr, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.dialects.ml_program import GlobalLoadConstantOp
from xdsl.dialects.ml_program import GlobalOp as GlobalOp
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def


@irdl_op_definition
class GlobalLoadOp(IRDLOperation):
    """Read a global variable."""

    name = "ml_program.global_load"
    assembly_format: ClassVar[str] = "$global `:` type($result) attr-dict"
    global_ = prop_def(FlatSymbolRefAttrConstr, prop_name="global")
    result = result_def()


@irdl_op_definition
class GlobalStoreOp(IRDLOperation):
    """Write a global variable."""

    name = "ml_program.global_store"
    assembly_format: ClassVar[str] = "$global `=` $value `:` type($value) attr-dict"
    global_ = prop_def(FlatSymbolRefAttrConstr, prop_name="global")
    value = operand_def()


def variable(name: str, type_: Attribute, contents: Attribute) -> GlobalOp:
    """Make a private variable that starts with `contents`."""
    return GlobalOp(StringAttr(name), type_, UnitAttr(), contents, StringAttr("private"))


def load(name: str, type_: Attribute) -> GlobalLoadOp:
    """Make the op that reads a variable."""
    return GlobalLoadOp.create(result_types=[type_], properties={"global": SymbolRefAttr(name)})


def store(name: str, value: SSAValue) -> GlobalStoreOp:
    """Make the op that writes a variable."""
    return GlobalStoreOp.create(operands=[value], properties={"global": SymbolRefAttr(name)})


MLProgram = Dialect("ml_program", [GlobalOp, GlobalLoadConstantOp, GlobalLoadOp, GlobalStoreOp])
