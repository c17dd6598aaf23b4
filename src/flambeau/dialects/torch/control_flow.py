"""Branches and loops, and the regions that compute shapes and dtypes beside a computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import TorchOp, parse_operands, parse_typed, print_attributes, print_types
from flambeau.dialects.torch.structure import TERMINATOR
from flambeau.dialects.torch.types import BOOL, INT
from flambeau.dialects.torch.values import print_typed

RECURSIVE: Any = frozenset({RecursiveMemoryEffect()})


class YieldOp(TorchOp):
    """Base of the terminators that hand values to the op around them: ` %a, %b : T, U`."""

    traits = TERMINATOR
    parent_name: ClassVar[str]

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self.attributes)
        if self.operands:
            printer.print_string(" ")
            print_typed(printer, self.operands)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        operands = parse_typed(parser, parse_operands(parser))
        return cls.create(operands=operands, attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(len(self.operands), 0)
        parent = self.parent_op()
        if parent is None or parent.name != self.parent_name:
            raise VerifyException(f"{self.name} stands inside a {self.parent_name}")


def _terminator(op: Operation, block: Block, kind: type[Operation]) -> Operation:
    last = block.last_op
    if not isinstance(last, kind):
        raise VerifyException(f"a region of {op.name} must end in {kind.name}")
    return last


def _check_types(what: str, got: Sequence[SSAValue], wanted: Sequence[Attribute]) -> None:
    types = [v.type for v in got]
    if types != list(wanted):
        raise VerifyException(f"{what}: got ({_spell(types)}), expected ({_spell(wanted)})")


def _spell(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))


# --- prim.If ---


class IfYieldOp(YieldOp):
    """The results of a branch."""

    name = "torch.prim.If.yield"
    parent_name = "torch.prim.If"


class IfOp(TorchOp):
    """Runs the first region if the condition holds, the second otherwise."""

    name = "torch.prim.If"
    traits = RECURSIVE

    @property
    def condition(self) -> SSAValue:
        return self._operands[0]

    @property
    def then_block(self) -> Block:
        return self.regions[0].block

    @property
    def else_block(self) -> Block:
        return self.regions[1].block

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.condition)
        printer.print_string(" -> ")
        with printer.in_parens():
            print_types(printer, self.result_types)
        for region, word in zip(self.regions, (" ", " else "), strict=True):
            printer.print_string(word)
            printer.print_region(region)
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        condition = parser.resolve_operand(parser.parse_unresolved_operand(), BOOL)
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        then_region = parser.parse_region()
        parser.parse_keyword("else")
        else_region = parser.parse_region()
        return cls.create(
            operands=(condition,),
            result_types=results,
            regions=(then_region, else_region),
            attributes=parser.parse_optional_attr_dict(),
        )

    def verify_(self) -> None:
        self.expect_counts(1, len(self.results), 2)
        if self.condition.type != BOOL:
            raise VerifyException(f"the condition of {self.name} is a !torch.bool, got {self.condition.type}")
        for block, which in ((self.then_block, "first"), (self.else_block, "second")):
            end = _terminator(self, block, IfYieldOp)
            _check_types(f"{self.name}, results of the {which} branch", end.operands, self.result_types)


# --- prim.Loop ---


class LoopConditionOp(TorchOp):
    """Whether the loop goes on, and the values that it goes on with."""

    name = "torch.prim.Loop.condition"
    traits = TERMINATOR

    @property
    def condition(self) -> SSAValue:
        return self._operands[0]

    @property
    def iter_args(self) -> tuple[SSAValue, ...]:
        return tuple(self._operands[1:])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.condition)
        printer.print_string(", iter")
        with printer.in_parens():
            print_typed(printer, self.iter_args)
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        condition = parser.resolve_operand(parser.parse_unresolved_operand(), BOOL)
        parser.parse_punctuation(",")
        parser.parse_keyword("iter")
        with parser.in_parens():
            iter_args = parse_typed(parser, parse_operands(parser))
        return cls.create(operands=[condition, *iter_args], attributes=parser.parse_optional_attr_dict())

    def verify_(self) -> None:
        self.expect_counts(max(len(self.operands), 1), 0)
        if self.condition.type != BOOL:
            raise VerifyException(f"{self.name} takes a !torch.bool first, got {self.condition.type}")
        if not isinstance(self.parent_op(), LoopOp):
            raise VerifyException(f"{self.name} stands inside a torch.prim.Loop")


class LoopOp(TorchOp):
    """Runs its region while the condition, its second operand, holds, at most as often as the first operand says.

    The region takes the number of the iteration and the values that change with it.
    """

    name = "torch.prim.Loop"
    traits = RECURSIVE

    @property
    def iter_args_init(self) -> tuple[SSAValue, ...]:
        return tuple(self._operands[2:])

    @property
    def body(self) -> Block:
        return self.regions[0].block

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands[:2], printer.print_operand)
        printer.print_string(", init")
        printer.print_operands(self.iter_args_init)
        printer.print_string(" ")
        printer.print_region(self.regions[0])
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        unresolved.append(parser.parse_unresolved_operand())
        parser.parse_punctuation(",")
        parser.parse_keyword("init")
        unresolved += parser.parse_op_args_list()
        region = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_function_type()
        operands = parser.resolve_operands(unresolved, type_.inputs.data, parser.pos)
        return cls.create(operands=operands, result_types=type_.outputs.data, regions=(region,), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(len(self.results) + 2, len(self.results), 1)
        _check_types(f"{self.name}, trip count and condition", self.operands[:2], (INT, BOOL))
        _check_types(f"{self.name}, initial values", self.iter_args_init, self.result_types)
        _check_types(f"{self.name}, arguments of the region", self.body.args, (INT, *self.result_types))
        end = _terminator(self, self.body, LoopConditionOp)
        _check_types(f"{self.name}, next values", end.operands[1:], self.result_types)


# --- Shapes and dtypes beside a computation ---


class CalculateOp(TorchOp):
    """Base of the two ops that hold a computation, and beside it one that says what it gives."""

    traits = RECURSIVE
    word: ClassVar[str]
    body_yield: ClassVar[type[YieldOp]]
    calculation_yield: ClassVar[type[YieldOp]]

    @property
    def body(self) -> Block:
        return self.regions[0].block

    @property
    def calculation(self) -> Block:
        return self.regions[1].block

    def print(self, printer: Printer) -> None:
        for region, word in zip(self.regions, (" ", f" {self.word} "), strict=True):
            printer.print_string(word)
            printer.print_region(region)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        print_types(printer, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        body = parser.parse_region()
        parser.parse_keyword(cls.word)
        calculation = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        results = parser.parse_optional_undelimited_comma_separated_list(parser.parse_optional_type, parser.parse_type)
        return cls.create(result_types=results or (), regions=(body, calculation), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(0, len(self.results), 2)
        end = _terminator(self, self.body, self.body_yield)
        _check_types(f"{self.name}, results", end.operands, self.result_types)
        count = len(_terminator(self, self.calculation, self.calculation_yield).operands)
        if count != len(self.results):
            raise VerifyException(f"{self.name} gives {count} {self.word} for {len(self.results)} results")


class ShapeYieldOp(YieldOp):
    """The results whose shapes are calculated beside them."""

    name = "torch.shape.calculate.yield"
    parent_name = "torch.shape.calculate"


class ShapeYieldShapesOp(YieldOp):
    """The shapes of the results."""

    name = "torch.shape.calculate.yield.shapes"
    parent_name = "torch.shape.calculate"


class ShapeCalculateOp(CalculateOp):
    """A computation, and the code that gives the shapes of its results."""

    name = "torch.shape.calculate"
    word = "shapes"
    body_yield = ShapeYieldOp
    calculation_yield = ShapeYieldShapesOp


class DtypeYieldOp(YieldOp):
    """The results whose dtypes are calculated beside them."""

    name = "torch.dtype.calculate.yield"
    parent_name = "torch.dtype.calculate"


class DtypeYieldDtypesOp(YieldOp):
    """The dtypes of the results."""

    name = "torch.dtype.calculate.yield.dtypes"
    parent_name = "torch.dtype.calculate"


class DtypeCalculateOp(CalculateOp):
    """A computation, and the code that gives the dtypes of its results."""

    name = "torch.dtype.calculate"
    word = "dtypes"
    body_yield = DtypeYieldOp
    calculation_yield = DtypeYieldDtypesOp


CONTROL_FLOW: tuple[type[TorchOp], ...] = (
    IfOp, IfYieldOp, LoopOp, LoopConditionOp, ShapeCalculateOp, ShapeYieldOp, ShapeYieldShapesOp, DtypeCalculateOp,
    DtypeYieldOp, DtypeYieldDtypesOp,
)  # fmt: skip
