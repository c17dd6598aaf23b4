"""The torch_c dialect: where values of the torch dialect meet builtin types, as in torch-mlir."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, UnrankedTensorType, f64, i1, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Dialect
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import PURE, RANDOM_EFFECTS, TemplateOp
from flambeau.dialects.torch.types import BOOL, FLOAT, GENERATOR, INT, VTensorType


class TensorConversionOp(TemplateOp):
    """Base of the two ops between value tensors and builtin tensors."""

    traits = PURE
    assembly = " {%0}{attrs} : {T0} -> {R0}"

    def check(self, torch_type: Attribute, builtin_type: Attribute) -> None:
        if not isinstance(torch_type, VTensorType):
            raise VerifyException(f"{self.name} is for a !torch.vtensor, got {torch_type}")
        if not isinstance(builtin_type, BuiltinTensorType | UnrankedTensorType):
            raise VerifyException(f"{self.name} is for a builtin tensor, got {builtin_type}")
        if torch_type.element_type is None:
            raise VerifyException(f"{self.name}: {torch_type} has no builtin tensor type, its dtype is unknown")
        shape: tuple[int | None, ...] | None = None
        if isinstance(builtin_type, BuiltinTensorType):
            shape = tuple(None if d == DYNAMIC_INDEX else d for d in builtin_type.get_shape())
        if torch_type.shape != shape or _signless(torch_type.element_type) != _signless(builtin_type.element_type):
            raise VerifyException(f"{self.name}: {torch_type} and {builtin_type} differ in shape or dtype")


def _signless(type_: Attribute) -> Attribute:
    return IntegerType(type_.width.data) if isinstance(type_, IntegerType) else type_


class ToBuiltinTensorOp(TensorConversionOp):
    """A value tensor as a builtin tensor."""

    name = "torch_c.to_builtin_tensor"

    def verify_(self) -> None:
        super().verify_()
        self.check(self.operands[0].type, self.results[0].type)


class FromBuiltinTensorOp(TensorConversionOp):
    """A builtin tensor as a value tensor."""

    name = "torch_c.from_builtin_tensor"

    def verify_(self) -> None:
        super().verify_()
        self.check(self.results[0].type, self.operands[0].type)


class ScalarConversionOp(TemplateOp):
    """Base of the conversions whose types follow from their names."""

    traits = PURE
    assembly = " {%0}{attrs}"

    def verify_(self) -> None:
        super().verify_()
        got = (self.operands[0].type, self.results[0].type)
        wanted = (self.implied_operand_types[0], self.implied_result_types[0])
        if got != wanted:
            raise VerifyException(f"{self.name} takes {wanted[0]} to {wanted[1]}, not {got[0]} to {got[1]}")


def _conversion(name: str, source: Attribute, target: Attribute, summary: str) -> type[ScalarConversionOp]:
    """Make the class of the op `torch_c.<name>`, which converts between two types of scalars."""
    members = {"__doc__": summary, "__module__": __name__, "name": f"torch_c.{name}"}
    types = {"implied_operand_types": (source,), "implied_result_types": (target,)}
    return type(f"{name.title().replace('_', '')}Op", (ScalarConversionOp,), {**members, **types})


SCALAR_CONVERSIONS = (
    _conversion("to_i1", BOOL, i1, "A Python bool as one bit."),
    _conversion("from_i1", i1, BOOL, "One bit as a Python bool."),
    _conversion("to_i64", INT, i64, "A Python int as 64 bits."),
    _conversion("from_i64", i64, INT, "64 bits as a Python int."),
    _conversion("to_f64", FLOAT, f64, "A Python float as an f64."),
    _conversion("from_f64", f64, FLOAT, "An f64 as a Python float."),
    _conversion("generator_to_i64", GENERATOR, i64, "The state of a random number generator as 64 bits."),
    _conversion("i64_to_generator", i64, GENERATOR, "A random number generator whose state is 64 bits."),
)


class GetNextSeedOp(TemplateOp):
    """The next seed of the program's own generator."""

    name = "torch_c.get_next_seed"
    traits = RANDOM_EFFECTS
    assembly = "{attrs} : () -> {R0}"


TorchC = Dialect("torch_c", [ToBuiltinTensorOp, FromBuiltinTensorOp, *SCALAR_CONVERSIONS, GetNextSeedOp])
