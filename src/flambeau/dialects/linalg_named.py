"""linalg's named ops: one class each, made on demand, with the body that their generic form needs."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, i32
from xdsl.ir import Attribute, Operation, SSAValue
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
        n = self.input_count
        for keyword, operands in (("ins", self.operands[:n]), ("outs", self.operands[n:])):
            if not operands:
                continue
            printer.print_string(f" {keyword}(")
            printer.print_list(operands, printer.print_operand)
            printer.print_string(" : ")
            printer.print_list([o.type for o in operands], printer.print_attribute)
            printer.print_string(")")
        if self.results:
            printer.print_string(" -> ")
            printer.print_list(self.result_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        groups: list[list[SSAValue]] = []
        for keyword in ("ins", "outs"):
            parser.parse_keyword(keyword)
            with parser.in_parens():
                names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
                parser.parse_punctuation(":")
                types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
                groups.append(list(parser.resolve_operands(names, types, parser.pos)))
        results: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            results = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.create(
            operands=[*groups[0], *groups[1]],
            result_types=results,
            properties={
                **attributes,
                **implied_properties(cls.name.removeprefix("linalg.")),
                "operandSegmentSizes": segments(len(groups[0]), len(groups[1])),
            },
        )


@cache
def segments(*sizes: int) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i32, list(sizes))


def _maps(dims: int, *operands: tuple[int, ...]) -> ArrayAttr[Attribute]:
    return ArrayAttr(
        [AffineMapAttr(AffineMap(dims, 0, tuple(AffineExpr.dimension(d) for d in dims_))) for dims_ in operands]
    )


_IMPLIED: dict[str, dict[str, Attribute]] = {
    "matmul": {"indexing_maps": _maps(3, (0, 2), (2, 1), (0, 1))},
    "batch_matmul": {"indexing_maps": _maps(4, (0, 1, 3), (0, 3, 2), (0, 1, 2))},
}


def implied_properties(name: str) -> dict[str, Attribute]:
    """Properties that the pretty form leaves out but the generic form must have: IREE crashes without them."""
    return _IMPLIED.get(name, {})


@cache
def named_op(name: str) -> type[NamedOp]:
    """The class of a named op, `matmul`."""
    return type(f"{name.title().replace('_', '')}Op", (NamedOp,), {"name": f"linalg.{name}"})


NAMES = (
    "matmul", "batch_matmul", "matvec", "vecmat", "dot",
    "conv_1d_ncw_fcw", "conv_2d_nchw_fchw", "conv_2d_nhwc_hwcf", "conv_3d_ncdhw_fcdhw", "conv_2d_ngchw_gfchw",
    "depthwise_conv_1d_ncw_cw", "depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc",
    "pooling_ncw_max", "pooling_nchw_max", "pooling_ncw_sum", "pooling_nchw_sum",
)  # fmt: skip
"""The named ops that the lowerings use."""
