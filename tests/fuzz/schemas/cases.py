"""Random calls of an overload: its schema says what there is to choose, recipes what fits together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import torch
from fuzz.schemas import exclusions, index_recipes, norm_recipes, shape_recipes
from fuzz.schemas.recipes import RECIPES
from fuzz.schemas.tensors import ALL, COMPLEX, FLOATS, INTS, Chooser, TensorArgument

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import REQUIRED, Argument, Schema
from flambeau.infer.builder import rules as infer_rules
from flambeau.ir import dtypes
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.passes.decompose import decompositions

FAMILIES = (index_recipes, norm_recipes, shape_recipes)
"""Modules that declare recipes."""

_CHOICES = {
    "rounding_mode": (None, "floor", "trunc"), "approximate": ("none", "tanh"), "indexing": ("ij", "xy"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"), "side": (None, "left", "right"), "mode": ("constant",),
    "norm": (None,),
}  # fmt: skip


@cache
def operator(name: str) -> Any:
    """PyTorch's operator of a name; None where it has none."""
    namespace, base, *overload = name.split(".", 2)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload[0] if overload else "default")
    except AttributeError:
        return None


@cache
def overloads() -> tuple[str, ...]:
    """List the overloads that we have a rule of any kind for, and that can be asked for something definite."""
    names = sorted({*linalg_rules(), *decompositions(), *infer_rules()})
    return tuple(name for name in names if _is_asked(name))


def _is_asked(name: str) -> bool:
    schema = registry.schema(name)
    return (
        schema is not None
        and name.startswith("aten.")
        and not schema.is_mutable
        and any(r.type.is_tensor for r in schema.returns)
        and not exclusions.RANDOM_OR_EMPTY.match(name)
        and name not in exclusions.NO_TENSOR_RESULT
        and name not in exclusions.NOT_CALLED_DIRECTLY
        and operator(name) is not None
    )


@dataclass(frozen=True)
class Case:
    """A call: an overload with an argument for each of its schema."""

    name: str
    arguments: tuple[Any, ...]

    @property
    def base(self) -> str:
        """The name without dialect and overload."""
        return self.name.split(".")[1]

    @property
    def schema(self) -> Schema:
        found = registry.schema(self.name)
        assert found is not None
        return found

    def values(self) -> list[Any]:
        """Make the arguments for PyTorch."""
        return [_value(a) for a in self.arguments]

    def call(self, values: Sequence[Any]) -> Any:
        """Call eager PyTorch."""
        positional = [v for a, v in zip(self.schema.arguments, values, strict=True) if not a.kwarg_only]
        named = {a.name: v for a, v in zip(self.schema.arguments, values, strict=True) if a.kwarg_only}
        return operator(self.name)(*positional, **named)

    def __str__(self) -> str:
        given = list(zip(self.schema.arguments, self.arguments, strict=True))
        while given and given[-1][0].default is not REQUIRED and given[-1][0].default == given[-1][1]:
            given.pop()
        texts = [f"{a.name}={_text(v)}" if a.kwarg_only else _text(v) for a, v in given]
        return f"torch.ops.{self.name}({', '.join(texts)})"


def _value(argument: Any) -> Any:
    if hasattr(argument, "make"):
        return argument.make()
    return [_value(a) for a in argument] if isinstance(argument, list) else argument


def _text(argument: Any) -> str:
    if hasattr(argument, "make"):
        return str(argument)
    if isinstance(argument, list):
        return f"[{', '.join(map(_text, argument))}]"
    return "math.inf" if argument == float("inf") else repr(argument)


@cache
def lowered_overloads() -> tuple[str, ...]:
    """Those of them that can be lowered as they are: others are taken apart when a program is imported."""
    return tuple(n for n in overloads() if n in linalg_rules() or n in decompositions())


def generate(seed: int, pool: Sequence[str] | None = None) -> Case:
    """Generate the case of a seed."""
    rng = Random(seed)
    return Generator(rng, rng.choice(pool or overloads())).case()


def _has_integers(arguments: Sequence[Any]) -> bool:
    """Whether something that a call names is of integers: then floats may become such."""
    flat = [v for a in arguments for v in (a if isinstance(a, list) else [a])]
    found = [v if isinstance(v, torch.dtype) else getattr(v, "dtype", None) for v in flat]
    return any(d is not None and not d.is_floating_point and not d.is_complex for d in found)


def _without_specials(argument: Any) -> Any:
    if isinstance(argument, list) and not hasattr(argument, "make"):
        return [_without_specials(a) for a in argument]
    if isinstance(argument, TensorArgument) and argument.values == "special":
        return replace(argument, values="plain")
    return argument


class Generator:
    """Chooses the arguments of one call."""

    def __init__(self, rng: Random, name: str) -> None:
        self.c = Chooser(rng)
        self.name = name
        self.base = name.split(".")[1]
        schema = registry.schema(name)
        assert schema is not None
        self.schema: Schema = schema
        self.shape = self.c.shape()
        self.dtype = self.c.dtype(self._pool())
        self.values: str | None = None
        if self.base in exclusions.TIES:
            self.values = "distinct"
        elif self.base in exclusions.NO_LEAST:
            self.values = self.c.rng.choice(("plain", "small", "positive"))

    def _pool(self) -> tuple[torch.dtype, ...]:
        if self.base.startswith(("bitwise", "__and", "__or", "__xor", "__lsh", "__rsh", "gcd", "lcm")):
            return (*INTS, torch.bool)
        if self.base in ("real", "imag", "conj", "view_as_real", "_conj", "angle"):
            return (*COMPLEX, *FLOATS)
        if self.base.startswith(("special_", "igamma")):
            return (torch.float32, torch.float32, torch.float64)
        return ALL if self.c.chance(0.6) else FLOATS

    def case(self) -> Case:
        """Generate a case: fixed arguments first, then what the schema leaves open."""
        recipe = RECIPES.get(self.base)
        given = recipe(self.c, self.name) if recipe is not None else {}
        arguments = []
        for a in self.schema.arguments:
            if a.name in given:
                value = given[a.name]
                if not self._fits(a, value):
                    value = self._choose(a)
            else:
                value = self._choose(a)
            if a.name == "self" and hasattr(value, "shape"):
                self.shape, self.dtype = value.shape, value.dtype
            arguments.append(value)
        is_cast = self.base in exclusions.CASTS and _has_integers(arguments)
        if is_cast or self.base in exclusions.NO_NAN:
            arguments = [_without_specials(a) for a in arguments]
        return Case(self.name, tuple(arguments))

    def _fits(self, a: Argument, value: Any) -> bool:
        is_tensor = hasattr(value, "make") or (isinstance(value, list) and any(hasattr(v, "make") for v in value))
        return a.type.is_tensor == is_tensor or value is None

    def _choose(self, a: Argument) -> Any:
        c, t = self.c, a.type
        if a.default is not REQUIRED and c.chance(0.5) and not (t.is_tensor and a.default is None and c.chance(0.5)):
            return list(a.default) if isinstance(a.default, tuple) else a.default
        if t.is_optional and c.chance(0.3):
            return None
        if t.is_tensor and t.is_list:
            return [self._tensor(a) for _ in range(c.rng.randint(1, 3))]
        if t.is_tensor:
            return self._tensor(a)
        if t.is_list:
            return self._numbers(a)
        return self._number(a)

    def _tensor(self, a: Argument) -> Any:
        c = self.c
        if a.name in ("mask", "condition"):
            return c.tensor(c.like(self.shape), torch.bool, "plain")
        first = self.schema.arguments[0] is a
        dtype = self.dtype if first or c.chance(0.75) else c.dtype(self._pool())
        shape = self.shape if first else c.like(self.shape)
        return c.tensor(shape, dtype, self.values)

    def _numbers(self, a: Argument) -> Any:
        c, rank = self.c, len(self.shape)
        if a.type.base == "bool":
            return [c.chance(0.7) for _ in range(a.type.size or 2)]
        if a.type.base in ("float", "Scalar"):
            return [c.rng.choice((0.5, 1.0, 2.0)) for _ in range(a.type.size or 2)]
        if "dim" in a.name:
            return c.dims(rank)
        if a.name in ("size", "shape"):
            return list(c.shape(0, 3))
        return [c.rng.randint(0, 3) for _ in range(a.type.size or max(rank, 1))]

    def _number(self, a: Argument) -> Any:
        c, rank, base = self.c, len(self.shape), a.type.base
        if base == "ScalarType":
            found = dtypes.from_torch(c.dtype(ALL if c.chance(0.5) else FLOATS))
            return None if a.type.is_optional and c.chance(0.3) else found.torch if found is not None else None
        if base in ("Device", "Layout", "Generator", "MemoryFormat", "Dimname", "Stream"):
            return None if a.type.is_optional else torch.contiguous_format
        if base == "str":
            return c.rng.choice(_CHOICES.get(a.name, (a.default if a.default is not REQUIRED else None,)))
        if base == "bool" and (self.base, a.name) in exclusions.ORDERED:
            return True
        if base == "bool":
            return c.chance(0.5) and a.name not in ("pin_memory", "requires_grad")
        if base == "Scalar":
            return c.number()
        if base == "float":
            return c.rng.choice((0.0, 0.5, 1.0, 2.0, -1.0, 1e-3, 3.0))
        if a.name.startswith(("dim", "axis", "start_dim", "end_dim")):
            return c.dim(rank)
        if a.name == "correction" or a.name == "decimals":
            return c.rng.choice((0, 1, 2))
        if a.name == "reduction":
            return c.rng.randrange(3)
        if a.name in ("index", "start", "end", "k", "length"):
            return c.rng.randint(-3, 4)
        return c.rng.randint(0, 3)
