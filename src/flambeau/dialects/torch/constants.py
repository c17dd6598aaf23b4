"""Constants: Python values known at compile time, and tensors whose contents are."""

from __future__ import annotations

import math
import struct
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, StringAttr, f64, i1, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import OBJECT_EFFECTS, PURE, TorchOp, print_attributes
from flambeau.dialects.torch.types import (
    BOOL,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    NonValueTensorType,
    TensorType,
    VTensorType,
    intern,
)


class ConstantOp(TorchOp):
    """Base of `torch.constant.*`; `python_value` is what it stands for."""

    traits = PURE
    property_names = ("value",)
    result_type: ClassVar[Attribute]
    value_class: ClassVar[tuple[type[Attribute], ...]]

    @property
    def value(self) -> Any:
        return self.properties.get("value")

    @property
    def python_value(self) -> Any:
        raise NotImplementedError

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self.print_value(printer)
        print_attributes(printer, self.attributes)

    def print_value(self, printer: Printer) -> None:
        raise NotImplementedError

    @classmethod
    def build_value(cls, value: Attribute | None, attributes: Any = None) -> Self:
        properties = {} if value is None else {"value": value}
        return cls.create(result_types=(cls.result_type,), properties=properties, attributes=attributes or {})

    def verify_(self) -> None:
        self.expect_counts(0, 1)
        if self.value_class and not isinstance(self.value, self.value_class):
            raise VerifyException(f"{self.name} cannot hold {self.value}")
        if self.results[0].type != self.result_type:
            raise VerifyException(f"{self.name} gives {self.result_type}, not {self.results[0].type}")


class ConstantIntOp(ConstantOp):
    """An int known at compile time."""

    name = "torch.constant.int"
    result_type = INT
    value_class = (IntegerAttr,)

    @property
    def python_value(self) -> int:
        return int(self.value.value.data)

    def print_value(self, printer: Printer) -> None:
        printer.print_string(str(self.python_value))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        return cls.build_value(value, parser.parse_optional_attr_dict())


class ConstantFloatOp(ConstantOp):
    """A float known at compile time."""

    name = "torch.constant.float"
    result_type = FLOAT
    value_class = (FloatAttr,)

    @property
    def python_value(self) -> float:
        return float(self.value.value.data)

    def print_value(self, printer: Printer) -> None:
        printer.print_string(_spell_float(self.python_value))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = FloatAttr(_parse_float(parser), f64)
        return cls.build_value(value, parser.parse_optional_attr_dict())


def _spell_float(value: float) -> str:
    """Format a float as MLIR does: with six digits if they are exact, else with seventeen, or else its bits."""
    if math.isfinite(value):
        short = f"{value:.5e}".replace("e", "0e")
        long = f"{value:.17g}".upper()
        if float(short) == value or "." in long:
            return short if float(short) == value else long
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _parse_float(parser: Parser) -> float:
    """Parse a float; infinities and NaNs are written as the hexadecimal digits of their bits."""
    start = parser.pos
    number = parser.parse_number()
    text = parser.lexer.input.slice(start, parser.pos) or ""
    if text.strip().lower().startswith("0x"):
        return float(struct.unpack("<d", int(number).to_bytes(8, "little"))[0])
    return float(number)


class ConstantBoolOp(ConstantOp):
    """True or False."""

    name = "torch.constant.bool"
    result_type = BOOL
    value_class = (IntegerAttr,)

    @property
    def python_value(self) -> bool:
        return bool(self.value.value.data)

    def print_value(self, printer: Printer) -> None:
        printer.print_string("true" if self.python_value else "false")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = IntegerAttr(int(parser.parse_boolean()), i1)
        return cls.build_value(value, parser.parse_optional_attr_dict())


class _ConstantText(ConstantOp):
    value_class = (StringAttr,)

    @property
    def python_value(self) -> str:
        return str(self.value.data)

    def print_value(self, printer: Printer) -> None:
        printer.print_string_literal(self.python_value)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = StringAttr(parser.parse_str_literal())
        return cls.build_value(value, parser.parse_optional_attr_dict())


class ConstantStrOp(_ConstantText):
    """A string known at compile time."""

    name = "torch.constant.str"
    result_type = STR


class ConstantDeviceOp(_ConstantText):
    """A device known at compile time."""

    name = "torch.constant.device"
    result_type = DEVICE


class ConstantNumberOp(ConstantOp):
    """A number of which only the value is known, not its Python type. It has no assembly of its own."""

    name = "torch.constant.number"
    result_type = NUMBER
    value_class = (IntegerAttr, FloatAttr)
    print = Operation.print

    @property
    def python_value(self) -> int | float:
        value = self.value
        return int(value.value.data) if isinstance(value, IntegerAttr) else float(value.value.data)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.raise_error(f"{cls.name} is written in generic form")


class ConstantNoneOp(ConstantOp):
    """None."""

    name = "torch.constant.none"
    result_type = NONE
    value_class = ()

    @property
    def python_value(self) -> None:
        return None

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return cls.build_value(None, parser.parse_optional_attr_dict())


class LiteralOp(TorchOp):
    """Base of the two literals: a tensor whose contents are a constant of the program or one of its weights."""

    property_names = ("value",)
    result_class: ClassVar[type[TensorType]]

    @property
    def value(self) -> Attribute:
        return self.properties["value"]

    def print(self, printer: Printer) -> None:
        with printer.in_parens():
            printer.print_attribute(self.value)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        with parser.in_parens():
            value = parser.parse_attribute()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(result_types=(parser.parse_type(),), properties={"value": value}, attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(0, 1)
        self.require("value", Attribute)
        result = self.results[0].type
        if not isinstance(result, self.result_class):
            raise VerifyException(f"{self.name} gives a !{self.result_class.name}, not {result}")
        contents = getattr(self.value, "type", None)
        if not isinstance(contents, BuiltinTensorType):
            raise VerifyException(f"{self.name} holds the elements of a tensor, not {self.value}")
        if not self.fits(contents, result):
            raise VerifyException(f"{self.name}: {contents} does not make a {result}")

    @classmethod
    def fits(cls, contents: BuiltinTensorType[Any], result: TensorType) -> bool:
        return result.shape == contents.get_shape() and _same_elements(contents.element_type, result.element_type)


def _same_elements(stored: Attribute, wanted: Attribute | None) -> bool:
    if stored == wanted:
        return True
    # Integers may be stored without their sign.
    return isinstance(stored, IntegerType) and isinstance(wanted, IntegerType) and stored == IntegerType(wanted.width)


class ValueTensorLiteralOp(LiteralOp):
    """A constant tensor with value semantics."""

    name = "torch.vtensor.literal"
    traits = PURE
    result_class = VTensorType


class NonValueTensorLiteralOp(LiteralOp):
    """A constant tensor that may be written; every run of it makes a fresh one."""

    name = "torch.tensor.literal"
    traits = OBJECT_EFFECTS
    result_class = NonValueTensorType

    @classmethod
    def fits(cls, contents: BuiltinTensorType[Any], result: TensorType) -> bool:
        known = intern(
            NonValueTensorType,
            (
                contents.get_shape() if result.shape is None else result.shape,
                contents.element_type if result.element_type is None else result.element_type,
            ),
        )
        return super().fits(contents, known)


CONSTANTS: tuple[type[TorchOp], ...] = (
    ConstantIntOp, ConstantFloatOp, ConstantBoolOp, ConstantStrOp, ConstantDeviceOp, ConstantNumberOp, ConstantNoneOp,
    ValueTensorLiteralOp, NonValueTensorLiteralOp,
)  # fmt: skip
