"""MLIR text: the pretty form for people, and a fast generic form for the border to real compilers."""

from __future__ import annotations

from io import StringIO

from xdsl.dialects.builtin import ModuleOp, UnregisteredOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.printer import Printer


def pretty_text(module: ModuleOp, locations: bool = False) -> str:
    """Print the module in pretty form, as people read it."""
    out = StringIO()
    Printer(out, print_debuginfo=locations).print_op(module)
    return out.getvalue() + "\n"


def generic_text(module: ModuleOp) -> str:
    """Print the module in generic form, which every MLIR reads."""
    return _GenericPrinter().module(module)


class _GenericPrinter:
    """xDSL's printer spends most of its time on types that it has printed before; this one remembers them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[SSAValue, str] = {}
        self.blocks: dict[Block, str] = {}
        self.attributes: dict[Attribute, str] = {}
        self.dictionaries: dict[int, str] = {}

    def module(self, module: ModuleOp) -> str:
        self.op(module, "")
        return "\n".join(self.lines) + "\n"

    def attribute(self, attribute: Attribute) -> str:
        text = self.attributes.get(attribute)
        if text is None:
            out = StringIO()
            Printer(out, print_generic_format=True).print_attribute(attribute)
            text = self.attributes[attribute] = out.getvalue()
        return text

    def name(self, value: SSAValue) -> str:
        name = self.names.get(value)
        if name is None:
            name = self.names[value] = f"%{len(self.names)}"
        return name

    def dictionary(self, attributes: dict[str, Attribute]) -> str:
        return ", ".join(f"{k} = {self.attribute(v)}" for k, v in attributes.items())

    def op(self, op: Operation, indent: str) -> None:
        results = ", ".join(map(self.name, op.results))
        head = f"{indent}{results} = " if results else indent
        op_name = op.op_name.data if isinstance(op, UnregisteredOp) else op.name
        head += f'"{op_name}"({", ".join(map(self.name, op.operands))})'
        if op.successors:
            head += "[" + ", ".join(self.block_name(b) for b in op.successors) + "]"
        if op.properties:
            head += f" <{{{self.dictionary(op.properties)}}}>"
        tail = ""
        if op.attributes and not isinstance(op, UnregisteredOp):
            tail = f" {{{self.dictionary(op.attributes)}}}"
        operand_types = ", ".join(self.attribute(o.type) for o in op.operands)
        result_types = ", ".join(self.attribute(r.type) for r in op.results)
        if len(op.results) != 1:
            result_types = f"({result_types})"
        tail += f" : ({operand_types}) -> {result_types}"
        if not op.regions:
            self.lines.append(head + tail)
            return
        self.lines.append(head + " ({")
        for i, region in enumerate(op.regions):
            if i:
                self.lines.append(f"{indent}}}, {{")
            self.region(region, indent)
        self.lines.append(f"{indent}}}){tail}")

    def block_name(self, block: Block) -> str:
        return self.blocks.setdefault(block, f"^bb{len(self.blocks)}")

    def region(self, region: Region, indent: str) -> None:
        for i, block in enumerate(region.blocks):
            if i or block.args:
                args = ", ".join(f"{self.name(a)}: {self.attribute(a.type)}" for a in block.args)
                self.lines.append(f"{indent}{self.block_name(block)}({args}):")
            op = block.first_op
            while op is not None:
                self.op(op, indent + " ")
                op = op.next_op
