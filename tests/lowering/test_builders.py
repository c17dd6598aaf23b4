"""The builders that rules are written with: two kinds, over the ops of a target, and a context for each rule."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, replace

import pytest
from xdsl.ir import Block

from flambeau.ir import dtypes
from flambeau.ir.builder import OpBuilder
from flambeau.lowering.builder import RuleContext
from flambeau.lowering.combining import JOINS, Updating
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.stablehlo.ops import StablehloOps
from flambeau.lowering.tosa.ops import TosaOps
from flambeau.lowering.verbs import RuleBuilder, window_lists, window_properties
from flambeau.lowering.whole.builder import WholeBuilder
from flambeau.lowering.whole.target import TargetOps

BUILDERS = (LinalgBuilder, WholeBuilder)
TARGETS = (StablehloOps, TosaOps)


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_builder_has_every_verb_and_is_at_most_four_classes_deep(builder: type) -> None:
    assert not inspect.isabstract(builder)
    ours = [c for c in builder.__mro__ if issubclass(c, OpBuilder)]
    assert len(ours) == 4
    assert ours[1] is RuleBuilder


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_gives_every_op_and_builds_on_no_other(target: type) -> None:
    assert not inspect.isabstract(target)
    assert target.__mro__[1] is TargetOps


def test_a_loop_nest_has_no_target() -> None:
    assert not hasattr(LinalgBuilder(Block()), "target")


def test_a_context_holds_inside_and_is_undone_by_an_error() -> None:
    b = LinalgBuilder(Block())
    outer = b.context = RuleContext((((2, None), dtypes.float32),))

    def fail() -> None:
        with b.within(replace(outer, zero_points=(3, 0))):
            assert b.context.zero_points == (3, 0)
            assert (b.out_shape, b.out_dtype) == ((2, None), dtypes.float32)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert b.context is outer


def test_a_context_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        RuleContext().length = 3  # type: ignore[misc]


def test_64_bit_integers_are_an_option_of_tosa() -> None:
    widths = [
        WholeBuilder(Block(), lambda b, narrow=narrow: TosaOps(b, narrow)).target.held(dtypes.int64.builtin)
        for narrow in (True, False)
    ]
    assert widths == [dtypes.int32.builtin, dtypes.int64.builtin]


def test_windows_come_back_from_their_attributes() -> None:
    assert window_lists(window_properties([2, 1], [1, 3])) == ([2, 1], [1, 3])


@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "prod", "multiply", "amax", "amin"])
def test_every_reduction_of_a_scatter_combines_and_starts(reduce: str) -> None:
    how = Updating(reduce, False, dtypes.int32)
    assert how.kind in JOINS
    assert how.start in (0, 1, dtypes.int32.min, dtypes.int32.max)
