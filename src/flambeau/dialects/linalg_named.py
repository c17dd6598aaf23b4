"""linalg's named ops: one class each, made on demand, with the body that their generic form needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Self

from xdsl.dialects import arith
from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, ArrayAttr, DenseArrayBase, i32
from xdsl.dialects.linalg.ops import YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

PURE: frozenset[Any] = frozenset({Pure()})


class NamedOp(Operation):
    """`linalg.matmul ins(%a, %b : T, T) outs(%c : T) -> T`; the region is implied by the name when printed so."""

    traits: ClassVar[Any] = PURE

    @property
    def input_count(self) -> int:
        segments = self.properties["operandSegmentSizes"]
        assert isinstance(segments, DenseArrayBase)
        return int(segments.get_values()[0])

    def print(self, printer: Printer) -> None:
        implied = ("operandSegmentSizes", "indexing_maps")
        attributes = {k: v for k, v in {**self.properties, **self.attributes}.items() if k not in implied}
        printer.print_op_attributes(attributes)
        print_groups(printer, self.operands, self.input_count)
        if self.results:
            printer.print_string(" -> ")
            printer.print_list(self.result_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        ins, outs = (parse_group(parser, keyword) for keyword in ("ins", "outs"))
        results: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            results = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        operands = [*ins, *outs]
        return cls.create(
            operands=operands,
            result_types=results,
            regions=[implied_region(cls.name, [getattr(o.type, "element_type", o.type) for o in operands])],
            properties={
                **attributes,
                **implied_properties(cls.name.removeprefix("linalg.")),
                "operandSegmentSizes": segments(len(ins), len(outs)),
            },
        )


def print_groups(printer: Printer, operands: Sequence[SSAValue], inputs: int) -> None:
    """Print ` ins(%a : T) outs(%b : U)`, without a group that is empty; the first `inputs` operands are the inputs."""
    for keyword, group in (("ins", operands[:inputs]), ("outs", operands[inputs:])):
        if group:
            printer.print_string(f" {keyword}(")
            printer.print_list(group, printer.print_operand)
            printer.print_string(" : ")
            printer.print_list([o.type for o in group], printer.print_attribute)
            printer.print_string(")")


def parse_group(parser: Parser, keyword: str, optional: bool = False) -> list[SSAValue]:
    """Read a group of operands, `ins(%a : T)`; one that is optional and not there is empty."""
    if not (parser.parse_optional_keyword(keyword) if optional else parser.parse_keyword(keyword)):
        return []
    with parser.in_parens():
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return list(parser.resolve_operands(names, types, parser.pos))


@cache
def segments(*sizes: int) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i32, list(sizes))


def implied_region(name: str, types: Sequence[Attribute]) -> Region:
    """Build the body of a named op from the element types of its operands: the last is the accumulator."""
    block = Block(arg_types=types)
    accumulator = types[-1]
    family = "f" if isinstance(accumulator, AnyFloat) else "i"

    def apply(op: type[Operation], *operands: SSAValue) -> SSAValue:
        created = op.create(operands=operands, result_types=[accumulator], properties=_PROPERTIES.get(op, {}))
        block.add_op(created)
        return created.results[0]

    def widened(value: SSAValue) -> SSAValue:
        return value if value.type == accumulator else apply(_CASTS[family], value)

    *inputs, total = block.args
    if "pooling" in name:
        result = apply(_MAX[family] if name.endswith("max") else _ADD[family], total, widened(inputs[0]))
    else:
        result = apply(_ADD[family], total, apply(_MUL[family], widened(inputs[0]), widened(inputs[1])))
    block.add_op(YieldOp(result))
    return Region(block)


_ADD: dict[str, type[Operation]] = {"f": arith.AddfOp, "i": arith.AddiOp}
_MUL: dict[str, type[Operation]] = {"f": arith.MulfOp, "i": arith.MuliOp}
_MAX: dict[str, type[Operation]] = {"f": arith.MaximumfOp, "i": arith.MaxSIOp}
_CASTS: dict[str, type[Operation]] = {"f": arith.ExtFOp, "i": arith.ExtSIOp}
_FAST: dict[str, Attribute] = {"fastmath": arith.FastMathFlagsAttr("none")}
_FLAGS: dict[str, Attribute] = {"overflowFlags": arith.IntegerOverflowAttr("none")}
_PROPERTIES: dict[type[Operation], dict[str, Attribute]] = {
    arith.AddfOp: _FAST, arith.MulfOp: _FAST, arith.MaximumfOp: _FAST, arith.ExtFOp: _FAST,
    arith.AddiOp: _FLAGS, arith.MuliOp: _FLAGS,
}  # fmt: skip


def _maps(dims: int, *operands: tuple[int, ...]) -> ArrayAttr[Attribute]:
    return ArrayAttr(
        [AffineMapAttr(AffineMap(dims, 0, tuple(AffineExpr.dimension(d) for d in dims_))) for dims_ in operands]
    )


_IMPLIED: dict[str, dict[str, Attribute]] = {
    "matmul": {"indexing_maps": _maps(3, (0, 2), (2, 1), (0, 1))},
    "batch_matmul": {"indexing_maps": _maps(4, (0, 1, 3), (0, 3, 2), (0, 1, 2))},
}


def implied_properties(name: str) -> dict[str, Attribute]:
    """Return the properties that the pretty form leaves out but the generic form must have."""
    return _IMPLIED.get(name, {})


@cache
def named_op(name: str) -> type[NamedOp]:
    """Return the class of a named op, `matmul`."""
    return type(f"{name.title().replace('_', '')}Op", (NamedOp,), {"name": f"linalg.{name}"})


NAMES = (
    "matmul", "batch_matmul", "matvec", "vecmat", "dot",
    "conv_1d_ncw_fcw", "conv_2d_nchw_fchw", "conv_2d_nhwc_hwcf", "conv_3d_ncdhw_fcdhw", "conv_2d_ngchw_gfchw",
    "depthwise_conv_1d_ncw_cw", "depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc",
    "pooling_ncw_max", "pooling_nchw_max", "pooling_ncw_sum", "pooling_nchw_sum",
)  # fmt: skip
"""The named ops that the lowerings use."""
