"""The model zoo, compiled unedited and run: the numbers are those of eager PyTorch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import flambeau
from flambeau.testing.models import MODELS

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("_verifying_compiler")]

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")
BATCH, SEQUENCE = 2, 7
TOLERANCE = 1e-4


@cache
def model(name: str, small: bool = True) -> torch.nn.Module:
    return MODELS[name].build(small=small)


def compiled(name: str, output_type: str, dynamic: bool = False, small: bool = True) -> flambeau.Module:
    zoo = MODELS[name]
    inputs = zoo.inputs(BATCH, SEQUENCE, small=small)
    shapes = zoo.dynamic_shapes() if dynamic else None
    return flambeau.compile(model(name, small), (), inputs, dynamic_shapes=shapes, output_type=output_type)


def assert_close(actual: Any, expected: Any) -> None:
    """Equal trees (a cache object is its tensors), and a relative error of each leaf within the tolerance."""
    actual_leaves, actual_tree = pytree.tree_flatten(actual)
    expected_leaves, expected_tree = pytree.tree_flatten(expected)
    assert actual_tree == expected_tree
    assert any(isinstance(leaf, torch.Tensor) for leaf in expected_leaves)
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert a.shape == e.shape
        assert a.dtype == e.dtype
        error = ((a.double() - e.double()).abs().max() / e.double().abs().max().clamp(min=1e-6)).item()
        assert error <= TOLERANCE


def check(
    name: str, target: str, dynamic: bool, small: bool, sizes: list[tuple[int, int]], engine: str = "iree"
) -> None:
    module = compiled(name, target, dynamic, small)
    run = flambeau.load(module, engine=engine)
    for batch, sequence in sizes:
        inputs = MODELS[name].inputs(batch, sequence, small=small)
        with torch.no_grad():
            expected = model(name, small)(**inputs)
        assert_close(run(**inputs), expected)


OF_ONE_SIZE = {
    "linalg-on-tensors": tuple(MODELS),
    "stablehlo": ("t5-small", "whisper-tiny-encoder"),
    "tosa": ("bert-base", "convnext-tiny"),
}
OF_MANY_SIZES = {
    "linalg-on-tensors": ("resnet-50", "t5-small"),
    "stablehlo": ("resnet-50",),
    "tosa": ("opt-125m",),
}
"""A sample; `--full-models` has the rest, and `flambeau cts --suite models` many more."""


def sampled(chosen: dict[str, tuple[str, ...]]) -> list[Any]:
    """All models on all targets; those that are not chosen run with `--full-models`."""
    return [
        pytest.param(name, target, marks=() if name in chosen[target] else pytest.mark.full_models)
        for target in TARGETS
        for name in MODELS
    ]


@pytest.mark.parametrize(("name", "target"), sampled(OF_ONE_SIZE))
def test_a_model_runs_as_in_eager(name: str, target: str) -> None:
    """S55: Unmodified, with its cache where it has one."""
    check(name, target, dynamic=False, small=True, sizes=[(BATCH, SEQUENCE)])


@pytest.mark.parametrize(("name", "target"), sampled(OF_MANY_SIZES))
def test_one_compilation_serves_many_sizes(name: str, target: str) -> None:
    """S89: Batch and, for text, sequence length are dynamic down to the machine code."""
    check(name, target, dynamic=True, small=True, sizes=[(BATCH, SEQUENCE), (3, 11)])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_on_xla(name: str) -> None:
    """Half of them static, the others specialised to two sizes; `--full-models` does both with each."""
    dynamic = list(MODELS).index(name) % 2 == 0
    check(name, "stablehlo", dynamic, small=True, sizes=[(BATCH, SEQUENCE), (3, 11)][: 1 + dynamic], engine="xla")


@pytest.mark.parametrize("name", MODELS)
def test_the_text_of_a_model_is_real_mlir(name: str, request: pytest.FixtureRequest) -> None:
    """Every stage verifies in real MLIR: torch-mlir's, IREE's or both; pretty and generic, of known or open sizes."""
    for dynamic in (False, True) if request.config.getoption("--full-models") else (list(MODELS).index(name) % 2 == 0,):
        raw = compiled(name, "raw", dynamic)
        verify_in_torch_mlir(raw.text())
        contract = flambeau.compile(raw, output_type="torch")
        verify_in_torch_mlir(contract.text())
        linalg = flambeau.compile(contract, output_type="linalg-on-tensors")
        for generic in (False, True):
            verify_in_iree(linalg.text(generic=generic))
        linalg.verify()
        for target in ("stablehlo", "tosa"):
            lowered = flambeau.compile(contract, output_type=target)
            lowered.verify()
            verify_in_iree(lowered.text(generic=True))
            if target == "tosa":  # of which the two MLIRs have different pretty forms
                verify_in_torch_mlir(lowered.text())
                verify_in_torch_mlir(lowered.text(generic=True))


@pytest.mark.full_models
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_published_size_on_xla(name: str) -> None:
    check(name, "stablehlo", dynamic=False, small=False, sizes=[(BATCH, SEQUENCE)], engine="xla")
    check(name, "stablehlo", dynamic=True, small=False, sizes=[(2, 64), (1, 48)], engine="xla")


@pytest.mark.full_models
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_published_size(name: str, target: str) -> None:
    """S100: at the published size, with `--full-models`."""
    check(name, target, dynamic=False, small=False, sizes=[(BATCH, SEQUENCE)])


@pytest.mark.full_models
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_published_size_and_dynamic_shapes(name: str, target: str) -> None:
    check(name, target, dynamic=True, small=False, sizes=[(2, 64), (1, 48)])


def verify_in_torch_mlir(text: str) -> None:
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.dialects import torch as torch_dialect

    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        assert ir.Module.parse(text, context).operation.verify()


def verify_in_iree(text: str) -> None:
    from iree.compiler import ir

    with ir.Context() as context:
        assert ir.Module.parse(text, context).operation.verify()
