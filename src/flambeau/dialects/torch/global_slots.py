"""Global slots: the variables of a program, and the code that gives them their initial values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import TemplateOp, TorchOp, parse_typed, print_attributes
from flambeau.dialects.torch.structure import READS, TERMINATOR, find_symbol
from flambeau.dialects.torch.types import is_subtype


class GlobalSlotOp(TorchOp):
    """A variable of the program, known by its symbol.

    Programs of 2021 give the initial value in a region here; `gather_slot_initializers` brings them up to date.
    """

    name = "torch.global_slot"
    traits: ClassVar[Any] = frozenset({SymbolOpInterface(), IsolatedFromAbove()})
    property_names = ("sym_name", "typeBound", "sym_visibility")

    @property
    def sym_name(self) -> str:
        return str(self.require("sym_name", StringAttr).data)

    @property
    def type_bound(self) -> Attribute:
        """What the slot may hold: values of this type and of its subtypes."""
        found: Attribute = self.require("typeBound", TypeAttribute)
        return found

    @property
    def is_private(self) -> bool:
        visibility = self.properties.get("sym_visibility")
        return isinstance(visibility, StringAttr) and visibility.data == "private"

    @classmethod
    def build(cls, name: str, type_bound: Attribute, private: bool = False) -> Self:
        properties: dict[str, Attribute] = {"sym_name": StringAttr(name), "typeBound": type_bound}
        if private:
            properties["sym_visibility"] = StringAttr("private")
        return cls.create(properties=properties)

    @classmethod
    def find(cls, at: Operation, name: str) -> GlobalSlotOp:
        """Return the slot of this name; fail when there is none."""
        found = find_symbol(at, name)
        if not isinstance(found, GlobalSlotOp):
            raise VerifyException(f"there is no torch.global_slot @{name}")
        return found

    def print(self, printer: Printer) -> None:
        visibility = self.properties.get("sym_visibility")
        if isinstance(visibility, StringAttr):
            printer.print_string(" ")
            printer.print_string_literal(visibility.data)
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.type_bound)
        for region in self.regions:
            printer.print_string(" ")
            printer.print_region(region)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        visibility = parser.parse_optional_str_literal()
        properties: dict[str, Attribute] = {} if visibility is None else {"sym_visibility": StringAttr(visibility)}
        properties["sym_name"] = parser.parse_symbol_name()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        properties["typeBound"] = parser.parse_type()
        initializer = parser.parse_optional_region()
        regions = () if initializer is None else (initializer,)
        return cls.create(properties=properties, attributes=attributes, regions=regions)

    def verify_(self) -> None:
        _ = self.sym_name, self.type_bound
        self.expect_counts(0, 0, min(len(self.regions), 1))
        for region in self.regions:
            last = region.block.last_op
            if not isinstance(last, GlobalSlotInitOp):
                raise VerifyException(f"the initialiser of slot @{self.sym_name} must end in torch.global_slot.init")
            _check_bound(self, last.operands[0].type)


def _check_bound(slot: GlobalSlotOp, type_: Attribute) -> None:
    if not is_subtype(type_, slot.type_bound):
        raise VerifyException(f"slot @{slot.sym_name} is a {slot.type_bound} and cannot hold {type_}")


class GlobalSlotInitOp(TemplateOp):
    """The initial value of the slot around it, in programs of 2021."""

    name = "torch.global_slot.init"
    traits = TERMINATOR
    assembly = " {%0}{attrs} : {T0}"

    def verify_(self) -> None:
        super().verify_()
        if not isinstance(self.parent_op(), GlobalSlotOp):
            raise VerifyException(f"{self.name} stands inside a torch.global_slot")


class GlobalSlotModuleInitializerOp(TorchOp):
    """The code that gives all global slots of a module their initial values."""

    name = "torch.global_slot.module_initializer"
    traits: ClassVar[Any] = frozenset({IsolatedFromAbove()})

    @property
    def initialization(self) -> InitializeGlobalSlotsOp:
        last = self.regions[0].block.last_op
        if not isinstance(last, InitializeGlobalSlotsOp):
            raise VerifyException(f"{self.name} must end in torch.initialize.global_slots")
        return last

    @classmethod
    def build(cls, block: Block) -> Self:
        return cls.create(regions=(Region(block),))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_region(self.regions[0])
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        region = parser.parse_region()
        return cls.create(regions=(region,), attributes=parser.parse_optional_attr_dict())

    def verify_(self) -> None:
        self.expect_counts(0, 0, 1)
        _ = self.initialization
        siblings = self.parent.ops if self.parent is not None else ()
        if sum(isinstance(op, GlobalSlotModuleInitializerOp) for op in siblings) > 1:
            raise VerifyException(f"a module has one {self.name}")


class InitializeGlobalSlotsOp(TorchOp):
    """The initial value of each global slot: `[ @a(%0 : T) @b(%1 : U) ]`."""

    name = "torch.initialize.global_slots"
    traits: ClassVar[Any] = frozenset({IsTerminator()})
    property_names = ("slotSymNames",)

    @property
    def slot_names(self) -> list[str]:
        names = self.require("slotSymNames", ArrayAttr)
        return [ref.string_value() for ref in names.data]

    @property
    def initial_values(self) -> Iterator[tuple[str, SSAValue]]:
        """Slot names with their initial values."""
        return zip(self.slot_names, self._operands, strict=True)

    @classmethod
    def build(cls, values: dict[str, SSAValue]) -> Self:
        names = ArrayAttr([SymbolRefAttr(name) for name in values])
        return cls.create(operands=list(values.values()), properties={"slotSymNames": names})

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self.attributes)
        printer.print_string(" [")
        # A printer indents what stands inside `indented`, and starts each line itself only through a line break.
        with printer.indented():
            for name, value in self.initial_values:
                printer._print_new_line()
                printer.print_symbol_name(name)
                with printer.in_parens():
                    printer.print_operand(value)
                    printer.print_string(" : ")
                    printer.print_attribute(value.type)
        printer._print_new_line()
        printer.print_string("]")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        names: list[SymbolRefAttr] = []
        operands: list[SSAValue] = []
        with parser.in_square_brackets():
            while (name := parser.parse_optional_symbol_name()) is not None:
                with parser.in_parens():
                    unresolved = parser.parse_unresolved_operand()
                    operands += parse_typed(parser, [unresolved])
                names.append(SymbolRefAttr(name))
        properties = {"slotSymNames": ArrayAttr(names)}
        return cls.create(operands=operands, properties=properties, attributes=attributes)

    def verify_(self) -> None:
        initializer = self.parent_op()
        if not isinstance(initializer, GlobalSlotModuleInitializerOp):
            raise VerifyException(f"{self.name} stands inside a torch.global_slot.module_initializer")
        names = self.slot_names
        if len(names) != len(self.operands):
            raise VerifyException(f"{self.name} names {len(names)} slots and has {len(self.operands)} values")
        for name, value in self.initial_values:
            if names.count(name) > 1:
                raise VerifyException(f"slot @{name} is initialised twice")
            _check_bound(GlobalSlotOp.find(initializer, name), value.type)
        around = initializer.parent
        for op in around.ops if around is not None else ():
            if isinstance(op, GlobalSlotOp) and not op.regions and op.sym_name not in names:
                raise VerifyException(f"slot @{op.sym_name} has no initial value")


class SlotAccessOp(TemplateOp):
    """Base of the ops that use a global slot."""

    property_names = ("slot",)

    @property
    def slot_name(self) -> str:
        return str(self.require("slot", SymbolRefAttr).string_value())

    @property
    def slot(self) -> GlobalSlotOp:
        return GlobalSlotOp.find(self, self.slot_name)


class GlobalSlotGetOp(SlotAccessOp):
    """What a global slot holds."""

    name = "torch.global_slot.get"
    traits = READS
    assembly = " {symbol slot}{attrs} : {R0}"

    @classmethod
    def build(cls, slot: str, type_: Attribute) -> Self:
        return cls.create(result_types=(type_,), properties={"slot": SymbolRefAttr(slot)})

    def verify_(self) -> None:
        super().verify_()
        bound, result = self.slot.type_bound, self.results[0].type
        if not is_subtype(bound, result) and not is_subtype(result, bound):
            raise VerifyException(f"slot @{self.slot_name} is a {bound}, not a {result}")


class GlobalSlotSetOp(SlotAccessOp):
    """Gives a global slot a new value."""

    name = "torch.global_slot.set"
    assembly = " {symbol slot} = {%0}{attrs} : {T0}"

    @classmethod
    def build(cls, slot: str, value: SSAValue) -> Self:
        return cls.create(operands=(value,), properties={"slot": SymbolRefAttr(slot)})

    def verify_(self) -> None:
        super().verify_()
        _check_bound(self.slot, self.operands[0].type)


def gather_slot_initializers(module: ModuleOp) -> None:
    """Move the initial values that stand inside `torch.global_slot`s into the module's one initialiser."""
    slots = [op for op in module.ops if isinstance(op, GlobalSlotOp) and op.regions]
    if not slots:
        return
    initializer = next((op for op in module.ops if isinstance(op, GlobalSlotModuleInitializerOp)), None)
    if initializer is None:
        initializer = GlobalSlotModuleInitializerOp.build(Block([InitializeGlobalSlotsOp.build({})]))
        module.body.block.insert_op_after(initializer, slots[-1])
    old = initializer.initialization
    values = dict(old.initial_values)
    block = initializer.regions[0].block
    for slot in slots:
        source = slot.detach_region(0).block
        for op in list(source.ops):
            source.detach_op(op)
            if isinstance(op, GlobalSlotInitOp):
                values[slot.sym_name] = op.operands[0]
                op.erase()
            else:
                block.insert_op_before(op, old)
    block.insert_op_before(InitializeGlobalSlotsOp.build(values), old)
    block.erase_op(old)


GLOBAL_SLOTS: tuple[type[TorchOp], ...] = (
    GlobalSlotOp, GlobalSlotInitOp, GlobalSlotModuleInitializerOp, InitializeGlobalSlotsOp, GlobalSlotGetOp,
    GlobalSlotSetOp,
)  # fmt: skip
