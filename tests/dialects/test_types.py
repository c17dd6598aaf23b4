"""The types of the torch dialect: spelling, both ways with torch-mlir, and subtyping."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from xdsl.dialects.builtin import f32
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from flambeau.dialects.context import make_context
from flambeau.dialects.torch import types
from flambeau.dialects.torch.types import is_subtype, list_of, optional_of, tensor, tuple_of, vtensor
from flambeau.ir import dtypes

CONTEXT = make_context()

SPELLINGS = [
    # S68: what is known of shape and dtype.
    "!torch.tensor<[3,4,?],unk>",
    "!torch.vtensor<*,f32>",
    "!torch.tensor",
    "!torch.vtensor",
    "!torch.vtensor<[],f32>",
    "!torch.tensor<[?,?],f16>",
    "!torch.vtensor<[2,?],si64>",
    "!torch.vtensor<[0,1],ui8>",
    "!torch.vtensor<[2],i1>",
    "!torch.vtensor<[2],bf16>",
    "!torch.vtensor<[2],f64>",
    "!torch.vtensor<[2],f8E4M3FN>",
    "!torch.vtensor<[2],f8E5M2>",
    "!torch.vtensor<[2],complex<f32>>",
    "!torch.vtensor<[1],!torch.qint8>",
    # S70: Python's types.
    "!torch.int",
    "!torch.float",
    "!torch.bool",
    "!torch.none",
    "!torch.str",
    "!torch.number",
    "!torch.any",
    "!torch.Device",
    "!torch.Generator",
    "!torch.LinearParams",
    "!torch.qint8",
    "!torch.quint8",
    "!torch.qint16",
    "!torch.qint32",
    "!torch.list<int>",
    "!torch.list<vtensor<[2,?],f32>>",
    "!torch.list<optional<tensor>>",
    "!torch.list<list<int>>",
    "!torch.optional<int>",
    "!torch.optional<list<int>>",
    "!torch.tuple<>",
    "!torch.tuple<int, vtensor, list<int>>",
    "!torch.union<int, float, none>",
    "!torch.dict<str, tensor>",
    "!torch.dict<str, list<int>>",
    '!torch.nn.Module<"__torch__.TestModule">',
    '!torch.optional<nn.Module<"a">>',
]


def parse(text: str) -> object:
    return Parser(CONTEXT, text).parse_type()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_round_trips(spelling: str) -> None:
    """S67, S68, S70."""
    assert str(parse(spelling)) == spelling


@pytest.mark.peer
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_is_upstreams(spelling: str, upstream) -> None:
    """S67, S68, S70."""
    program = f"func.func private @f({spelling})"
    assert f"@f({spelling})" in upstream.text(program)


@pytest.mark.parametrize(
    "old, new",
    [
        ("!torch.list<!torch.int>", "!torch.list<int>"),
        ("!torch.list< !torch.int>", "!torch.list<int>"),
        ("!torch.optional<!torch.list<!torch.int>>", "!torch.optional<list<int>>"),
        ("!torch.dict<!torch.str, !torch.tensor<[2],f32>>", "!torch.dict<str, tensor<[2],f32>>"),
        ("!torch.vtensor<[ 2],f32>", "!torch.vtensor<[2],f32>"),
        ("!torch.vtensor<[?, ?, ?, ?], f32>", "!torch.vtensor<[?,?,?,?],f32>"),
        ("!torch.vtensor<*,unk>", "!torch.vtensor"),
    ],
)
def test_older_spellings_are_read(old: str, new: str) -> None:
    """S70: the spellings of 2021 are read, and today's are printed."""
    assert str(parse(old)) == new


@pytest.mark.parametrize("suffix", ["list<>", "dict<int>", "optional<int, int>", "vtensor<[-2],f32>", "vtensor<[2]>"])
def test_malformed_types_are_refused(suffix: str) -> None:
    with pytest.raises(ParseError):
        parse(f"!torch.{suffix}")


def test_factories_give_one_object_per_type() -> None:
    assert vtensor((2, None), f32) is vtensor((2, None), f32)
    assert parse("!torch.vtensor<[2,?],f32>") == vtensor((2, None), f32)
    assert list_of(types.INT) is list_of(types.INT)
    assert optional_of(tensor()) is optional_of(tensor())
    assert tuple_of([types.INT]) is tuple_of((types.INT,))


def test_what_a_tensor_type_knows() -> None:
    """S69: an unknown dtype is a value of its own."""
    known, unranked, unknown = vtensor((2, None), f32), vtensor(None, f32), vtensor((2,), None)
    assert (known.shape, known.rank, known.dtype) == ((2, None), 2, dtypes.float32)
    assert (unranked.shape, unranked.rank) == (None, None)
    assert (unknown.element_type, unknown.dtype) == (None, None)
    assert str(unknown) == "!torch.vtensor<[2],unk>"


def test_twins() -> None:
    """S67: a tensor type and its value twin differ only in kind."""
    assert types.to_value(tensor((2,), f32)) is vtensor((2,), f32)
    assert types.to_non_value(vtensor((2,), f32)) is tensor((2,), f32)
    assert types.to_value(types.INT) is types.INT


SUBTYPES = [
    ("!torch.int", "!torch.number"),
    ("!torch.none", "!torch.optional<int>"),
    ("!torch.int", "!torch.optional<number>"),
    ("!torch.list<int>", "!torch.any"),
    ("!torch.vtensor<[2,3],f32>", "!torch.vtensor<[2,?],f32>"),
    ("!torch.vtensor<[2,3],f32>", "!torch.vtensor<*,f32>"),
    ("!torch.vtensor<[2,3],f32>", "!torch.vtensor<[2,3],unk>"),
    ("!torch.tuple<int, float>", "!torch.tuple<number, any>"),
    ("!torch.union<int, none>", "!torch.optional<int>"),
]

NOT_SUBTYPES = [
    ("!torch.number", "!torch.int"),
    ("!torch.bool", "!torch.number"),
    ("!torch.tensor", "!torch.vtensor"),
    ("!torch.vtensor", "!torch.vtensor<[2],f32>"),
    ("!torch.vtensor<[2],f32>", "!torch.vtensor<[3],f32>"),
    ("!torch.list<int>", "!torch.list<number>"),
    ("!torch.optional<int>", "!torch.int"),
    ('!torch.nn.Module<"a">', '!torch.nn.Module<"b">'),
]


@pytest.mark.parametrize("sub, wider", SUBTYPES)
def test_subtype(sub: str, wider: str) -> None:
    assert is_subtype(parse(sub), parse(wider))


@pytest.mark.parametrize("sub, wider", NOT_SUBTYPES)
def test_not_a_subtype(sub: str, wider: str) -> None:
    assert not is_subtype(parse(sub), parse(wider))


@pytest.mark.peer
def test_subtyping_is_upstreams(upstream) -> None:
    """`torch.derefine` is legal exactly from a subtype to a supertype."""
    spellings = sorted({s for pair in (*SUBTYPES, *NOT_SUBTYPES) for s in pair})
    for sub, wider in product(spellings, spellings):
        program = f"func.func @f(%x: {sub}) {{\n  %0 = torch.derefine %x : {sub} to {wider}\n  return\n}}"
        assert is_subtype(parse(sub), parse(wider)) == (not upstream.error(program)), (sub, wider)


@pytest.mark.parametrize("dtype", [d for d in dtypes.DTYPES if d.is_float], ids=str)
def test_the_limits_of_floats_are_those_of_pytorch(dtype: dtypes.DType) -> None:
    info = torch.finfo(dtype.torch)
    assert dtype.largest == info.max
    if dtype.size > 1:
        assert 2.0**-dtype.fraction_bits == info.eps
        assert dtype.smallest == info.smallest_normal * info.eps
