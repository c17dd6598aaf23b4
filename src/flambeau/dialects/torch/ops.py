"""The operations of the torch dialect.

Ops that PyTorch's registry knows have no code: `op_class("aten.add.Tensor")` makes the class on first use from the
registry snapshot. Written by hand are the ops that give a program its structure; they are in the modules beside this
one, and all of them can be imported from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Self

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Dialect, Operation, Region, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.base import (
    NO_TRAITS,
    OBJECT_EFFECTS,
    PURE,
    RANDOM_EFFECTS,
    FunctionalOp,
    TemplateOp,
    TorchOp,
    VarargOp,
    print_attributes,
)
from flambeau.dialects.torch.constants import (
    CONSTANTS,
    ConstantBoolOp,
    ConstantDeviceOp,
    ConstantFloatOp,
    ConstantIntOp,
    ConstantNoneOp,
    ConstantNumberOp,
    ConstantOp,
    ConstantStrOp,
    LiteralOp,
    NonValueTensorLiteralOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.control_flow import (
    CONTROL_FLOW,
    CalculateOp,
    DtypeCalculateOp,
    IfOp,
    IfYieldOp,
    LoopConditionOp,
    LoopOp,
    ShapeCalculateOp,
    YieldOp,
)
from flambeau.dialects.torch.global_slots import (
    GLOBAL_SLOTS,
    GlobalSlotGetOp,
    GlobalSlotInitOp,
    GlobalSlotModuleInitializerOp,
    GlobalSlotOp,
    GlobalSlotSetOp,
    InitializeGlobalSlotsOp,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.structure import (
    STRUCTURE,
    TERMINATOR,
    AttrOp,
    CallMethodOp,
    ClassTypeOp,
    ClassTypeTerminatorOp,
    CreateObjectOp,
    GetAttrOp,
    MethodOp,
    NnModuleOp,
    NnModuleTerminatorOp,
    SetAttrOp,
    SlotOp,
)
from flambeau.dialects.torch.symbols import SYMBOLS, BindSymbolicShapeOp, SymbolicIntOp
from flambeau.dialects.torch.types import TYPES
from flambeau.dialects.torch.values import (
    OLD_SPELLINGS,
    VALUES,
    CopyOp,
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    DerefineOp,
    DictConstructOp,
    ListConstructOp,
    ListUnpackOp,
    OverwriteTensorContentsOp,
    RuntimeAssertOp,
    StaticInfoCastOp,
    TupleConstructOp,
    TupleUnpackOp,
    UninitializedOp,
)

__all__ = [
    "STRUCTURAL", "Torch", "TorchDialect", "TorchOp", "FunctionalOp", "NO_TRAITS", "PURE",
    "create_op", "op_class", "OperatorOp", "OperatorTerminatorOp",
    "ConstantOp", "ConstantIntOp", "ConstantFloatOp", "ConstantBoolOp", "ConstantStrOp", "ConstantDeviceOp",
    "ConstantNumberOp", "ConstantNoneOp", "LiteralOp", "ValueTensorLiteralOp", "NonValueTensorLiteralOp",
    "ListConstructOp", "ListUnpackOp", "TupleConstructOp", "TupleUnpackOp", "DictConstructOp", "DerefineOp",
    "StaticInfoCastOp", "CopyOp", "CopyToValueTensorOp", "CopyToNonValueTensorOp", "OverwriteTensorContentsOp",
    "UninitializedOp", "RuntimeAssertOp", "SymbolicIntOp", "BindSymbolicShapeOp",
    "IfOp", "IfYieldOp", "LoopOp", "LoopConditionOp", "YieldOp", "CalculateOp", "ShapeCalculateOp", "DtypeCalculateOp",
    "ClassTypeOp", "ClassTypeTerminatorOp", "AttrOp", "MethodOp", "NnModuleOp", "NnModuleTerminatorOp", "SlotOp",
    "CreateObjectOp", "GetAttrOp", "SetAttrOp", "CallMethodOp",
    "GlobalSlotOp", "GlobalSlotInitOp", "GlobalSlotModuleInitializerOp", "InitializeGlobalSlotsOp", "GlobalSlotGetOp",
    "GlobalSlotSetOp",
]  # fmt: skip


# --- Registry ops ---


def _effects(s: Schema) -> Any:
    if s.is_mutable or s.is_vararg or not s.returns:
        return NO_TRAITS
    return RANDOM_EFFECTS if registry.is_random(s.name) else OBJECT_EFFECTS


@cache
def op_class(name: str) -> type[TorchOp]:
    """Return the class of a registry op that torch-mlir's dialect defines, `aten.add.Tensor`."""
    schema = registry.schema(name)
    if schema is None:
        raise KeyError(name)
    namespace = {
        "name": f"torch.{name}",
        "overload": name,
        "schema": schema,
        "traits": _effects(schema),
        "property_names": registry.PROPERTIES.get(name, ()),
        "__doc__": f"Generated op for `{registry.signature_text(schema)}`.",
        "__module__": __name__,
    }
    base = VarargOp if schema.is_vararg else TorchOp
    return type(registry.class_name(name), (base,), namespace)


class OperatorOp(TorchOp):
    """An op that torch-mlir's dialect does not define: `torch.operator "torch.aten.x"(%a) : (T) -> T`."""

    name = "torch.operator"
    property_names = ("name",)

    @property
    def operator_name(self) -> str:
        """The name as written, `torch.aten.x`."""
        return str(self.require("name", StringAttr).data)

    @property
    def overload(self) -> str:  # type: ignore[override]
        name = self.properties.get("name")
        return name.data.removeprefix("torch.") if isinstance(name, StringAttr) else ""

    @property
    def schema(self) -> Schema | None:  # type: ignore[override]
        return registry.schema(self.overload)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.operator_name)
        printer.print_operands(self.operands)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)
        if self.regions:
            printer.print_string(" ")
            printer.print_list(self.regions, printer.print_region)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_str_literal()
        unresolved = parser.parse_op_args_list()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_function_type()
        regions: list[Region] = []
        if (region := parser.parse_optional_region()) is not None:
            regions.append(region)
            while parser.parse_optional_punctuation(",") is not None:
                regions.append(parser.parse_region())
        operands = parser.resolve_operands(unresolved, type_.inputs.data, parser.pos)
        return cls.create(
            operands=operands,
            result_types=type_.outputs.data,
            properties={"name": StringAttr(name)},
            attributes=attributes,
            regions=regions,
        )

    def verify_(self) -> None:
        _ = self.operator_name
        super().verify_()


class OperatorTerminatorOp(TemplateOp):
    """Ends a region of `torch.operator`."""

    name = "torch.operator_terminator"
    traits = TERMINATOR
    assembly = "{%*}{attrs} : {T*}"


@cache
def _operator_properties(name: str) -> dict[str, Attribute]:
    return {"name": StringAttr(f"torch.{name}")}


def create_op(
    name: str, operands: Sequence[SSAValue], result_types: Sequence[Attribute], location: Any = None
) -> TorchOp:
    """Build a registry op in the form that torch-mlir reads: its own op, or `torch.operator`."""
    if registry.is_upstream(name):
        return op_class(name).create(operands=operands, result_types=result_types, location=location)
    return OperatorOp.create(
        operands=operands, result_types=result_types, properties=_operator_properties(name), location=location
    )


# --- The dialect ---

STRUCTURAL: tuple[type[TorchOp], ...] = (
    *CONSTANTS, *VALUES, *SYMBOLS, *CONTROL_FLOW, *STRUCTURE, *GLOBAL_SLOTS, OperatorOp, OperatorTerminatorOp,
)  # fmt: skip
"""Ops written by hand."""

_HAND_WRITTEN_NAMES = {cls.overload for cls in STRUCTURAL if isinstance(cls.overload, str)}


class TorchDialect(Dialect):
    """The dialect; its registry ops are made only when a parser asks for the list."""

    def __init__(self) -> None:
        super().__init__("torch", [], list(TYPES))

    @property
    def operations(self) -> Iterator[type[Operation]]:
        yield from STRUCTURAL
        yield from OLD_SPELLINGS
        for name in registry.upstream_names():
            if name not in _HAND_WRITTEN_NAMES:
                yield op_class(name)


Torch = TorchDialect()
