"""What all torch ops share: the common assembly, the argument check, memory effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue, TypeAttribute
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.schema import Argument, Schema
from flambeau.dialects.torch.types import (
    AnyType,
    BoolType,
    DeviceType,
    DictType,
    FloatType,
    GeneratorType,
    IntType,
    LinearParamsType,
    ListType,
    NnModuleType,
    NoneType,
    NonValueTensorType,
    NumberType,
    OptionalType,
    StrType,
    TensorType,
    TupleType,
    UnionType,
)

_READ = frozenset({EffectInstance(MemoryEffectKind.READ)})
_NO_EFFECTS: frozenset[EffectInstance] = frozenset()


@cache
def is_mutable_object(type_: Attribute) -> bool:
    """Tell whether a value of this type is, or holds, something mutable: a tensor, list, dictionary or module."""
    if isinstance(type_, TupleType | OptionalType | UnionType):
        return any(map(is_mutable_object, type_.data))
    return isinstance(type_, NonValueTensorType | ListType | DictType | NnModuleType | AnyType)


class ObjectEffects(MemoryEffect):
    """The effects of an op that writes nothing, read off its types.

    Reading a mutable operand is a read. A result that can be written later is a fresh object each time: it may be
    dropped when nobody uses it, but two of them are not one. On values, the op has no effects.
    """

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        fresh = {
            EffectInstance(MemoryEffectKind.ALLOC, result)
            for result in op.results
            if is_mutable_object(result.type) and not _is_only_read(result)
        }
        if fresh:
            return fresh | _READ
        # A list that nobody writes to is as good as a tuple, and nearly all lists are such.
        reads = any(is_mutable_object(o.type) and not _is_only_read(o) for o in op._operands)
        return _READ if reads else _NO_EFFECTS


def _is_only_read(value: SSAValue) -> bool:
    """Tell whether a list is used only as an argument of registry ops that do not mutate it."""
    if not isinstance(value.type, ListType) or is_mutable_object(value.type.element_type):
        return False
    if not isinstance(value.owner, TorchOp):
        return False
    return all(
        isinstance(use.operation, TorchOp) and (s := use.operation.schema) is not None and not s.is_mutable
        for use in value.uses
    )


class RandomEffects(MemoryEffect):
    """The effects of an op that draws random numbers: unused draws may go, but no two are one."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results} | _READ


PURE: Any = frozenset({Pure()})
OBJECT_EFFECTS: Any = frozenset({ObjectEffects()})
RANDOM_EFFECTS: Any = frozenset({RandomEffects()})
NO_TRAITS: Any = frozenset()


class TorchOp(Operation):
    """Base of all torch ops: `torch.aten.x %a, %b : T, T -> T`."""

    traits: ClassVar[Any] = NO_TRAITS
    schema: Schema | None = None
    """PyTorch's declaration of the op; None for structural ops."""
    overload: str = ""
    """The op's name without its dialect: `aten.add.Tensor`. Rules are found by it."""
    property_names: ClassVar[tuple[str, ...]] = ()
    """The attributes that belong to the op's meaning. Wherever the text gives them, they end up in `properties`."""

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "overload" not in vars(cls):
            cls.overload = cls.name.partition(".")[2]

    def __post_init__(self) -> None:
        if self.attributes:
            for name in self.property_names:
                if name in self.attributes:
                    self.properties[name] = self.attributes.pop(name)

    def print(self, printer: Printer) -> None:
        print_operands(printer, self.operands)
        print_attributes(printer, {**self.properties, **self.attributes})
        if self.operands:
            printer.print_string(" : ")
            print_types(printer, self.operand_types)
        if self.results:
            printer.print_string(" -> ")
            print_types(printer, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parse_operands(parser)
        attributes = parser.parse_optional_attr_dict()
        operands = parse_typed(parser, unresolved)
        results = parse_types(parser) if parser.parse_optional_punctuation("->") is not None else []
        return cls.create(operands=operands, result_types=results, attributes=attributes)

    def verify_(self) -> None:
        s = self.schema
        if s is None or s.is_vararg or s.is_varret:
            return
        if len(self.operands) != len(s.arguments):
            raise VerifyException(f"{self.name} takes {len(s.arguments)} operands, got {len(self.operands)}")
        if len(self.results) != len(s.returns):
            raise VerifyException(f"{self.name} has {len(s.returns)} results, got {len(self.results)}")
        for operand, argument, accepts in zip(self._operands, s.arguments, _argument_checks(s), strict=True):
            if accepts is not None and not accepts(operand.type):
                raise VerifyException(
                    f"{self.name}: argument '{argument.name}' is {_declared(argument, s)}, got {operand.type}"
                )
        for result, declared, accepts in zip(self.results, s.returns, _result_checks(s), strict=True):
            if accepts is not None and not accepts(result.type):
                raise VerifyException(f"{self.name}: the result is {_declared(declared, s)}, got {result.type}")

    def require(self, name: str, kind: type[Attribute]) -> Any:
        """Return the property of this name; fail when it is missing or of another kind."""
        value = self.properties.get(name)
        if not isinstance(value, kind):
            raise VerifyException(f"{self.name} needs a property '{name}'")
        return value

    def expect_counts(self, operands: int, results: int, regions: int = 0) -> None:
        """Fail when the op does not have so many operands, results and regions."""
        for got, wanted, what in (
            (len(self.operands), operands, "operand"),
            (len(self.results), results, "result"),
            (len(self.regions), regions, "region"),
        ):
            if got != wanted:
                raise VerifyException(f"{self.name} has {wanted} {what}{'' if wanted == 1 else 's'}, got {got}")
        if any(len(region.blocks) != 1 for region in self.regions):
            raise VerifyException(f"each region of {self.name} is one block")


# --- What an argument may be ---

Check = Callable[[Attribute], bool]
Classes = tuple[type[Attribute], ...]

_CLASSES: dict[str, Classes] = {
    "Tensor": (TensorType,),
    "int": (IntType,),
    "float": (FloatType,),
    "bool": (BoolType,),
    "str": (StrType,),
    "Scalar": (IntType, FloatType, NumberType),
    "Device": (DeviceType,),
    "Generator": (GeneratorType,),
    "ScalarType": (IntType,),
    "Layout": (IntType,),
    "MemoryFormat": (IntType,),
    "__torch__.torch.classes.quantized.LinearPackedParamsBase": (LinearParamsType,),
}


@cache
def _argument_checks(s: Schema) -> tuple[Check | None, ...]:
    return tuple(_check(a, s) for a in s.arguments)


@cache
def _result_checks(s: Schema) -> tuple[Check | None, ...]:
    return tuple(_check(r, s, may_be_none=r.type.is_tensor and not r.type.is_list) for r in s.returns)


def _must_be_mutable(argument: Argument, s: Schema) -> bool:
    # An in-place op is of the world of mutable tensors, with all that it takes.
    written = argument.is_written
    return argument.type.is_tensor and (written or s.is_inplace_variant)


def _check(argument: Argument, s: Schema, may_be_none: bool = False) -> Check | None:
    """Make the test that a type must pass; None where any does. A gradient that is not asked for is a None tensor."""
    t = argument.type
    none: Classes = (NoneType, OptionalType) if t.is_optional or may_be_none else ()
    if t.base.startswith("Dict("):
        classes: Classes | None = (DictType,)
    elif _must_be_mutable(argument, s):
        classes = (NonValueTensorType,)
    else:
        classes = _CLASSES.get(t.base)
    if classes is None:
        lists: Classes = (ListType, *none)
        return (lambda type_: isinstance(type_, lists)) if t.is_list else None
    if not t.is_list:
        accepted: Classes = (*classes, *none)
        return lambda type_: isinstance(type_, accepted)
    elements: Classes = (*classes, NoneType, OptionalType) if t.elements_optional else classes
    return lambda type_: (
        isinstance(type_.element_type, elements) if isinstance(type_, ListType) else isinstance(type_, none)
    )


def _declared(argument: Argument, s: Schema) -> str:
    return f"{argument.type} and must be mutable" if _must_be_mutable(argument, s) else str(argument.type)


# --- Assembly ---


def print_operands(printer: Printer, operands: Sequence[SSAValue]) -> None:
    if operands:
        printer.print_string(" ")
        printer.print_list(operands, printer.print_operand)


def print_types(printer: Printer, types: Sequence[Attribute]) -> None:
    printer.print_list(types, printer.print_attribute)


def print_attributes(printer: Printer, attributes: dict[str, Attribute]) -> None:
    if attributes:
        printer.print_op_attributes(dict(sorted(attributes.items())))


def parse_operands(parser: Parser) -> list[UnresolvedOperand]:
    """Parse `%a, %b`, or nothing."""
    return (
        parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        or []
    )


def parse_types(parser: Parser) -> list[Attribute]:
    """Parse `T, U`, or nothing."""
    return parser.parse_optional_undelimited_comma_separated_list(parser.parse_optional_type, parser.parse_type) or []


def parse_typed(parser: Parser, unresolved: Sequence[UnresolvedOperand]) -> Sequence[SSAValue]:
    """Parse `: T, U` for operands that have been read."""
    types = parse_types(parser) if parser.parse_optional_punctuation(":") is not None else []
    return parser.resolve_operands(unresolved, types, parser.pos)


class FunctionalOp(TorchOp):
    """An op whose assembly ends in a function type: `%a, %b : (T, T) -> T`."""

    traits = OBJECT_EFFECTS

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parse_operands(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_function_type()
        operands = parser.resolve_operands(unresolved, type_.inputs.data, parser.pos)
        return cls.create(operands=operands, result_types=type_.outputs.data, attributes=attributes)


class VarargOp(TorchOp):
    """An op that takes any number of arguments, in parentheses: `(%a, %b) : T, U -> V`."""

    def print(self, printer: Printer) -> None:
        printer.print_operands(self.operands)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        print_types(printer, self.operand_types)
        if self.results:
            printer.print_string(" -> ")
            print_types(printer, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parser.parse_op_args_list()
        attributes = parser.parse_optional_attr_dict()
        operands = parse_typed(parser, unresolved)
        results = parse_types(parser) if parser.parse_optional_punctuation("->") is not None else []
        return cls.create(operands=operands, result_types=results, attributes=attributes)


# --- Assembly from a template ---

_FIELD = re.compile(r"\{([^}]*)\}")
_TOKEN = re.compile(r"->|\w+|[^\s\w]")


@cache
def _template(text: str) -> tuple[tuple[str, str], ...]:
    """Split a template into `(field, "")` and `("", literal)` pieces, in order."""
    pieces: list[tuple[str, str]] = []
    for i, part in enumerate(_FIELD.split(text)):
        if part:
            pieces.append((part, "") if i % 2 else ("", part))
    return tuple(pieces)


class TemplateOp(TorchOp):
    """An op whose assembly is a template, ` {%0}[{str name}]{attrs} : {T0} -> {R0}`.

    `{%0}` is an operand and `{T0}` its type, `{R0}` a result type, `{attrs}` the other attributes; `{str name}`,
    `{symbol name}` and `{type name}` are properties, and `{flag name word}` is a word that is there or not. `{%*}`,
    `{T*}` and `{R*}` are all operands, with a space before them, their types, and the types of all results.
    """

    assembly: ClassVar[str]
    implied_operand_types: ClassVar[tuple[Attribute, ...]] = ()
    """The types of the operands where the assembly does not say them."""
    implied_result_types: ClassVar[tuple[Attribute, ...]] = ()

    def print(self, printer: Printer) -> None:
        for field, literal in _template(self.assembly):
            if literal:
                printer.print_string(literal)
            elif field == "attrs":
                print_attributes(printer, self.attributes)
            elif field == "%*":
                print_operands(printer, self.operands)
            elif field in ("T*", "R*"):
                print_types(printer, self.operand_types if field == "T*" else self.result_types)
            elif field[0] == "%":
                printer.print_operand(self._operands[int(field[1:])])
            elif field[0] == "T":
                printer.print_attribute(self._operands[int(field[1:])].type)
            elif field[0] == "R":
                printer.print_attribute(self.results[int(field[1:])].type)
            else:
                self._print_property(printer, *field.split())

    def _print_property(self, printer: Printer, kind: str, name: str, word: str = "") -> None:
        if kind == "str":
            printer.print_string_literal(self.require(name, StringAttr).data)
        elif kind == "symbol":
            printer.print_symbol_name(self.require(name, SymbolRefAttr).string_value())
        elif kind == "type":
            printer.print_attribute(self.require(name, TypeAttribute))
        elif name in self.properties:
            printer.print_string(f" {word}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands: list[UnresolvedOperand] = []
        operand_types: list[Attribute] = []
        result_types: list[Attribute] = []
        properties: dict[str, Attribute] = {}
        attributes: dict[str, Attribute] = {}
        for field, literal in _template(cls.assembly):
            if literal:
                for token in _TOKEN.findall(literal):
                    if token[0].isalpha():
                        parser.parse_keyword(token)
                    elif token == ":" and "{%*}" in cls.assembly and not operands:
                        parser.parse_optional_punctuation(token)  # There are no types for it to announce.
                    else:
                        parser.parse_punctuation(token)
            elif field == "attrs":
                attributes = parser.parse_optional_attr_dict()
            elif field[0] == "%":
                operands += parse_operands(parser) if field == "%*" else [parser.parse_unresolved_operand()]
            elif field[0] in "TR":
                types = parse_types(parser) if field[1:] == "*" else [parser.parse_type()]
                (operand_types if field[0] == "T" else result_types).extend(types)
            else:
                cls._parse_property(parser, properties, *field.split())
        return cls.create(
            operands=parser.resolve_operands(operands, operand_types or cls.implied_operand_types, parser.pos),
            result_types=result_types or cls.implied_result_types,
            properties=properties,
            attributes=attributes,
        )

    @classmethod
    def _parse_property(
        cls, parser: Parser, properties: dict[str, Attribute], kind: str, name: str, word: str = ""
    ) -> None:
        if kind == "str":
            properties[name] = StringAttr(parser.parse_str_literal())
        elif kind == "symbol":
            properties[name] = SymbolRefAttr(parser.parse_symbol_name())
        elif kind == "type":
            properties[name] = parser.parse_type()
        elif parser.parse_optional_keyword(word) is not None:
            properties[name] = UnitAttr()

    def verify_(self) -> None:
        fields = [field for field, _ in _template(self.assembly) if field]
        operands = len(self.operands) if "%*" in fields else sum(f[0] == "%" for f in fields)
        results = len(self.results) if "R*" in fields else sum(f[0] == "R" for f in fields)
        self.expect_counts(operands, results or len(self.implied_result_types))
        for field in fields:
            kind, _, name = field.partition(" ")
            if kind in _PROPERTY_KINDS:
                self.require(name, _PROPERTY_KINDS[kind])


_PROPERTY_KINDS: dict[str, type[Attribute]] = {"str": StringAttr, "symbol": SymbolRefAttr, "type": TypeAttribute}
