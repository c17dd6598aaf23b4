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
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.printer import Printer

from flambeau.dialects import ml_program
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
    """A constant or a variable of the whole program."""

    name = "util.global"
    sym_name = prop_def(StringAttr)
    sym_visibility = prop_def(StringAttr)
    type = prop_def(AnyAttr())
    is_mutable = opt_prop_def(UnitAttr)
    initial_value = prop_def(NamedParameter)


@irdl_op_definition
class GlobalLoadOp(IRDLOperation):
    """The value of such a constant or variable."""

    name = "util.global.load"
    global_ = prop_def(FlatSymbolRefAttrConstr, prop_name="global")
    is_immutable = opt_prop_def(UnitAttr)
    result = result_def()


@irdl_op_definition
class GlobalStoreOp(IRDLOperation):
    """A new value for a variable."""

    name = "util.global.store"
    value = operand_def()
    global_ = prop_def(FlatSymbolRefAttrConstr, prop_name="global")


def variables_to_parameters(module: ModuleOp) -> ModuleOp:
    """Let variables start with parameters, in a copy; return the module itself if it has none.

    IREE reads an `ml_program.global` that starts with a resource as one with the contents of that in the text.
    """
    if not any(isinstance(op, ml_program.GlobalOp) for op in module.ops):
        return module
    copy = module.clone()
    for op in list(copy.walk()):
        if isinstance(op, ml_program.GlobalOp):
            _replace(op, _global(op.sym_name.data, op.type, is_mutable=True))
        elif isinstance(op, ml_program.GlobalLoadOp):
            load = GlobalLoadOp.create(result_types=op.result_types, properties={"global": op.global_})
            _replace(op, load)
        elif isinstance(op, ml_program.GlobalStoreOp):
            _replace(op, GlobalStoreOp.create(operands=op.operands, properties={"global": op.global_}))
    return copy


def _global(key: str, type_: Attribute, *, is_mutable: bool = False) -> GlobalOp:
    """Make a global that starts with the parameter of that key."""
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(key),
        "sym_visibility": StringAttr("private"),
        "type": type_,
        "initial_value": NamedParameter(StringAttr(SCOPE), StringAttr(key), type_),
    }
    return GlobalOp.create(properties={**properties, **({"is_mutable": UnitAttr()} if is_mutable else {})})


def _replace(op: Operation, new: Operation) -> None:
    """Put an op in the place of another, with its location."""
    new.location = op.location
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    erase(op)


def _weights(module: ModuleOp) -> Iterator[tuple[Operation, DenseResourceAttr]]:
    for op in module.walk():
        value = op.properties.get(_HOLDERS[op.name]) if op.name in _HOLDERS else None
        if isinstance(value, DenseResourceAttr):
            yield op, value


def weights_to_parameters(module: ModuleOp) -> ModuleOp:
    """Load weights as parameters in a copy; return the module itself if it has none."""
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
            copy.body.block.insert_op_before(_global(key, type_), first)
        load = GlobalLoadOp.create(
            result_types=[type_], properties={"global": SymbolRefAttr(key), "is_immutable": UnitAttr()}
        )
        _replace(op, load)
    return copy
