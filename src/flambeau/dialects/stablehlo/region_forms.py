"""Pretty forms of the ops that have regions."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from flambeau.dialects.declared.forms import (
    Form,
    Parts,
    Reading,
    print_each,
    print_ints,
    read_each,
    read_function,
    read_ints,
)
from flambeau.dialects.declared.ops import DeclaredOp, element


class ReduceForm(Form):
    """`stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : ...`, or with its body."""

    def shows(self, op: DeclaredOp) -> bool:
        return len(op.operands) % 2 == 0 and len(op.regions[0].blocks[0].args) == len(op.operands) > 0

    def print(self, op: DeclaredOp, printer: Printer) -> None:
        n = len(op.operands) // 2
        for i in range(n):
            printer.print_string(", (" if i else "(")
            printer.print_operand(op.operands[i])
            printer.print_string(" init: ")
            printer.print_operand(op.operands[n + i])
            printer.print_string(")")
        applied = _applied(op)
        if applied is not None:
            printer.print_string(f" applies {applied}")
        printer.print_string(" across dimensions = ")
        print_ints(op, printer, "dimensions")
        printer.print_op_attributes(op.attributes)
        printer.print_string(" : ")
        printer.print_function_type(op.operand_types, op.result_types)
        if applied is None:
            printer.print_string(" reducer")
            args = op.regions[0].blocks[0].args
            for i in range(n):
                printer.print_string("(" if i == 0 else " (")
                printer.print_list((args[i], args[n + i]), printer.print_block_argument)
                printer.print_string(")")
            printer.print_string(" ")
            printer.print_region(op.regions[0], print_entry_block_args=False)

    def parse(self, op: type[DeclaredOp], parser: Parser) -> Parts:
        def pair() -> tuple[UnresolvedOperand, UnresolvedOperand]:
            with parser.in_parens():
                value = parser.parse_unresolved_operand()
                parser.parse_keyword("init")
                parser.parse_punctuation(":")
                return value, parser.parse_unresolved_operand()

        found = parser.parse_comma_separated_list(parser.Delimiter.NONE, pair)
        reading = Reading(op, parser, [*(p[0] for p in found), *(p[1] for p in found)])
        applied = None
        if parser.parse_optional_keyword("applies") is not None:
            applied = parser.parse_identifier(" of a binary op")
        reading.literal("across dimensions =")
        read_ints(reading, "dimensions")
        reading.attributes = parser.parse_optional_attr_dict()
        reading.literal(":")
        read_function(reading)
        if applied is None:
            region = self._parse_reducer(parser, len(found))
        else:
            region = _applying(parser, applied, element(reading.operand_types[0]))
        return {**reading.parts(), "regions": [region]}

    def _parse_reducer(self, parser: Parser, count: int) -> Region:
        parser.parse_keyword("reducer")
        groups = []
        for _ in range(count):
            groups.append(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument))
            if len(groups[-1]) != 2:
                parser.raise_error(f"a reducer takes two values for each result, got {len(groups[-1])}")
        arguments: list[Any] = [*(g[0] for g in groups), *(g[1] for g in groups)]
        return parser.parse_region(arguments)


def _applied(op: DeclaredOp) -> str | None:
    """Return the name of the op that a reducer applies to its two arguments; None if it does more."""
    block = op.regions[0].blocks[0]
    first = block.first_op
    if first is None or first.next_op is None or first.next_op is not block.last_op:
        return None
    scalar = TensorType(element(op.operands[0].type), [])
    plain = (
        isinstance(first, DeclaredOp)
        and tuple(first.operands) == tuple(block.args)
        and tuple(first.next_op.operands) == tuple(first.results)
        and not first.properties
        and not first.attributes
        and not first.regions
    )
    types = [*first.operand_types, *first.result_types]
    return first.name if plain and len(block.args) == 2 and all(t == scalar for t in types) else None


def _applying(parser: Parser, name: str, of: Attribute) -> Region:
    scalar = TensorType(of, [])
    block = Block(arg_types=[scalar, scalar])
    found = parser.ctx.get_optional_op(name)
    if found is None:
        parser.raise_error(f"Operation {name} is not registered")
    applied = found.create(operands=block.args, result_types=[scalar])
    returns: type[Operation] = parser.ctx.get_op("stablehlo.return")
    block.add_ops([applied, returns.create(operands=applied.results)])
    return Region(block)


class WhileForm(Form):
    """`stablehlo.while(%i = %a, %j = %b) : T, U cond {...} do {...}`: both regions have the same arguments."""

    def shows(self, op: DeclaredOp) -> bool:
        return all(len(region.blocks[0].args) == len(op.operands) for region in op.regions)

    def print(self, op: DeclaredOp, printer: Printer) -> None:
        condition, body = (region.blocks[0] for region in op.regions)
        with printer.in_parens():
            for i, (argument, operand) in enumerate(zip(condition.args, op.operands, strict=True)):
                printer.print_string(", " if i else "")
                name = printer.print_ssa_value(argument)
                # The body's arguments have the names of the condition's.
                printer._ssa_values[body.args[i]] = name
                printer.print_string(" = ")
                printer.print_operand(operand)
        print_each(op, printer)
        printer.print_op_attributes(op.attributes, print_keyword=True)
        for keyword, region in zip((" cond ", " do "), op.regions, strict=True):
            printer.print_string(keyword)
            printer.print_region(region, print_entry_block_args=False)

    def parse(self, op: type[DeclaredOp], parser: Parser) -> Parts:
        reading = Reading(op, parser)

        def entry() -> Any:
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            reading.names.append(parser.parse_unresolved_operand())
            return argument

        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
        read_each(reading)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        reading.attributes = {} if attributes is None else dict(attributes.data)
        parts = reading.parts()
        resolved = [a.resolve(t) for a, t in zip(arguments, reading.operand_types, strict=True)]
        regions = []
        for keyword in ("cond", "do"):
            parser.parse_keyword(keyword)
            regions.append(parser.parse_region(resolved))
        return {**parts, "regions": regions}
