"""Ops that build and take apart lists, tuples and dictionaries, and that change how a value is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from xdsl.ir import Operation, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import (
    OBJECT_EFFECTS,
    PURE,
    FunctionalOp,
    TemplateOp,
    TorchOp,
    parse_operands,
    parse_typed,
    print_attributes,
    print_operands,
    print_types,
)
from flambeau.dialects.torch.types import (
    BOOL,
    NONE,
    DictType,
    LinearParamsType,
    ListType,
    NonValueTensorType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
    is_subtype,
    may_be_the_same,
)

# --- Lists, tuples, dictionaries ---


class ListConstructOp(FunctionalOp):
    """A list of values."""

    name = "torch.prim.ListConstruct"

    def verify_(self) -> None:
        self.expect_counts(len(self.operands), 1)
        list_type = self.results[0].type
        if not isinstance(list_type, ListType):
            raise VerifyException(f"{self.name} must give a list, not {list_type}")
        for operand in self._operands:
            if not is_subtype(operand.type, list_type.element_type):
                raise VerifyException(f"{self.name}: an element of {list_type} cannot be {operand.type}")


class TupleConstructOp(TemplateOp):
    """A tuple of values."""

    name = "torch.prim.TupleConstruct"
    traits = OBJECT_EFFECTS
    assembly = "{%*}{attrs} : {T*} -> {R*}"

    def verify_(self) -> None:
        self.expect_counts(len(self.operands), 1)
        tuple_type = self.results[0].type
        if not isinstance(tuple_type, TupleType) or len(tuple_type.data) != len(self.operands):
            raise VerifyException(f"{self.name}: {len(self.operands)} elements do not make a {tuple_type}")
        for operand, element in zip(self._operands, tuple_type.data, strict=True):
            if not is_subtype(operand.type, element):
                raise VerifyException(f"{self.name}: {operand.type} is not a {element} of {tuple_type}")


class UnpackOp(TemplateOp):
    """Base of the two ops that take a sequence apart."""

    traits = OBJECT_EFFECTS
    assembly = "{%*}{attrs} : {T*} -> {R*}"
    operand_class: ClassVar[type[ListType] | type[TupleType]]

    def verify_(self) -> None:
        self.expect_counts(1, len(self.results))
        if not isinstance(self.operands[0].type, self.operand_class):
            raise VerifyException(f"{self.name} takes a !{self.operand_class.name}, got {self.operands[0].type}")


class ListUnpackOp(UnpackOp):
    """The elements of a list of known length."""

    name = "torch.prim.ListUnpack"
    operand_class = ListType


class TupleUnpackOp(UnpackOp):
    """The elements of a tuple."""

    name = "torch.prim.TupleUnpack"
    operand_class = TupleType

    def verify_(self) -> None:
        super().verify_()
        tuple_type = self.operands[0].type
        assert isinstance(tuple_type, TupleType)
        if len(tuple_type.data) != len(self.results):
            raise VerifyException(f"{self.name}: {tuple_type} does not have {len(self.results)} elements")


class DictConstructOp(TorchOp):
    """A dictionary; the operands are all keys, then all values."""

    name = "torch.prim.DictConstruct"
    traits = OBJECT_EFFECTS

    @property
    def keys(self) -> Sequence[SSAValue]:
        return self._operands[: len(self._operands) // 2]

    @property
    def values(self) -> Sequence[SSAValue]:
        return self._operands[len(self._operands) // 2 :]

    def print(self, printer: Printer) -> None:
        for word, operands in ((" keys", self.keys), (" values", self.values)):
            printer.print_string(word)
            with printer.in_parens():
                print_typed(printer, operands)
        print_attributes(printer, self.attributes)
        printer.print_string(" -> ")
        print_types(printer, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("keys")
        with parser.in_parens():
            keys = parse_typed(parser, parse_operands(parser))
        parser.parse_keyword("values")
        with parser.in_parens():
            values = parse_typed(parser, parse_operands(parser))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation("->")
        if len(keys) != len(values):
            parser.raise_error(f"{len(keys)} keys do not go with {len(values)} values")
        return cls.create(operands=[*keys, *values], result_types=(parser.parse_type(),), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(len(self.operands), 1)
        dict_type = self.results[0].type
        if not isinstance(dict_type, DictType):
            raise VerifyException(f"{self.name} must give a dictionary, not {dict_type}")
        if len(self.operands) % 2:
            raise VerifyException(f"{self.name} takes as many keys as values, got {len(self.operands)} operands")
        for what, operands, wanted in zip(("key", "value"), (self.keys, self.values), dict_type.data, strict=True):
            for operand in operands:
                if not is_subtype(operand.type, wanted):
                    raise VerifyException(f"{self.name}: a {what} of {dict_type} cannot be {operand.type}")


def print_typed(printer: Printer, operands: Sequence[SSAValue]) -> None:
    """Print `%a, %b : T, U`, or nothing."""
    if operands:
        printer.print_list(operands, printer.print_operand)
        printer.print_string(" : ")
        print_types(printer, [o.type for o in operands])


# --- The same value seen differently ---


class CastOp(TemplateOp):
    """Base of the ops that only change a type."""

    traits = PURE
    assembly = " {%0}{attrs} : {T0} to {R0}"


class DerefineOp(CastOp):
    """The same value seen through a wider type."""

    name = "torch.derefine"

    def verify_(self) -> None:
        self.expect_counts(1, 1)
        narrow, wide = self.operands[0].type, self.results[0].type
        if not is_subtype(narrow, wide):
            raise VerifyException(f"{self.name}: {narrow} is not a subtype of {wide}")


class StaticInfoCastOp(CastOp):
    """The same tensor with more or less of its shape and dtype known."""

    name = "torch.tensor_static_info_cast"

    def verify_(self) -> None:
        self.expect_counts(1, 1)
        source, target = self.operands[0].type, self.results[0].type
        if not isinstance(source, TensorType) or type(source) is not type(target):
            raise VerifyException(f"{self.name} takes a tensor to one of its own kind, not {source} to {target}")
        assert isinstance(target, TensorType)
        if not may_be_the_same(source, target):
            raise VerifyException(f"{self.name}: no tensor is both a {source} and a {target}")


class CopyOp(TorchOp):
    """Base of the two copies; the operand's type follows from the result's."""

    operand_class: ClassVar[type[TensorType]]
    result_class: ClassVar[type[TensorType]]
    traits = OBJECT_EFFECTS

    def print(self, printer: Printer) -> None:
        print_operands(printer, self.operands)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        result = parser.parse_type()
        if not isinstance(result, TensorType):
            parser.raise_error(f"{cls.name} gives a tensor, not {result}")
        operand = parser.resolve_operand(unresolved, intern(cls.operand_class, result.data))
        return cls.create(operands=(operand,), result_types=(result,), attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(1, 1)
        operand, result = self.operands[0].type, self.results[0].type
        if not isinstance(operand, self.operand_class):
            raise VerifyException(f"{self.name} takes a !{self.operand_class.name}, got {operand}")
        if not isinstance(result, self.result_class):
            raise VerifyException(f"{self.name} gives a !{self.result_class.name}, not {result}")
        if operand.data != result.data:
            raise VerifyException(f"{self.name} keeps shape and dtype: {operand} cannot become {result}")


class CopyToValueTensorOp(CopyOp):
    """The contents of a mutable tensor, now, as a value."""

    name = "torch.copy.to_vtensor"
    operand_class = NonValueTensorType
    result_class = VTensorType


class CopyToNonValueTensorOp(CopyOp):
    """A fresh mutable tensor that holds a value."""

    name = "torch.copy.to_tensor"
    operand_class = VTensorType
    result_class = NonValueTensorType


class OverwriteTensorContentsOp(TemplateOp):
    """Write a value into a mutable tensor."""

    name = "torch.overwrite.tensor.contents"
    assembly = " {%0} overwrites {%1}{attrs} : {T0}, {T1}"

    def verify_(self) -> None:
        self.expect_counts(2, 0)
        value, overwritten = (o.type for o in self._operands)
        if not isinstance(value, VTensorType) or not isinstance(overwritten, NonValueTensorType):
            raise VerifyException(f"{self.name} writes a !torch.vtensor over a !torch.tensor")
        if value.data != overwritten.data:
            raise VerifyException(f"{self.name}: {value} does not fit over {overwritten}")


def old_overwrite(name: str) -> type[Operation]:
    """Make the op under a name that it once had; reading it gives today's op."""

    def create(cls: type[Operation], /, **parts: Any) -> Operation:
        return OverwriteTensorContentsOp.create(**parts)

    return type("OldOverwriteOp", (OverwriteTensorContentsOp,), {"name": name, "create": classmethod(create)})


OLD_SPELLINGS = tuple(old_overwrite(f"torch.{name}.tensor") for name in ("overwrite", "override"))
"""How the op that overwrites a tensor was called in 2021."""


class EnterOp(TemplateOp):
    """The start of a `with` block."""

    name = "torch.prim.Enter"
    assembly = " {%0}{attrs} : {T0}"
    implied_result_types = (NONE,)


class LinearParamsCreateOp(TemplateOp):
    """Packed parameters of a quantised linear layer, from a weight and, if there is one, a bias."""

    name = "torch.linear_params.create"
    traits = OBJECT_EFFECTS
    assembly = "{%*}{attrs} : {T*}"
    implied_result_types = (intern(LinearParamsType, None),)

    def verify_(self) -> None:
        if len(self.operands) not in (1, 2) or not all(isinstance(t, TensorType) for t in self.operand_types):
            raise VerifyException(f"{self.name} takes a weight and perhaps a bias, both tensors")


class PromoteDtypesOp(FunctionalOp):
    """The dtype that operands of these ranks and dtypes have in common."""

    name = "torch.promote_dtypes"

    def verify_(self) -> None:
        self.expect_counts(2, 1)
        for operand in self._operands:
            if not isinstance(operand.type, ListType):
                raise VerifyException(f"{self.name} takes two lists, got {operand.type}")


class UninitializedOp(TemplateOp):
    """A value that is never read, for a variable that only some paths set."""

    name = "torch.prim.Uninitialized"
    traits = OBJECT_EFFECTS
    assembly = "{attrs} : {R0}"


class RuntimeAssertOp(TemplateOp):
    """Fails with a message unless the condition holds."""

    name = "torch.runtime.assert"
    property_names = ("message",)
    assembly = " {%0}, {str message}{attrs}"
    implied_operand_types = (BOOL,)


class LoadOp(TemplateOp):
    """The value of a TorchScript variable, before variables have become SSA values."""

    name = "torch.prim.Load"
    property_names = ("name",)
    assembly = " {str name}{attrs} : {R0}"


class StoreOp(TemplateOp):
    """Sets a TorchScript variable."""

    name = "torch.prim.Store"
    property_names = ("name",)
    assembly = " {str name}, {%0}{attrs} : {T0}"


VALUES: tuple[type[TorchOp], ...] = (
    ListConstructOp, ListUnpackOp, TupleConstructOp, TupleUnpackOp, DictConstructOp, DerefineOp, StaticInfoCastOp,
    CopyToValueTensorOp, CopyToNonValueTensorOp, OverwriteTensorContentsOp, EnterOp, LinearParamsCreateOp,
    PromoteDtypesOp, UninitializedOp, RuntimeAssertOp, LoadOp, StoreOp,
)  # fmt: skip
