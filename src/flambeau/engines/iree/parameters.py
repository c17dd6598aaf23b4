"""Weights as IREE's named parameters: the program names them, and gets them when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import (
    DenseResourceAttr,
    FlatSymbolRefAttrConstr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.printer import Printer

from flambeau.ir.builder import erase

SCOPE = "model"
"""The name under which the run time is given all weights of a program."""

_HOLDERS = {"arith.constant": "value", "stablehlo.constant": "value", "tosa.const": "values"}
"""Ops that may hold a weight, with the property that does."""


@irdl_attr_definition
class NamedParameter(ParametrizedAttribute):
    """`#flow.parameter.named<"model"::"w"> : type`: the contents of a parameter."""

    name = "flow.parameter.named"
    scope: StringAttr
    key: StringAttr
    type: Attribute

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.scope)
            printer.print_string("::")
            printer.print_attribute(self.key)
        printer.print_string(" : ")
        printer.print_attribute(self.type)


@irdl_op_definition
class GlobalOp(IRDLOperation):
    """A constant of the whole program."""

    name = "util.global"
    sym_name = prop_def(StringAttr)
    sym_visibility = prop_def(StringAttr)
    type = prop_def(AnyAttr())
    initial_value = prop_def(NamedParameter)


@irdl_op_definition
class GlobalLoadOp(IRDLOperation):
    """The value of such a constant."""

    name = "util.global.load"
    global_ = prop_def(FlatSymbolRefAttrConstr, prop_name="global")
    is_immutable = opt_prop_def(UnitAttr)
    result = result_def()


def _weights(module: ModuleOp) -> Iterator[tuple[Operation, DenseResourceAttr]]:
    for op in module.walk():
        value = op.properties.get(_HOLDERS[op.name]) if op.name in _HOLDERS else None
        if isinstance(value, DenseResourceAttr):
            yield op, value


def weights_to_parameters(module: ModuleOp) -> ModuleOp:
    """The module itself if it has no weights, or a copy that loads them as parameters."""
    if next(_weights(module), None) is None:
        return module
    copy = module.clone()
    first = copy.body.block.first_op
    assert first is not None
    held: set[str] = set()
    for op, value in list(_weights(copy)):
        key = value.resource_handle.data
        type_ = op.results[0].type
        if key not in held:
            held.add(key)
            properties = {
                "sym_name": StringAttr(key),
                "sym_visibility": StringAttr("private"),
                "type": type_,
                "initial_value": NamedParameter(StringAttr(SCOPE), StringAttr(key), type_),
            }
            copy.body.block.insert_op_before(GlobalOp.create(properties=properties), first)
        load = GlobalLoadOp.create(
            result_types=[type_], properties={"global": SymbolRefAttr(key), "is_immutable": UnitAttr()}
        )
        load.location = op.location
        assert op.parent is not None
        op.parent.insert_op_before(load, op)
        op.results[0].replace_all_uses_with(load.results[0])
        erase(op)
    return copy
