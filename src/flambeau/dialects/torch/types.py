"""The types of the torch dialect, spelt as in torch-mlir.

Types are interned: use the factories (`vtensor`, `list_of`, ...) in hot paths, they cost a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from flambeau.ir.dtypes import BY_TORCH_TYPE, INT64_MAX, DType

Shape = tuple[int | None, ...]
"""Dimension sizes; None is a size that is known only at run time."""


class TorchType(Data[Any], TypeAttribute):
    """Base of all types of the torch dialect."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        return None

    def print_parameter(self, printer: Printer) -> None:
        return None

    def __str__(self) -> str:
        return f"!{self.name}{self.suffix()}"

    def suffix(self) -> str:
        """Print what follows the type's name: `<[2,?],f32>`."""
        from io import StringIO

        out = StringIO()
        self.print_parameter(Printer(out))
        return out.getvalue()


class TensorType(TorchType):
    """A tensor whose shape and element type may be unknown: `data` is `(shape or None, element type or None)`."""

    data: tuple[Shape | None, Attribute | None]

    @property
    def shape(self) -> Shape | None:
        """The dimensions, or None when even the rank is unknown."""
        return self.data[0]

    @property
    def element_type(self) -> Attribute | None:
        return self.data[1]

    @property
    def dtype(self) -> DType | None:
        """The element type as an entry of the dtype table; None when unknown or not in it."""
        return BY_TORCH_TYPE.get(self.data[1]) if self.data[1] is not None else None

    @property
    def rank(self) -> int | None:
        return None if self.data[0] is None else len(self.data[0])

    def print_parameter(self, printer: Printer) -> None:
        shape, element = self.data
        if shape is None and element is None:
            return
        dims = "*" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
        printer.print_string(f"<{dims},")
        if element is None:
            printer.print_string("unk>")
        else:
            printer.print_attribute(element)
            printer.print_string(">")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Shape | None, Attribute | None]:
        if parser.parse_optional_punctuation("<") is None:
            return (None, None)
        shape: Shape | None = None
        if parser.parse_optional_punctuation("*") is None:
            shape = tuple(
                parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dim(parser), " in shape")
            )
        parser.parse_punctuation(",")
        element: Attribute | None = None
        if parser.parse_optional_keyword("unk") is None:
            element = parse_nested(parser)
        parser.parse_punctuation(">")
        return (shape, element)


def _parse_dim(parser: AttrParser) -> int | None:
    if parser.parse_optional_punctuation("?") is not None:
        return None
    size = parser.parse_integer(allow_negative=False)
    if size > INT64_MAX:
        parser.raise_error(f"a size is at most {INT64_MAX}")
    return size


class VTensorType(TensorType):
    """A tensor with value semantics: nobody can write to it."""

    name = "torch.vtensor"


class NonValueTensorType(TensorType):
    """A tensor in PyTorch's sense: it may alias others and be written in place."""

    name = "torch.tensor"


def _simple(class_name: str, mnemonic: str, doc: str) -> type[TorchType]:
    return type(class_name, (TorchType,), {"name": f"torch.{mnemonic}", "__doc__": doc, "__module__": __name__})


IntType = _simple("IntType", "int", "A Python int (64 bits).")
FloatType = _simple("FloatType", "float", "A Python float (64 bits).")
BoolType = _simple("BoolType", "bool", "A Python bool.")
NoneType = _simple("NoneType", "none", "The type of None.")
StrType = _simple("StrType", "str", "A Python string.")
NumberType = _simple("NumberType", "number", "An int, float or complex: PyTorch's Scalar.")
AnyType = _simple("AnyType", "any", "Any Python object.")
DeviceType = _simple("DeviceType", "Device", "A torch.device.")
GeneratorType = _simple("GeneratorType", "Generator", "A random number generator.")
LinearParamsType = _simple("LinearParamsType", "LinearParams", "Packed parameters of a quantised linear layer.")
QInt8Type = _simple("QInt8Type", "qint8", "A quantised signed byte.")
QUInt8Type = _simple("QUInt8Type", "quint8", "A quantised unsigned byte.")
QInt16Type = _simple("QInt16Type", "qint16", "A quantised 16-bit integer.")
QInt32Type = _simple("QInt32Type", "qint32", "A quantised 32-bit integer.")


class ContainerType(TorchType):
    """A type made of other types; `data` is the tuple of them."""

    data: tuple[Attribute, ...]
    arity: ClassVar[int | None] = None

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string("<")
        printer.print_list(self.data, lambda t: print_nested(printer, t))
        printer.print_string(">")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Attribute, ...]:
        parts = tuple(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, lambda: parse_nested(parser)))
        if cls.arity is not None and len(parts) != cls.arity:
            parser.raise_error(f"!{cls.name} takes {cls.arity} type(s), got {len(parts)}")
        return parts


class ListType(ContainerType):
    """A list whose elements all have one type."""

    name = "torch.list"
    arity = 1

    @property
    def element_type(self) -> Attribute:
        return self.data[0]


class OptionalType(ContainerType):
    """A value of the element type, or None."""

    name = "torch.optional"
    arity = 1

    @property
    def element_type(self) -> Attribute:
        return self.data[0]


class TupleType(ContainerType):
    """A tuple with a type for each element."""

    name = "torch.tuple"


class UnionType(ContainerType):
    """A value of one of several types."""

    name = "torch.union"


class DictType(ContainerType):
    """A dictionary from one key type to one value type."""

    name = "torch.dict"
    arity = 2


class NnModuleType(TorchType):
    """An instance of a TorchScript class; `data` is the class's qualified name."""

    name = "torch.nn.Module"
    data: str

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string("<")
        printer.print_string_literal(self.data)
        printer.print_string(">")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return parser.parse_str_literal()


TYPES: tuple[type[TorchType], ...] = (
    VTensorType, NonValueTensorType, IntType, FloatType, BoolType, NoneType, StrType, NumberType, AnyType, DeviceType,
    GeneratorType, LinearParamsType, QInt8Type, QUInt8Type, QInt16Type, QInt32Type, ListType, OptionalType, TupleType,
    UnionType, DictType, NnModuleType,
)  # fmt: skip

_BY_NESTED_NAME = {t.name.removeprefix("torch."): t for t in TYPES}


def print_nested(printer: Printer, type_: Attribute) -> None:
    """Print a type inside another torch type, where `!torch.` is left out."""
    if isinstance(type_, TorchType):
        printer.print_string(type_.name.removeprefix("torch."))
        type_.print_parameter(printer)
    else:
        printer.print_attribute(type_)


def parse_nested(parser: AttrParser) -> Attribute:
    """Parse a type inside another torch type; the full spelling `!torch.int` is accepted too."""
    mnemonic = parser.parse_optional_keyword_in(_BY_NESTED_NAME)
    if mnemonic is None:
        return parser.parse_type()
    cls = _BY_NESTED_NAME[mnemonic]
    return intern(cls, cls.parse_parameter(parser))


@cache
def intern(cls: type[TorchType], data: Any) -> Any:
    """Return the one instance of a type with this content."""
    return cls(data)


def vtensor(shape: Shape | None = None, element_type: Attribute | None = None) -> VTensorType:
    """Make `!torch.vtensor<[...],dtype>`."""
    return intern(VTensorType, (shape, element_type))


def tensor(shape: Shape | None = None, element_type: Attribute | None = None) -> NonValueTensorType:
    """Make `!torch.tensor<[...],dtype>`."""
    return intern(NonValueTensorType, (shape, element_type))


def list_of(element: Attribute) -> ListType:
    return intern(ListType, (element,))


def optional_of(element: Attribute) -> OptionalType:
    return intern(OptionalType, (element,))


def tuple_of(elements: Sequence[Attribute]) -> TupleType:
    return intern(TupleType, tuple(elements))


def dict_of(key: Attribute, value: Attribute) -> DictType:
    return intern(DictType, (key, value))


INT = intern(IntType, None)
FLOAT = intern(FloatType, None)
BOOL = intern(BoolType, None)
NONE = intern(NoneType, None)
STR = intern(StrType, None)
NUMBER = intern(NumberType, None)
ANY = intern(AnyType, None)
DEVICE = intern(DeviceType, None)
GENERATOR = intern(GeneratorType, None)


def to_value(type_: Attribute) -> Attribute:
    """Return the value-semantic twin of a tensor type; other types as they are."""
    return intern(VTensorType, type_.data) if isinstance(type_, NonValueTensorType) else type_


def to_non_value(type_: Attribute) -> Attribute:
    """Return the mutable twin of a tensor type; other types as they are."""
    return intern(NonValueTensorType, type_.data) if isinstance(type_, VTensorType) else type_


def is_subtype(sub: Attribute, super_: Attribute) -> bool:
    """Tell whether a value of type `sub` may stand where `super_` is asked for.

    Containers are invariant, but for tuples: a list of ints is no list of numbers, and an optional int no optional
    number.
    """
    if sub == super_ or super_ == ANY:
        return True
    if isinstance(sub, UnionType):
        return all(is_subtype(member, super_) for member in sub.data)
    if isinstance(super_, OptionalType):
        return sub == NONE or is_subtype(sub, super_.element_type)
    if isinstance(super_, UnionType):
        return any(is_subtype(sub, member) for member in super_.data)
    if super_ == NUMBER:
        return sub in (INT, FLOAT)
    if isinstance(super_, TensorType) and type(sub) is type(super_):
        shape, element = sub.data
        wider_shape, wider_element = super_.data
        shape_fits = wider_shape is None or (
            shape is not None
            and len(shape) == len(wider_shape)
            and all(w is None or w == d for d, w in zip(shape, wider_shape, strict=True))
        )
        return shape_fits and (wider_element is None or wider_element == element)
    if isinstance(super_, TupleType) and isinstance(sub, TupleType):
        return len(sub.data) == len(super_.data) and all(map(is_subtype, sub.data, super_.data))
    return False


def may_be_the_same(a: TensorType, b: TensorType) -> bool:
    """Tell whether some tensor can be of both types: dtypes and known sizes are equal."""
    if None not in (a.element_type, b.element_type) and a.element_type != b.element_type:
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        m is None or n is None or m == n for m, n in zip(a.shape, b.shape, strict=True)
    )


def static_shape(type_: Attribute) -> tuple[int, ...] | None:
    """Return the shape of a tensor type; None where a size or the rank is unknown, and for other types."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    return None if shape is None or None in shape else shape  # type: ignore[return-value]


def join_types(a: Attribute, b: Attribute) -> Attribute:
    """Compute the join of two types: the narrowest type that holds values of both."""
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType) and type(a) is type(b):
        shape = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
        element = a.element_type if a.element_type == b.element_type else None
        return intern(type(a), (shape, element))
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.data) == len(b.data):
        return tuple_of([join_types(x, y) for x, y in zip(a.data, b.data, strict=True)])
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if NONE in (a, b):
        return optional_of(b if a == NONE else a)
    if {a, b} <= {INT, FLOAT, NUMBER, BOOL}:
        return NUMBER
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = [t.element_type if isinstance(t, OptionalType) else t for t in (a, b)]
        return optional_of(join_types(inner[0], inner[1]))
    return intern(UnionType, (a, b))
