"""Every op of the registry that computes with Python numbers or lists of them alone, on numbers of the run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import flambeau
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import Schema

KINDS: dict[str, list[Any]] = {"int": [3, -7, 2], "float": [0.625, -2.5, 1.75], "bool": [True, False, True]}
KINDS["Scalar"] = [2.5, -3, 4]
TYPES = {int: "!torch.int", float: "!torch.float", bool: "!torch.bool"}

NOT_NEGATIVE = ("log", "log10", "log1p", "sqrt", "pow", "__lshift__", "__rshift__", "gamma", "lgamma", "factorial")
WITHIN_ONE = ("asin", "acos", "atanh")
NOT_COMPARED = {
    "aten._cufft_get_plan_cache_max_size": "it is about a GPU", "aten._cufft_get_plan_cache_size": "it is about a GPU",
    "aten.polar.Scalar_Scalar": "complex numbers are no results",
    "aten.pow.int_to_int": "PyTorch gives a float, unlike its schema",
}  # fmt: skip


def is_on_numbers(schema: Schema) -> bool:
    types = [a.type for a in (*schema.arguments, *schema.returns)]
    is_number = all(type_.base in KINDS for type_ in types) and not any(r.type.is_list for r in schema.returns)
    return bool(schema.arguments and schema.returns) and is_number and schema.namespace in ("aten", "prim")


SCHEMAS = [s for s in map(registry.schema, registry.snapshot().declarations) if s is not None and is_on_numbers(s)]


def arguments(schema: Schema, turn: int) -> list[Any]:
    """Choose arguments: others for each turn and place, in the domain of the op."""
    chosen: list[Any] = []
    for i, argument in enumerate(schema.arguments):
        values = KINDS[argument.type.base]
        if argument.type.is_list:
            chosen.append(list(values))
        elif schema.base_name in WITHIN_ONE:
            chosen.append({"int": 0}.get(argument.type.base, 0.3))
        else:
            value = values[(turn + i) % 3]
            value = abs(value) if schema.base_name in NOT_NEGATIVE else value
            chosen.append(abs(value) + 1 if schema.base_name == "acosh" else value)
    return chosen


def program(calls: Sequence[tuple[Schema, list[Any]]], expected: Sequence[tuple[Any, ...]]) -> str:
    """Write a function that takes all arguments and gives the results of all calls."""
    parameters: list[str] = []
    body: list[str] = []
    results: list[tuple[str, str]] = []

    def parameter(value: Any) -> str:
        parameters.append(f"%a{len(parameters)}: {TYPES[type(value)]}")
        return parameters[-1].split(":")[0]

    for i, ((schema, args), answers) in enumerate(zip(calls, expected, strict=True)):
        operands, types = [], []
        for j, value in enumerate(args):
            if isinstance(value, list):
                inner = TYPES[type(value[0])]
                listed = ", ".join(map(parameter, value))
                body.append(f"%l{i}_{j} = torch.prim.ListConstruct {listed} : ({', '.join([inner] * len(value))}) "
                            f"-> !torch.list<{inner.removeprefix('!torch.')}>")  # fmt: skip
                operands.append(f"%l{i}_{j}")
                types.append(f"!torch.list<{inner.removeprefix('!torch.')}>")
            else:
                operands.append(parameter(value))
                types.append(TYPES[type(value)])
        given = [TYPES[type(a)] for a in answers]
        names = [f"%r{i}"] if len(given) == 1 else [f"%r{i}#{k}" for k in range(len(given))]
        results += zip(names, given, strict=True)
        count = "" if len(given) == 1 else f":{len(given)}"
        body.append(f'%r{i}{count} = torch.operator "torch.{schema.name}"({", ".join(operands)}) : '
                    f"({', '.join(types)}) -> ({', '.join(given)})")  # fmt: skip
    promised = ", ".join(t for _, t in results)
    body.append(f"func.return {', '.join(n for n, _ in results)} : {promised}")
    return f"func.func @main({', '.join(parameters)}) -> ({promised}) {{\n  " + "\n  ".join(body) + "\n}\n"


def eager(schema: Schema, args: list[Any]) -> tuple[Any, ...]:
    packet = getattr(getattr(torch.ops, schema.namespace), schema.base_name)
    answer = getattr(packet, schema.overload_name or "default")(*args)
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.engine
@pytest.mark.parametrize("part", range(4))
def test_ops_on_numbers(part: int) -> None:
    schemas = [s for s in SCHEMAS if s.name not in NOT_COMPARED][part::4]
    assert len(schemas) > 50
    calls = [(schema, arguments(schema, turn)) for schema in schemas for turn in range(2)]
    expected = [eager(*call) for call in calls]
    numbers = [n for _, args in calls for a in args for n in (a if isinstance(a, list) else [a])]
    run = flambeau.load(flambeau.compile(program(calls, expected)), profile="quick", device="local-sync")
    actual = iter(run(*numbers))
    for (schema, args), wanted in zip(calls, expected, strict=True):
        # PyTorch rounds some functions of a `Scalar` to 32 bits.
        tolerance = 1e-6 if any(a.type.base == "Scalar" for a in schema.arguments) else 1e-12
        for number in wanted:
            got = next(actual)
            assert type(got) is type(number), schema.name
            assert got == pytest.approx(number, rel=tolerance, abs=tolerance, nan_ok=True), (schema.name, args)
