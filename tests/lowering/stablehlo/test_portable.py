"""Static programs as portable artefacts, StableHLO's own format: JAX's serialiser takes StableHLO and CHLO alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.engines.errors import RunError
from flambeau.frontends.fx.compile import export
from flambeau.testing.cases import Case
from flambeau.testing.models import MODELS
from flambeau.testing.suites import load_suite

mlir = pytest.importorskip("jax.extend.mlir")

VERSION = "1.10.0"
NOT_STATIC = frozenset({"item", "combinations", "masked_select", "unique", "unique_consecutive", "nonzero", "argwhere"})
"""Results whose sizes are known when the program has run, and a number as a result."""


def foreign(module: flambeau.Module) -> set[str]:
    """Find the ops of a module that are neither StableHLO's nor what holds a program together."""
    own = ("stablehlo", "chlo", "func", "builtin")
    return {op.name for op in module.op.walk() if op.name.split(".")[0] not in own}


def serialised(module: flambeau.Module) -> bytes:
    artefact: bytes = mlir.serialize_portable_artifact(module.text(weights="literal"), VERSION)
    return artefact


@pytest.mark.long(sample=2)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_a_portable_artefact(name: str) -> None:
    """S93: ."""
    zoo = MODELS[name]
    module = flambeau.compile(zoo.build(small=True), (), zoo.inputs(2, 7, small=True), output_type="stablehlo")
    assert not foreign(module)
    assert len(serialised(module)) > 1000


def compiled(case: Case) -> flambeau.Module | None:
    """Compile the first sample of a case; None where PyTorch or we do not take it."""
    torch.manual_seed(case.seed)
    sample = next(iter(case.samples()), None)
    if sample is None:
        return None
    call = sample.calls[0]
    try:
        return flambeau.compile(export(sample.module, call.args, dict(call.kwargs), None), output_type="stablehlo")
    except CompileError:
        return None


def failures(cases: Iterable[Case]) -> tuple[int, list[str]]:
    """How many cases compile, and which of them are no artefacts."""
    count, bad = 0, []
    for case in cases:
        module = compiled(case)
        if module is None or case.name in NOT_STATIC:
            continue
        count += 1
        try:
            serialised(module)
        except ValueError as error:
            bad.append(f"{case.id}: {foreign(module)} {error}")
    return count, bad


@pytest.mark.long
def test_a_sample_of_the_op_cases_are_portable_artefacts() -> None:
    """One case in 20; `--full-models` has them all."""
    cases = list(load_suite("ops", ["float32"]).cases.values())
    count, bad = failures(cases[::20])
    assert not bad
    assert count > 25


@pytest.mark.full_models
@pytest.mark.parametrize("suite, least", [("ops", 580), ("models", 160)])
def test_every_case_is_a_portable_artefact(suite: str, least: int) -> None:
    count, bad = failures(load_suite(suite, ["float32"]).cases.values())
    print(f"{suite}: {count} artefacts")
    assert not bad
    assert count >= least


@pytest.mark.engine
def test_a_check_is_a_composite_that_does_nothing_where_nobody_knows_it() -> None:
    module = flambeau.compile(lambda x, i: x[i], (torch.randn(5), torch.tensor([1, 2])), output_type="stablehlo")
    text = str(module)
    assert 'stablehlo.composite "flambeau.assert"' in text
    assert 'message = "index out of range"' in text
    with pytest.raises(RunError, match="index out of range"):
        flambeau.load(module, profile="quick")(torch.randn(5), torch.tensor([1, 7]))


@pytest.mark.engine
def test_a_cache_write_at_a_position_of_the_run_time_is_an_update() -> None:
    def write(cache: torch.Tensor, row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        at = position.item()
        torch._check(at >= 0)
        torch._check(at < 16)
        return torch.slice_scatter(cache, row, 1, at, at + 1)

    args = (torch.zeros(2, 16, 4), torch.ones(2, 1, 4), torch.tensor(3))
    module = flambeau.compile(write, args, output_type="stablehlo")
    assert not foreign(module)
    assert "stablehlo.dynamic_update_slice" in str(module)
    torch.testing.assert_close(flambeau.load(module, profile="quick")(*args), write(*args))
