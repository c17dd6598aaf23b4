"""TorchBuilder: write torch dialect IR as one writes PyTorch; every value has its type at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.aliases import alias_overloads
from flambeau.dialects.torch.constants import ConstantOp
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import ListConstructOp
from flambeau.dialects.torch.prims import Arguments, arguments_of, twins
from flambeau.dialects.torch.schema import REQUIRED, Schema, SchemaType
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NUMBER,
    STR,
    ListType,
    TensorType,
    list_of,
    optional_of,
    vtensor,
)
from flambeau.infer.rules import INFER_RULES, InferenceError, Meta, Unknown
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import DType

FAMILIES = (
    "activation", "bessel", "collective", "compare", "conv", "create", "fft", "gamma", "index", "linear_algebra",
    "loss", "matmul", "normalization", "pad", "pointwise", "polynomials", "pool", "quantized", "random", "recurrent",
    "reduce", "sample", "scalars", "scan", "scatter", "search", "slice", "sort", "special", "view",
)  # fmt: skip


NUMBERS: dict[Attribute, type] = {INT: int, FLOAT: float, BOOL: bool, NUMBER: object}
"""The types of numbers, in the dialect and in Python."""


@cache
def rules() -> RuleTable:
    """Load all shape and dtype rules: those of each family, and for aliases the rules of the real ops."""
    table = INFER_RULES.load("flambeau.infer", FAMILIES)
    for name, real in alias_overloads().items():
        table(name, family=table.families[real])(table.rules[real])
    for name, (twin, arguments) in twins().items():
        if name not in table and twin.name in table:
            rule = partial(_as_twin, table.rules[twin.name], twin, arguments)
            table(name, family=table.families[twin.name])(rule)
    return table


def _as_twin(rule: Callable[..., Any], twin: Schema, arguments: Arguments, *given: Any) -> Any:
    """Apply the rule of the ATen op that a primitive is."""
    return rule(*arguments_of(twin, arguments, given))


def unknown_numbers(op: Operation) -> list[str]:
    """Name the arguments of an op that are numbers and known only at run time, lists of sizes left out."""
    schema = getattr(op, "schema", None)
    if schema is None:
        return []
    given = zip(schema.arguments, op.operands, strict=False)
    return [repr(a.name) for a, value in given if value.type in NUMBERS and isinstance(python_value(value), SSAValue)]


def python_value(value: SSAValue) -> Any:
    """Find what a torch value is known to be: a Python constant, a list of such, or else the value itself."""
    owner = value.owner
    if isinstance(owner, ConstantOp):
        return owner.python_value
    if isinstance(owner, ListConstructOp):
        return [python_value(v) for v in owner.operands]
    return value


def meta_of(value: Any) -> Any:
    """Give an argument the form in which rules take it: tensors as `Meta`, numbers of the run time as `Unknown`."""
    if isinstance(value, (list, tuple)):
        return [meta_of(v) for v in value]
    if isinstance(value, DType):
        return value.code
    if not isinstance(value, SSAValue):
        return value
    known = python_value(value)
    if known is not value:
        return meta_of(known)
    type_ = value.type
    if isinstance(type_, TensorType):
        if type_.shape is None or type_.dtype is None:
            raise InferenceError(f"nothing can be inferred from {type_}")
        return Meta(type_.shape, type_.dtype)
    if type_ not in NUMBERS:
        raise InferenceError(f"nothing can be inferred from {type_}")
    return Unknown(NUMBERS[type_])


def type_of(result: Any) -> Attribute:
    """Find the torch type of what a rule returns: a tensor, a list, a number that is known or not, a string."""
    if isinstance(result, Meta):
        return vtensor(result.shape, result.dtype.torch_type)
    if isinstance(result, list):
        types = {type_of(r) for r in result}
        return list_of(types.pop() if len(types) == 1 else _common_type(result))
    kind = result.kind if isinstance(result, Unknown) else type(result)
    if kind is str:
        return STR
    return next((t for t, k in NUMBERS.items() if k is kind), NUMBER)


def _common_type(tensors: Sequence[Any]) -> Attribute:
    """Join the types of a list's tensors into the tightest that holds for all: sizes that differ are unknown."""
    metas = [t for t in tensors if isinstance(t, Meta)]
    if len(metas) != len(tensors) or len({(t.rank, t.dtype) for t in metas}) != 1:
        return vtensor()
    shape = tuple(dims[0] if len(set(dims)) == 1 else None for dims in zip(*(t.shape for t in metas), strict=True))
    return vtensor(shape, metas[0].dtype.torch_type)


def infer(schema: Schema, metas: Sequence[Any]) -> tuple[Any, ...]:
    """Infer each result of an op from `metas`, its arguments as rules take them, by the rule of its overload."""
    rule = rules().get(schema.name)
    if rule is None:
        raise InferenceError(f"{schema.name} has no shape and dtype rule")
    try:
        results = rule(*metas)
    except InferenceError:
        raise
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # Rules compute as if the arguments fitted; where they do not, Python says so.
        raise InferenceError(f"{schema.name} does not take these arguments: {error}") from error
    return results if isinstance(results, tuple) else (results,)


class TorchBuilder(TorchEmitter):
    """`t.mul(x, t.sigmoid(x))` appends the ops; overloads are chosen by the arguments, as PyTorch does."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or not registry.overloads(f"aten.{name}"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(f"aten.{name}", *args, **kwargs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Append an op by its name, with or without overload."""
        exact = registry.schema(name)
        candidates = [exact] if exact is not None and "." in name[5:] else list(registry.overloads(name))
        for schema in candidates:
            bound = bind(schema, args, kwargs)
            if bound is not None:
                return self.build(schema, bound)
        raise TypeError(f"{name} has no overload for ({', '.join(map(_describe, args))})")

    def build(self, schema: Schema, bound: Sequence[Any]) -> Any:
        """Append an op whose arguments are in the schema's order."""
        types = [type_of(m) for m in infer(schema, [meta_of(v) for v in bound])]
        operands = [self.argument(a.type, v) for a, v in zip(schema.arguments, bound, strict=True)]
        results = self.op(schema.name, operands, types)
        return results[0] if len(results) == 1 else tuple(results)

    def argument(self, type_: SchemaType, value: Any) -> SSAValue:
        """Make a Python value or SSA value an operand of the schema type `type_`; constants and lists become ops."""
        if isinstance(value, (list, tuple)):
            elements = [self.argument(SchemaType(type_.base), v) for v in value]
            return self.list(elements, _element_type(type_, elements))
        if isinstance(value, SSAValue):
            return value
        if type_.base == "float" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return self.constant(value)

    # --- What is known of a value ---

    def shape(self, x: SSAValue) -> list[Any]:
        """List the sizes of a tensor: ints, or the results of `aten.size.int` where they are dynamic."""
        assert isinstance(x.type, TensorType)
        return [
            d if d is not None else self.op("aten.size.int", (x, self.constant(i)), (INT,))[0]
            for i, d in enumerate(x.type.shape or ())
        ]

    def dtype(self, x: SSAValue) -> DType:
        assert isinstance(x.type, TensorType)
        assert x.type.dtype is not None
        return x.type.dtype

    def to(self, x: SSAValue, dtype: DType) -> SSAValue:
        """Convert a tensor to a dtype, as `x.to(dtype)` does; one that has it already stays."""
        return x if self.dtype(x) is dtype else self.call("aten.to.dtype", x, dtype)


def bind(schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any] | None:
    """Order the arguments of a call as `schema` has them, with defaults; return None where they do not fit."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if len(args) > len(positional) or schema.is_mutable or schema.is_vararg:
        return None
    if any(k not in schema.index for k in kwargs):
        return None
    bound: list[Any] = []
    for i, argument in enumerate(schema.arguments):
        if i < len(args) and not argument.kwarg_only:
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        elif argument.default is not REQUIRED:
            bound.append(argument.default)
            continue
        else:
            return None
        if not fits(argument.type, value):
            return None
        if argument.type.is_list and argument.type.size and isinstance(value, int):
            value = [value] * argument.type.size
        bound.append(value)
    return bound


def fits(type_: SchemaType, value: Any) -> bool:
    """Tell whether `value` may be passed for an argument of a schema type."""
    if value is None:
        return type_.is_optional
    if type_.is_list:
        if isinstance(value, SSAValue):
            return isinstance(value.type, ListType)
        if isinstance(value, (list, tuple)):
            return all(fits(SchemaType(type_.base, type_.elements_optional), v) for v in value)
        return type_.size is not None and fits(SchemaType(type_.base), value)
    if isinstance(value, SSAValue):
        known = python_value(value)
        if known is not value and not isinstance(known, list):
            return fits(type_, known)
        if isinstance(value.type, TensorType):
            return type_.is_tensor
        kinds = {"int": (INT,), "float": (FLOAT, INT), "bool": (BOOL,), "Scalar": (INT, FLOAT, BOOL, NUMBER)}
        return value.type in kinds.get(type_.base, ())
    match type_.base:
        case "Tensor":
            return False
        case "Scalar":
            return isinstance(value, (int, float, complex))
        case "int" | "ScalarType" | "Layout" | "MemoryFormat":
            return isinstance(value, (int, DType)) and not isinstance(value, bool)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str)


def _element_type(type_: SchemaType, elements: Sequence[SSAValue]) -> Attribute:
    scalars = {"int": INT, "float": FLOAT, "bool": BOOL, "Scalar": NUMBER}
    if type_.base in scalars:
        return scalars[type_.base]
    types = {e.type for e in elements}
    if len(types) == 1:
        return types.pop()
    return optional_of(vtensor()) if type_.elements_optional else vtensor()


def _describe(value: Any) -> str:
    return str(value.type) if isinstance(value, SSAValue) else repr(value)
