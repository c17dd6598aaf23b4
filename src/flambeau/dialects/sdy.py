"""Shardy: how tensors of StableHLO are laid out over a mesh of devices, as XLA's partitioner takes it.

    sdy.mesh @mesh = <["data"=2, "tensor"=4]>
    %w {sdy.sharding = #sdy.sharding<@mesh, [{"tensor"}, {}]>}
    %y = sdy.sharding_constraint %x <@mesh, [{?}, {"tensor", ?}]> : tensor<8x16xf32>
    %z = sdy.manual_computation(%x) in_shardings=[..] out_shardings=[..] manual_axes={"tensor"} (%part) {...}

A dim is split along the axes in its braces, the first of them outermost. `?` leaves it open to be split further. What
is in a manual computation runs on each device, on the parts that the device has, and exchanges tensors by collectives.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Data, Dialect, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, RecursiveMemoryEffect, SymbolOpInterface

ATTRIBUTE = "sdy.sharding"
"""The name under which an argument, a result or a constant has its sharding."""


@irdl_attr_definition
class MeshAttr(Data[tuple[tuple[str, int], ...]]):
    """The axes of a mesh and their sizes."""

    name = "sdy.mesh"

    def print_parameter(self, printer: Printer) -> None:
        axes = ", ".join(f'"{axis}"={size}' for axis, size in self.data)
        printer.print_string(f"<[{axes}]>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, int], ...]:
        with parser.in_angle_brackets():
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_axis(parser)))


def _parse_axis(parser: AttrParser) -> tuple[str, int]:
    axis = parser.parse_str_literal()
    parser.parse_punctuation("=")
    return axis, parser.parse_integer(allow_negative=False)


@dataclass(frozen=True)
class DimSharding:
    """How one dim is split."""

    axes: tuple[str, ...] = ()
    is_open: bool = False
    """Whether the partitioner may split it further."""

    def __str__(self) -> str:
        return "{" + ", ".join([*(f'"{axis}"' for axis in self.axes), *["?"] * self.is_open]) + "}"


@dataclass(frozen=True)
class Sharding:
    """How a tensor is laid out over a mesh."""

    dims: tuple[DimSharding, ...]
    replicated: tuple[str, ...] = ()
    """Axes along which the tensor must not be split."""
    mesh: str = "mesh"

    def __str__(self) -> str:
        axes = ", ".join(f'"{axis}"' for axis in self.replicated)
        dims = ", ".join(map(str, self.dims))
        return f"<@{self.mesh}, [{dims}]{f', replicated={{{axes}}}' if axes else ''}>"

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        """The axes that each dim is split along."""
        return tuple(dim.axes for dim in self.dims)


def open_sharding(rank: int, axis: str, dim: int | None) -> Sharding:
    """Make the sharding of a tensor that is split by a dim along an axis, or whole along it; all else is left open."""
    if dim is None:
        return Sharding((DimSharding((), True),) * rank, (axis,))
    return Sharding(tuple(DimSharding((axis,) if i == dim % rank else (), True) for i in range(rank)))


@irdl_attr_definition
class ShardingAttr(Data[Sharding]):
    """The sharding of one tensor."""

    name = "sdy.sharding"

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(str(self.data))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Sharding:
        return _parse_sharding(parser)


@irdl_attr_definition
class ShardingPerValueAttr(Data[tuple[Sharding, ...]]):
    """The shardings of the results of an op."""

    name = "sdy.sharding_per_value"

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<[{', '.join(map(str, self.data))}]>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Sharding, ...]:
        with parser.in_angle_brackets():
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_sharding(parser)))


@irdl_attr_definition
class ManualAxesAttr(Data[tuple[str, ...]], SpacedOpaqueSyntaxAttribute):
    """The axes of a mesh along which a computation is written for one device: `#sdy<manual_axes {"x", "y"}>`."""

    name = "sdy.manual_axes"

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string("{" + ", ".join(f'"{axis}"' for axis in self.data) + "}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, ...]:
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.BRACES, parser.parse_str_literal))


def _parse_sharding(parser: AttrParser) -> Sharding:
    with parser.in_angle_brackets():
        mesh = parser.parse_symbol_name().data
        parser.parse_punctuation(",")
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dim(parser))
        replicated: tuple[str, ...] = ()
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("replicated")
            parser.parse_punctuation("=")
            replicated = _parse_dim(parser).axes
    return Sharding(tuple(dims), replicated, mesh)


def _parse_dim(parser: AttrParser) -> DimSharding:
    def part() -> str | None:
        return None if parser.parse_optional_punctuation("?") is not None else parser.parse_str_literal()

    parts = parser.parse_comma_separated_list(parser.Delimiter.BRACES, part)
    return DimSharding(tuple(p for p in parts if p is not None), None in parts)


@irdl_op_definition
class MeshOp(IRDLOperation):
    """Declares a mesh of devices."""

    name = "sdy.mesh"
    sym_name = prop_def(StringAttr)
    mesh = prop_def(MeshAttr)
    traits = traits_def(SymbolOpInterface())


@irdl_op_definition
class ShardingConstraintOp(IRDLOperation):
    """Gives its operand, laid out as it says."""

    name = "sdy.sharding_constraint"
    input = operand_def()
    sharding = prop_def(ShardingAttr)
    result = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ManualComputationOp(IRDLOperation):
    """Runs its region on each device, on the parts of the operands that the device has; the results are put together
    of what the devices give."""

    name = "sdy.manual_computation"
    tensors = var_operand_def()
    in_shardings = prop_def(ShardingPerValueAttr)
    out_shardings = prop_def(ShardingPerValueAttr)
    manual_axes = prop_def(ManualAxesAttr)
    body = region_def("single_block")
    outputs = var_result_def()
    traits = traits_def(IsolatedFromAbove(), RecursiveMemoryEffect())


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the region of a manual computation."""

    name = "sdy.return"
    tensors = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


Sdy = Dialect(
    "sdy",
    [MeshOp, ShardingConstraintOp, ManualComputationOp, ReturnOp],
    [MeshAttr, ShardingAttr, ShardingPerValueAttr, ManualAxesAttr],
)
