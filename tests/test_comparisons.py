"""The tables of comparisons, against xDSL's own spelling of `arith`'s predicates."""

from __future__ import annotations

from xdsl.dialects import arith

from flambeau.dialects.stablehlo.attributes import ComparisonDirection
from flambeau.ir.comparisons import CMPF, CMPI, DIRECTIONS, OF_CMPF, OF_CMPI, OPERATORS, SIGNED, UNSIGNED


def test_codes_are_those_of_arith():
    assert list(CMPI) == arith.CMPI_COMPARISON_OPERATIONS
    ordered = {"ne": "une", "uno": "uno"}
    assert all(arith.CMPF_COMPARISON_OPERATIONS[code] == ordered.get(n, f"o{n}") for n, code in CMPF.items())


def test_every_comparison_has_a_spelling_of_each_kind():
    for name in OPERATORS:
        assert OF_CMPI[CMPI[SIGNED[name]]] == OF_CMPI[CMPI[UNSIGNED[name]]] == OF_CMPF[CMPF[name]] == name
    assert set(DIRECTIONS.values()) == set(ComparisonDirection.words)
