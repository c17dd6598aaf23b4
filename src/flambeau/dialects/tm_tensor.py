"""The tm_tensor dialect: torch-mlir's ops for sorts, scans, scatters and attention, beside linalg on tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, Dialect
from xdsl.parser import Parser
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import flag, integer
from flambeau.dialects.declared.forms import Form, Parts, Template
from flambeau.dialects.declared.ops import (
    KINDS,
    REGIONS,
    TERMINATOR,
    DeclaredOp,
    agree,
    declare,
    element,
    fits,
    row,
    shape,
)
from flambeau.dialects.linalg_named import parse_group, print_groups, segments

_SEGMENTS, _FLAGS = "operandSegmentSizes", ("inclusive", "unique_indices")


class InsOutsForm(Form):
    """`tm_tensor.sort dimension(1) outs(%x : T) {...} -> T`: some properties as words, then operands and the region."""

    def __init__(self, *words: str, attributes_last: bool = False) -> None:
        self.words, self.attributes_last = words, attributes_last

    def print(self, op: DeclaredOp, printer: Printer) -> None:
        shown = {k: v for k, v in {**op.properties, **op.attributes}.items() if k not in (_SEGMENTS, *self.words)}
        printer.print_op_attributes({} if self.attributes_last else shown)
        for word in self.words:
            number = op.integer(word)
            printer.print_string(f" {word}({str(bool(number)).lower() if word in _FLAGS else number})")
        printer.print_op_attributes(shown if self.attributes_last else {})
        print_groups(printer, op.operands, _counts(op)[0])
        if op.regions:
            printer.print_string(" ")
            printer.print_region(op.regions[0])
        printer.print_string(" -> ")
        printer.print_list(op.result_types, printer.print_attribute)

    def parse(self, op: type[DeclaredOp], parser: Parser) -> Parts:
        attributes = parser.parse_optional_attr_dict()
        properties: dict[str, Attribute] = {}
        for word in self.words:
            parser.parse_keyword(word)
            with parser.in_parens():
                read = flag(parser.parse_boolean()) if word in _FLAGS else integer(parser.parse_integer())
                properties[word] = read
        attributes |= parser.parse_optional_attr_dict()
        ins, outs = parse_group(parser, "ins", optional=True), parse_group(parser, "outs")
        regions = [parser.parse_region()] if op.row.regions else []
        parser.parse_punctuation("->")
        return {
            "operands": [*ins, *outs],
            "result_types": parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type),
            "properties": {**properties, _SEGMENTS: segments(len(ins), len(outs))},
            "attributes": attributes,
            "regions": regions,
        }


def _counts(op: DeclaredOp) -> tuple[int, ...]:
    """Return how many of the operands are inputs, and how many are outputs."""
    return op.ints(_SEGMENTS) or (0, 0)


# --- What must hold ---


def _takes(*inputs: int, outputs: int | None = None) -> Callable[[DeclaredOp], None]:
    """Make the check of the number of inputs (one of `inputs`) and outputs, whose types the results have.

    Outputs may be any number by default.
    """

    def check(op: DeclaredOp) -> None:
        got = _counts(op)
        if len(got) != 2 or sum(got) != len(op.operands) or got[0] not in inputs or got[1] != (outputs or got[1]):
            wanted = f"{' or '.join(map(str, inputs))} inputs and {outputs or 'some'} outputs"
            op.wrong(f"takes {wanted}, got {list(got)} of {len(op.operands)} operands")
        outs = op.operand_types[got[0] :]
        if len(outs) != len(op.results) or not all(map(agree, outs, op.result_types)):
            op.wrong("the results have the types of the outputs")

    return check


def _body(op: DeclaredOp, takes: Iterable[Attribute], gives: Attribute) -> None:
    """Check that the region takes values of these types and yields one."""
    op.expect_arguments(0, takes)
    op.expect_terminator(0, [gives])


def _dimension(op: DeclaredOp) -> None:
    op.expect_dimension(op.integer("dimension"), len(shape(op.tensor(0)) or ()))


def _sort(op: DeclaredOp) -> None:
    """Check that all outputs have one shape, and that the region compares two elements of each."""
    for index in range(1, len(op.operands)):
        if shape(op.tensor(index)) != shape(op.tensor(0)):
            op.wrong(f"the outputs have one shape, got {op.tensor(0)} and {op.tensor(index)}")
    _body(op, [element(type_) for type_ in op.operand_types for _ in range(2)], i1)


def _scan(op: DeclaredOp) -> None:
    """Check that output and input have one type, and that the accumulator lacks the scanned dimension."""
    type_, sizes = element(op.tensor(0)), list(shape(op.tensor(0)) or ())
    op.expect_shape(sizes)
    del sizes[op.integer("dimension")]
    op.expect_shape(sizes, 1)
    for index in range(2):
        op.expect_element(type_, index)
    _body(op, [type_, type_], type_)


def _scatter(op: DeclaredOp) -> None:
    """Check that each update has an index of fixed length and covers the dims that are not indexed."""
    updates, indices, original = (shape(op.tensor(i)) or () for i in range(3))
    dims = op.ints("dimension_map") or ()
    op.expect_dimensions(dims, len(original))
    if len(indices) != 2 or indices[1] != len(dims) or not fits(updates[:1], indices[:1]):
        op.wrong(f"there are {len(dims)} indices for each update, got {op.tensor(1)} for {op.tensor(0)}")
    if not len(original) - len(dims) <= len(updates) - 1 <= len(original):
        op.wrong(f"an update covers the dimensions without an index, got {op.tensor(0)} for {op.tensor(2)}")
    _body(op, [element(op.tensor(2))] * 2, element(op.tensor(2)))


def _topk(op: DeclaredOp) -> None:
    """Check that the region compares two elements and yields whether the first precedes the second."""
    type_ = element(op.tensor(0))
    op.expect_element(type_)
    _body(op, [type_, type_], i1)


def _attention(op: DeclaredOp) -> None:
    """Check that query, key, value and mask agree in batch dims, width of a head and number of keys."""
    query, key, value, *rest = shapes = [shape(op.tensor(i)) or () for i in range(len(op.operands))]
    if min(map(len, shapes)) < 2:
        op.wrong("takes tensors of at least two dimensions")
    *batch, length, width = query
    mask = rest[0] if _counts(op)[0] == 4 else (*batch, length, key[-2])
    wanted = [(*batch, key[-2], width), (*batch, key[-2], value[-1]), (*batch, length, key[-2])]
    if not all(map(fits, wanted, (key, value, mask))):
        op.wrong(f"query, key, value and mask do not fit: {', '.join(map(str, op.operand_types))}")
    op.expect_shape((*batch, length, value[-1]))


TABLE = {
    "scan": row(
        "operands*", f"dimension: i64, inclusive: flag, {_SEGMENTS}: i32s",
        _takes(1, outputs=2), _dimension, _scan,
        results=None, regions=1, form=InsOutsForm("dimension", "inclusive", attributes_last=True), traits=REGIONS,
    ),
    "scatter": row(
        "operands*", f"dimension_map: i64s, unique_indices: flag, {_SEGMENTS}: i32s",
        _takes(2, outputs=1), _scatter,
        results=None, regions=1, form=InsOutsForm("unique_indices"), traits=REGIONS,
    ),
    "sort": row(
        "operands*", f"dimension: i64, {_SEGMENTS}: i32s", _takes(0), _dimension, _sort,
        results=None, regions=1, form=InsOutsForm("dimension"), traits=REGIONS,
    ),
    "topk": row(
        "operands*", f"dimension: i64, {_SEGMENTS}: i32s", _takes(1, 2, outputs=2), _dimension, _topk,
        results=None, regions=1, form=InsOutsForm("dimension"), traits=REGIONS,
    ),
    "attention": row(
        "operands*", f"{_SEGMENTS}: i32s", _takes(3, 4, outputs=1), _attention,
        results=None, form=InsOutsForm(),
    ),
    "yield": row("operands*", "", results=0, form=Template("{operands}{attrs}{each}"), traits=TERMINATOR),
}  # fmt: skip

op = declare("tm_tensor", TABLE, KINDS)
"""The class of an op: `op("sort")`; ValueError when there is none."""

TmTensor = Dialect("tm_tensor", [op(name) for name in TABLE])
