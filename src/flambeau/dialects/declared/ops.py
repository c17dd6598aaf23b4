"""Ops declared by one line of a table each: what they take, which properties they have, what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Data, Operation, TypeAttribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

if TYPE_CHECKING:
    from flambeau.dialects.declared.forms import Form

PURE: Any = frozenset({Pure()})
TERMINATOR: Any = frozenset({IsTerminator(), Pure()})
REGIONS: Any = frozenset({RecursiveMemoryEffect()})
"""Of ops that do what their regions do."""
EFFECTS: Any = frozenset()
"""Of ops that may do anything: they are neither dropped nor merged."""

Shape = tuple[int | None, ...]
"""The sizes of a tensor's dimensions; None for one that only the run time knows."""
Kind = Callable[[Attribute], bool]
"""Whether an attribute may be the value of a property."""


def _integer(type_: Attribute) -> Kind:
    return lambda a: isinstance(a, IntegerAttr) and a.type == type_


def _array(type_: Attribute) -> Kind:
    return lambda a: isinstance(a, DenseArrayBase) and a.elt_type == type_


def instance(*classes: type[Attribute]) -> Kind:
    """Accept attributes of these classes."""
    return lambda a: isinstance(a, classes)


KINDS: dict[str, Kind] = {
    "i64": _integer(i64),
    "i32": _integer(i32),
    "flag": _integer(i1),
    "i64s": _array(i64),
    "i32s": _array(i32),
    "flags": _array(i1),
    "elements": instance(DenseIntOrFPElementsAttr, DenseResourceAttr),
    "number": instance(IntegerAttr, FloatAttr),
    "str": instance(StringAttr),
    "symbol": instance(SymbolRefAttr),
    "type": instance(TypeAttribute),
    "list": instance(ArrayAttr),
    "dict": instance(DictionaryAttr),
    "any": instance(Attribute),
}
"""Kinds of properties by their names in the tables; a dialect adds its enumerations."""


@dataclass(frozen=True, eq=False)
class Row:
    """The declaration of one op."""

    operands: tuple[str, ...]
    """Names of the operands; `inputs*` stands for any number of them."""
    properties: Mapping[str, tuple[str, bool]]
    """Name to kind, and whether the op must have it."""
    results: int | None
    """How many; None for any number."""
    regions: int | None
    checks: tuple[Callable[[Any], None], ...]
    form: Form | None
    """How people read the op; in generic form without."""
    traits: Any


def row(
    operands: str = "",
    properties: str = "",
    *checks: Callable[[Any], None],
    results: int | None = 1,
    regions: int | None = 0,
    form: Form | None = None,
    traits: Any = PURE,
) -> Row:
    """Parse a line of a table: `row("lhs rhs", "axis: i32, nan_mode?: nan_mode", check)`."""
    declared: dict[str, tuple[str, bool]] = {}
    for part in filter(None, properties.split(", ")):
        name, kind = part.split(": ")
        declared[name.removesuffix("?")] = (kind, not name.endswith("?"))
    return Row(tuple(operands.split()), declared, results, regions, checks, form, traits)


class DeclaredOp(Operation):
    """An op of a table. It has no pretty form."""

    traits: ClassVar[Any] = PURE
    row: ClassVar[Row]
    kinds: ClassVar[Mapping[str, Kind]]

    def __post_init__(self) -> None:
        # Older text has the properties among the attributes.
        if self.attributes:
            for name in self.row.properties:
                if name in self.attributes:
                    self.properties[name] = self.attributes.pop(name)

    def wrong(self, message: str) -> NoReturn:
        """Refuse this op."""
        raise VerifyException(f"{self.name}: {message}")

    def complaint(self) -> str | None:
        """Say what is wrong with the number of operands, results or regions or with the properties; None if nothing."""
        declared = self.row
        fixed = [name for name in declared.operands if not name.endswith("*")]
        count = len(self._operands)
        if count != len(fixed) if len(fixed) == len(declared.operands) else count < len(fixed):
            names = ", ".join(declared.operands) or "none"
            return f"takes {len(fixed)} operands ({names}), got {count}"
        for what, wanted, got in (
            ("result", declared.results, len(self.results)),
            ("region", declared.regions, len(self.regions)),
        ):
            if wanted is not None and wanted != got:
                return f"has {wanted} {what}{'' if wanted == 1 else 's'}, got {got}"
        for name, (kind, required) in declared.properties.items():
            value = self.properties.get(name)
            if value is None:
                if required:
                    return f"needs a property '{name}'"
            elif not self.kinds[kind](value):
                return f"the property '{name}' is not of the kind {kind}: {value}"
        for name in self.properties:
            if name not in declared.properties:
                return f"has no property '{name}'"
        if any(len(region.blocks) != 1 for region in self.regions):
            return "each region is one block"
        return None

    def verify_(self) -> None:
        complaint = self.complaint()
        if complaint is not None:
            self.wrong(complaint)
        for check in self.row.checks:
            check(self)

    # --- What the checks ask for ---

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Return the numbers of an array property; None where it is left out."""
        value = self.properties.get(name)
        return tuple(int(v) for v in value.get_values()) if isinstance(value, DenseArrayBase) else None

    def integer(self, name: str, default: int = 0) -> int:
        """Return the number of an integer property, or `default` where it is left out."""
        value = self.properties.get(name)
        return int(value.value.data) if isinstance(value, IntegerAttr) else default

    def word(self, name: str) -> str:
        """Return the text of a string or an enumeration."""
        value = self.properties[name]
        assert isinstance(value, Data)
        return str(value.data)

    def tensor(self, index: int) -> TensorType[Attribute]:
        """Return the type of an operand; fail if it is no tensor."""
        type_ = self._operands[index].type
        if not isinstance(type_, TensorType):
            self.wrong(f"operand {index} is a tensor, got {type_}")
        return type_

    def result_tensor(self, index: int = 0) -> TensorType[Attribute]:
        """Return the type of a result; fail if it is no tensor."""
        type_ = self.results[index].type
        if not isinstance(type_, TensorType):
            self.wrong(f"result {index} is a tensor, got {type_}")
        return type_

    def expect_shape(self, wanted: Iterable[int | None], index: int = 0) -> None:
        """Fail when a result cannot have this shape."""
        wanted = tuple(wanted)
        got = self.result_tensor(index)
        if not fits(wanted, shape(got)):
            self.wrong(f"the result has the shape {show(wanted)}, got {got}")

    def expect_element(self, wanted: Attribute, index: int = 0) -> None:
        """Fail when a result has another element type."""
        got = self.result_tensor(index)
        if got.element_type != wanted:
            self.wrong(f"the elements of the result are {wanted}, got {got}")

    def expect_dimension(self, dimension: int, rank: int) -> None:
        """Fail for a dimension that a tensor of this rank does not have."""
        if not 0 <= dimension < rank:
            self.wrong(f"dimension {dimension} is out of range for rank {rank}")

    def expect_dimensions(self, dimensions: Iterable[int], rank: int) -> None:
        """Fail for dimensions that repeat or do not exist."""
        dimensions = tuple(dimensions)
        for dimension in dimensions:
            self.expect_dimension(dimension, rank)
        if len(set(dimensions)) != len(dimensions):
            self.wrong(f"dimensions {list(dimensions)} repeat")

    def expect_length(self, name: str, length: int) -> None:
        """Fail when an array property is present and does not have this many numbers."""
        values = self.ints(name)
        if values is not None and len(values) != length:
            self.wrong(f"'{name}' has {length} numbers, got {list(values)}")

    def expect_terminator(self, region: int, types: Iterable[Attribute]) -> None:
        """Fail when a region's terminator does not yield values of these types."""
        wanted = tuple(types)
        last = self.regions[region].blocks[0].last_op
        got = () if last is None else tuple(last.operand_types)
        if len(got) != len(wanted) or not all(map(agree, wanted, got)):
            self.wrong(f"region {region} gives {_types(wanted)}, got {_types(got)}")

    def expect_arguments(self, region: int, types: Iterable[Attribute]) -> None:
        """Fail when a region's block does not take arguments of these types."""
        wanted = tuple(types)
        got = tuple(argument.type for argument in self.regions[region].blocks[0].args)
        if len(got) != len(wanted) or not all(map(agree, wanted, got)):
            self.wrong(f"region {region} takes {_types(wanted)}, got {_types(got)}")


class PrettyOp(DeclaredOp):
    """An op of a table that has a form for people."""

    def print(self, printer: Printer) -> None:
        form = self.row.form
        # What is printed may be an op that was refused.
        if form is not None and self.complaint() is None and form.shows(self):
            form.print(self, printer)
        else:
            printer.print_op_with_default_format(self)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        assert cls.row.form is not None
        return cls.create(**cls.row.form.parse(cls, parser))


def declare(dialect: str, table: Mapping[str, Row], kinds: Mapping[str, Kind]) -> Callable[[str], type[DeclaredOp]]:
    """Return a function from the name of an op in a table to its class, made when first asked for."""

    @cache
    def op(name: str) -> type[DeclaredOp]:
        found = table.get(name)
        if found is None:
            raise ValueError(f"{dialect} has no op '{name}'")
        base = DeclaredOp if found.form is None else PrettyOp
        members = {
            "__module__": f"flambeau.dialects.{dialect}",
            "name": f"{dialect}.{name}",
            "row": found,
            "kinds": kinds,
            "traits": found.traits,
        }
        return type(f"{name.title().replace('_', '')}Op", (base,), members)

    return op


def elements_type(value: Attribute) -> Attribute:
    """Return the type of a constant's value."""
    if isinstance(value, DenseIntOrFPElementsAttr):
        return value.get_type()
    assert isinstance(value, DenseResourceAttr)
    return value.type


# --- Types ---


def shape(type_: Attribute) -> Shape | None:
    """Return a tensor's shape, None for dynamic sizes; None where the rank is unknown."""
    if not isinstance(type_, TensorType):
        return None
    return tuple(None if d == DYNAMIC_INDEX else d for d in type_.get_shape())


def show(shape_: Iterable[int | None]) -> str:
    """Format a shape: `[2, ?]`."""
    return f"[{', '.join('?' if d is None else str(d) for d in shape_)}]"


def fits(a: Shape | None, b: Shape | None) -> bool:
    """Tell whether two shapes can be equal at run time; None is an unknown size or rank."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def element(type_: Attribute) -> Attribute:
    """Return the element type of a tensor; other types as they are."""
    return type_.element_type if isinstance(type_, TensorType) else type_


def agree(a: Attribute, b: Attribute) -> bool:
    """Tell whether two types can be equal at run time."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return bool(a.element_type == b.element_type) and fits(shape(a), shape(b))
    return a == b


def category(type_: Attribute) -> str:
    """Classify an element type by one letter: b(ool), i(nteger), f(loat), c(omplex); `?` for the rest.

    The integers of these dialects are signless or unsigned.
    """
    if type_ == i1:
        return "b"
    if isinstance(type_, IntegerType):
        return "?" if type_.signedness.data is Signedness.SIGNED else "i"
    if isinstance(type_, AnyFloat):
        return "f"
    return "c" if isinstance(type_, ComplexType) else "?"


def _types(types: tuple[Attribute, ...]) -> str:
    return f"({', '.join(map(str, types))})"
