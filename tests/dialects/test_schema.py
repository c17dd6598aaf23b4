"""Schemas: every declaration of PyTorch's registry, read as PyTorch reads it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import REQUIRED, Argument, Schema, parse_schema


def test_every_declaration_parses() -> None:
    declarations = registry.snapshot().declarations
    assert len(declarations) == 4199
    for name in (*declarations, *registry.EXTENSIONS):
        schema = registry.schema(name)
        assert schema is not None
        assert schema.name == name


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Schema, object]]:
    """Our schemas with PyTorch's own."""
    found = list(_pairs())
    assert len(found) == len(registry.snapshot().declarations)
    return found


def _pairs() -> Iterator[tuple[Schema, object]]:
    torch = pytest.importorskip("torch")
    import_module("torch._prims")  # registers its namespace
    for theirs in torch._C._jit_get_all_schemas():
        namespace, base = theirs.name.split("::")
        if namespace in registry.NAMESPACES:
            name = f"{namespace}.{base}" + (f".{theirs.overload_name}" if theirs.overload_name else "")
            # Whatever else has been imported may have added ops.
            if (ours := registry.schema(name)) is not None:
                yield ours, theirs


def test_arguments_and_results_are_pytorchs(pairs) -> None:
    for ours, theirs in pairs:
        named = [a.name for a in theirs.arguments if a.name]
        assert [a.name for a in ours.arguments if not a.name.startswith("_") or a.name in named] == named, ours.name
        assert [a.kwarg_only for a in ours.arguments] == [a.kwarg_only for a in theirs.arguments], ours.name
        assert [r.name for r in ours.returns] == [r.name for r in theirs.returns], ours.name


def test_defaults_are_pytorchs(pairs) -> None:
    for ours, theirs in pairs:
        for mine, his in zip(ours.arguments, theirs.arguments, strict=True):
            assert (mine.default is not REQUIRED) == his.has_default_value(), (ours.name, mine.name)
            if mine.default is not REQUIRED:
                assert mine.default == his.default_value, (ours.name, mine.name)
                assert type(mine.default) is type(his.default_value), (ours.name, mine.name)


def test_alias_info_is_pytorchs(pairs) -> None:
    """S62: what is written, and what shares storage with what."""
    for ours, theirs in pairs:
        assert ours.is_mutable == theirs.is_mutable, ours.name
        for mine, his in zip((*ours.arguments, *ours.returns), (*theirs.arguments, *theirs.returns), strict=True):
            assert _alias(mine) == _torch_alias(mine, his.alias_info), (ours.name, mine.name)


def _alias(argument: Argument) -> object:
    if argument.alias is None:
        return None
    return argument.alias.is_write, set(argument.alias.sets), set(argument.alias.after)


def _torch_alias(argument: Argument, info) -> object:
    if info is None:
        return None
    before, after = ({s.removeprefix("alias::") for s in sets} for sets in (info.before_set, info.after_set))
    if argument.type.is_list and argument.type.is_tensor and not before:
        # `Tensor(a!)[]`: PyTorch keeps the sets of a list's elements where Python cannot see them.
        assert argument.alias is not None
        before, after = set(argument.alias.sets), set(argument.alias.after)
    return info.is_write, before, after


@pytest.mark.parametrize(
    "text, spelt",
    [
        ("(Tensor self) -> Tensor", ["Tensor"]),
        ("(Tensor? x, Tensor?[] y, Tensor[]? z) -> Tensor", ["Tensor?", "Tensor?[]", "Tensor[]?"]),
        ("(SymInt[2] size, int[1]? dim=None) -> Tensor", ["int[2]", "int[1]?"]),
        ("(Dict(str, t)(a!) self, str key) -> ()", ["Dict(str,t)", "str"]),
        ("(t[](a!) self, t(c -> *) el) -> t[](a!)", ["t[]", "t"]),
    ],
)
def test_types_are_read(text: str, spelt: list[str]) -> None:
    assert [str(a.type) for a in parse_schema("test.op", text).arguments] == spelt


def test_one_number_stands_for_a_list_of_fixed_length() -> None:
    schema = registry.schema("aten.max_pool2d")
    assert schema is not None
    assert schema.arguments[schema.index["padding"]].default == [0, 0]
    assert schema.arguments[schema.index["dilation"]].default == [1, 1]


@pytest.mark.parametrize("text", ["(Tensor self", "Tensor self) -> Tensor", "(Tensor @self) -> Tensor"])
def test_malformed_declarations_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_schema("test.op", text)
