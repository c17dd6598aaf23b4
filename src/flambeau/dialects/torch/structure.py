"""Class types and the objects made of them.

TorchScript gives a program as a graph of objects. A class type declares attributes and methods; `torch.nn_module` is an
instance with a slot for each attribute.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, MemoryReadEffect, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import PURE, TemplateOp, TorchOp, print_attributes, print_types
from flambeau.dialects.torch.types import NnModuleType, is_subtype

TERMINATOR: Any = frozenset({IsTerminator(), *PURE})
READS: Any = frozenset({MemoryReadEffect()})
SYMBOL: Any = frozenset({SymbolOpInterface()})


@cache
def _symbol_ref(name: str) -> SymbolRefAttr:
    return SymbolRefAttr(name)


def find_symbol(op: Operation, name: str) -> Operation | None:
    """Find the op with this symbol name in the symbol table around `op`; None when there is no such op, or no table."""
    table: Operation | None = op
    while table is not None and not table.has_trait(SymbolTable):
        table = table.parent_op()
    return None if table is None else SymbolTable.lookup_symbol(table, _symbol_ref(name))


def _single_block(region: Region) -> Block:
    if region.first_block is None:
        region.add_block(Block())
    return region.block


# --- Class types ---


class TerminatorOp(TorchOp):
    """Base of the terminators that are left out in print."""

    traits = TERMINATOR

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return cls.create(attributes=parser.parse_optional_attr_dict())

    @classmethod
    def close(cls, region: Region) -> Region:
        """Add the terminator where the text left it out."""
        block = _single_block(region)
        if not isinstance(block.last_op, cls):
            block.add_op(cls.create())
        return region

    @classmethod
    def print_body(cls, printer: Printer, region: Region) -> None:
        last = region.block.last_op
        bare = isinstance(last, cls) and not last.attributes
        printer.print_string(" ")
        printer.print_region(region, print_empty_block=False, print_block_terminators=not bare)


class ClassTypeTerminatorOp(TerminatorOp):
    """Ends the declarations of a class."""

    name = "torch.class_type_terminator"


class NnModuleTerminatorOp(TerminatorOp):
    """Ends the slots of an object."""

    name = "torch.nn_module_terminator"


class ClassTypeOp(TorchOp):
    """The attributes and methods of a TorchScript class."""

    name = "torch.class_type"
    traits = SYMBOL
    property_names = ("sym_name",)

    @property
    def sym_name(self) -> str:
        return str(self.require("sym_name", StringAttr).data)

    @property
    def attrs(self) -> list[AttrOp]:
        return [op for op in self.regions[0].block.ops if isinstance(op, AttrOp)]

    @property
    def methods(self) -> list[MethodOp]:
        return [op for op in self.regions[0].block.ops if isinstance(op, MethodOp)]

    def attr(self, name: str) -> AttrOp | None:
        return next((a for a in self.attrs if a.attr_name == name), None)

    def method(self, name: str) -> MethodOp | None:
        return next((m for m in self.methods if m.method_name == name), None)

    @classmethod
    def of(cls, type_: NnModuleType, at: Operation) -> ClassTypeOp | None:
        """Find the declaration of an object's class in the symbol table around `at`; None if there is none."""
        found = find_symbol(at, type_.data)
        return found if isinstance(found, ClassTypeOp) else None

    @classmethod
    def build(cls, name: str, members: list[TorchOp]) -> Self:
        region = Region(Block([*members, ClassTypeTerminatorOp.create()]))
        return cls.create(properties={"sym_name": StringAttr(name)}, regions=(region,))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        ClassTypeTerminatorOp.print_body(printer, self.regions[0])
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name()
        region = ClassTypeTerminatorOp.close(parser.parse_region())
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name}, regions=(region,), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(0, 0, 1)
        seen: set[str] = set()
        for op in self.regions[0].block.ops:
            if isinstance(op, AttrOp):
                name = op.attr_name
            elif isinstance(op, MethodOp):
                name = op.method_name
            elif isinstance(op, ClassTypeTerminatorOp):
                continue
            else:
                raise VerifyException(f"{op.name} cannot stand in the class type @{self.sym_name}")
            if name in seen:
                raise VerifyException(f"class type @{self.sym_name} has two members '{name}'")
            seen.add(name)


class MemberOp(TemplateOp):
    """Base of the two declarations inside a class type."""

    @property
    def is_private(self) -> bool:
        return "isPrivate" in self.properties

    @property
    def class_type(self) -> ClassTypeOp:
        parent = self.parent_op()
        if not isinstance(parent, ClassTypeOp):
            raise VerifyException(f"{self.name} stands inside a torch.class_type")
        return parent


class AttrOp(MemberOp):
    """An attribute of a class and its type."""

    name = "torch.attr"
    property_names = ("name", "type", "isPrivate")
    assembly = "{flag isPrivate private} {str name} : {type type}{attrs}"

    @property
    def attr_name(self) -> str:
        return str(self.require("name", StringAttr).data)

    @property
    def type(self) -> Attribute:
        found: Attribute = self.require("type", TypeAttribute)
        return found

    @classmethod
    def build(cls, name: str, type_: Attribute, private: bool = False) -> Self:
        properties: dict[str, Attribute] = {"name": StringAttr(name), "type": type_}
        return cls.create(properties={**properties, "isPrivate": UnitAttr()} if private else properties)

    def verify_(self) -> None:
        super().verify_()
        _ = self.class_type


class MethodOp(MemberOp):
    """A method of a class: the function that has the object as its first argument."""

    name = "torch.method"
    property_names = ("name", "function", "isPrivate")
    assembly = "{flag isPrivate private} {str name}, {symbol function}{attrs}"

    @property
    def method_name(self) -> str:
        return str(self.require("name", StringAttr).data)

    @property
    def function_name(self) -> str:
        return str(self.require("function", SymbolRefAttr).string_value())

    @property
    def function(self) -> FuncOp | None:
        found = find_symbol(self, self.function_name)
        return found if isinstance(found, FuncOp) else None

    @classmethod
    def build(cls, name: str, function: str, private: bool = False) -> Self:
        properties: dict[str, Attribute] = {"name": StringAttr(name), "function": SymbolRefAttr(function)}
        return cls.create(properties={**properties, "isPrivate": UnitAttr()} if private else properties)

    def verify_(self) -> None:
        super().verify_()
        class_name, function = self.class_type.sym_name, self.function
        what = f"method '{self.method_name}' of @{class_name}"
        if function is None:
            raise VerifyException(f"{what}: there is no function @{self.function_name}")
        if function.is_declaration:
            raise VerifyException(f"{what}: the function @{self.function_name} has no body")
        if function.sym_visibility is None or function.sym_visibility.data != "private":
            raise VerifyException(f"{what}: the function @{self.function_name} must be private")
        inputs = function.function_type.inputs.data
        if not inputs or inputs[0] != NnModuleType(class_name):
            raise VerifyException(
                f'{what}: the first argument of @{self.function_name} must be !torch.nn.Module<"{class_name}">'
            )


# --- Objects ---


class SlotOp(TemplateOp):
    """The value of one attribute of an object."""

    name = "torch.slot"
    property_names = ("name",)
    assembly = " {str name}, {%0}{attrs} : {T0}"

    @property
    def slot_name(self) -> str:
        return str(self.require("name", StringAttr).data)

    @property
    def value(self) -> SSAValue:
        return self._operands[0]

    @classmethod
    def build(cls, name: str, value: SSAValue) -> Self:
        return cls.create(operands=(value,), properties={"name": StringAttr(name)})

    def verify_(self) -> None:
        super().verify_()
        if not isinstance(self.parent_op(), NnModuleOp):
            raise VerifyException(f"{self.name} stands inside a torch.nn_module")


class NnModuleOp(TorchOp):
    """An object: one slot for each attribute of its class, in the order of the class."""

    name = "torch.nn_module"

    @property
    def slots(self) -> list[SlotOp]:
        return [op for op in self.regions[0].block.ops if isinstance(op, SlotOp)]

    def slot(self, name: str) -> SlotOp | None:
        return next((s for s in self.slots if s.slot_name == name), None)

    @property
    def class_type(self) -> ClassTypeOp | None:
        type_ = self.results[0].type
        return ClassTypeOp.of(type_, self) if isinstance(type_, NnModuleType) else None

    @classmethod
    def build(cls, class_name: str, slots: list[SlotOp]) -> Self:
        region = Region(Block([*slots, NnModuleTerminatorOp.create()]))
        return cls.create(result_types=(NnModuleType(class_name),), regions=(region,))

    def print(self, printer: Printer) -> None:
        NnModuleTerminatorOp.print_body(printer, self.regions[0])
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        print_types(printer, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        region = NnModuleTerminatorOp.close(parser.parse_region())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(result_types=(parser.parse_type(),), regions=(region,), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(0, 1, 1)
        type_ = self.results[0].type
        if not isinstance(type_, NnModuleType):
            raise VerifyException(f"{self.name} gives an !torch.nn.Module, not {type_}")
        for op in self.regions[0].block.ops:
            if not isinstance(op, SlotOp | NnModuleTerminatorOp):
                raise VerifyException(f"{op.name} cannot stand in a torch.nn_module")
        declaration = self.class_type
        if declaration is None:
            raise VerifyException(f"there is no torch.class_type @{type_.data}")
        slots, attrs = self.slots, declaration.attrs
        declared = [a.attr_name for a in attrs]
        given = [s.slot_name for s in slots]
        for name in given:
            if name not in declared:
                raise VerifyException(f"class type @{type_.data} has no attribute '{name}'")
            if given.count(name) > 1:
                raise VerifyException(f"slot '{name}' is given twice")
        for name in declared:
            if name not in given:
                raise VerifyException(f"attribute '{name}' of class type @{type_.data} has no slot")
        if given != declared:
            raise VerifyException(f"the slots {given} are not in the order of class type @{type_.data}: {declared}")
        for slot, attr in zip(slots, attrs, strict=True):
            if not is_subtype(slot.value.type, attr.type):
                raise VerifyException(
                    f"slot '{slot.slot_name}' holds {slot.value.type}, but @{type_.data} declares {attr.type}"
                )


class CreateObjectOp(TemplateOp):
    """A new object whose attributes are not set yet."""

    name = "torch.prim.CreateObject"
    assembly = "{attrs} {R0}"

    def verify_(self) -> None:
        super().verify_()
        if not isinstance(self.results[0].type, NnModuleType):
            raise VerifyException(f"{self.name} gives an !torch.nn.Module, not {self.results[0].type}")


class MemberAccessOp(TemplateOp):
    """Base of the ops that use a member of an object: `%object["name"]`."""

    property_names = ("name",)

    @property
    def member(self) -> str:
        return str(self.require("name", StringAttr).data)

    @property
    def receiver(self) -> SSAValue:
        return self._operands[0]

    @property
    def class_type(self) -> ClassTypeOp | None:
        """The receiver's class; None where the program does not declare it."""
        type_ = self.receiver.type
        if not isinstance(type_, NnModuleType):
            raise VerifyException(f"{self.name} takes an !torch.nn.Module, got {type_}")
        return ClassTypeOp.of(type_, self)

    @property
    def attr(self) -> AttrOp | None:
        declaration = self.class_type
        if declaration is None:
            return None
        found = declaration.attr(self.member)
        if found is None:
            raise VerifyException(f"class type @{declaration.sym_name} has no attribute '{self.member}'")
        return found


class GetAttrOp(MemberAccessOp):
    """An attribute of an object."""

    name = "torch.prim.GetAttr"
    traits = READS
    assembly = " {%0}[{str name}]{attrs} : {T0} -> {R0}"

    def verify_(self) -> None:
        super().verify_()
        attr, result = self.attr, self.results[0].type
        if attr is not None and not is_subtype(attr.type, result) and not is_subtype(result, attr.type):
            raise VerifyException(f"attribute '{self.member}' is a {attr.type}, not a {result}")


class SetAttrOp(MemberAccessOp):
    """Gives an attribute of an object a new value."""

    name = "torch.prim.SetAttr"
    assembly = " {%0}[{str name}] = {%1}{attrs} : {T0}, {T1}"

    @property
    def value(self) -> SSAValue:
        return self._operands[1]

    def verify_(self) -> None:
        super().verify_()
        attr = self.attr
        if attr is not None and not is_subtype(self.value.type, attr.type):
            raise VerifyException(f"attribute '{self.member}' is a {attr.type} and cannot hold {self.value.type}")


class CallMethodOp(MemberAccessOp):
    """Calls a method of an object."""

    name = "torch.prim.CallMethod"

    @property
    def arguments(self) -> tuple[SSAValue, ...]:
        """What is passed behind the receiver."""
        return tuple(self._operands[1:])

    @property
    def method(self) -> MethodOp | None:
        declaration = self.class_type
        if declaration is None:
            return None
        found = declaration.method(self.member)
        if found is None:
            raise VerifyException(f"class type @{declaration.sym_name} has no method '{self.member}'")
        return found

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.receiver)
        with printer.in_square_brackets():
            printer.print_string_literal(self.member)
        printer.print_string(" ")
        printer.print_operands(self.arguments)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.receiver.type)
        printer.print_string(", ")
        printer.print_function_type(self.operand_types[1:], self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        receiver = parser.parse_unresolved_operand()
        with parser.in_square_brackets():
            name = StringAttr(parser.parse_str_literal())
        arguments = parser.parse_op_args_list()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        object_ = parser.resolve_operand(receiver, parser.parse_type())
        parser.parse_punctuation(",")
        type_ = parser.parse_function_type()
        return cls.create(
            operands=[object_, *parser.resolve_operands(arguments, type_.inputs.data, parser.pos)],
            result_types=type_.outputs.data,
            properties={"name": name},
            attributes=attributes,
        )

    def verify_(self) -> None:
        if not self.operands or len(self.results) != 1:
            raise VerifyException(f"{self.name} takes an object and has 1 result")
        method = self.method
        function = None if method is None else method.function
        if function is None:
            return
        wanted = len(function.function_type.inputs.data) - 1
        if wanted != len(self.arguments):
            raise VerifyException(f"method '{self.member}' takes {wanted} arguments, got {len(self.arguments)}")


STRUCTURE: tuple[type[TorchOp], ...] = (
    ClassTypeOp, ClassTypeTerminatorOp, AttrOp, MethodOp, NnModuleOp, NnModuleTerminatorOp, SlotOp, CreateObjectOp,
    GetAttrOp, SetAttrOp, CallMethodOp,
)  # fmt: skip
