"""The models in examples/: checkpoints of PyTorch models give PyTorch's numbers, with no PyTorch about."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.ir.safetensors_file import read_safetensors
from flambeau.python_files import import_file

CHECKPOINTS = Path(__file__).parent / "checkpoints"
EXAMPLE = Path(__file__).parents[3] / "examples" / "nn_models.py"


def example() -> Any:
    return import_file(EXAMPLE)


def small(name: str) -> Any:
    models = example()
    if name == "resnet50":
        return models.ResNet(stem=4, widths=(8, 16), depths=(1, 2), classes=5)
    if name == "gpt2":
        return models.GPT2(vocabulary=24, positions=12, width=16, layers=2, heads=2)
    return models.Bert(vocabulary=24, positions=12, width=16, inner=32, layers=2, heads=2)


@pytest.mark.engine
@pytest.mark.parametrize("name", ["resnet50", "gpt2", "bert"])
def test_a_checkpoint_gives_the_numbers_of_pytorch(name: str) -> None:
    model = small(name).eval()
    model.load_state_dict(CHECKPOINTS / f"{name}.safetensors")
    answers = read_safetensors(CHECKPOINTS / f"{name}.answers.safetensors")
    x = answers["input"]
    shape = [None, 3, 32, 32] if name == "resnet50" else [None, None]
    module = flambeau.trace(model, nn.TensorSpec(shape, "f32" if name == "resnet50" else "i64"))
    run = flambeau.load(flambeau.compile(module), profile="quick", device="local-sync")
    results = run(x)
    for i, result in enumerate(results if isinstance(results, (list, tuple)) else [results]):
        expected = answers[f"result{i}"]
        assert result.shape == expected.shape
        assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "bert"])
def test_the_names_of_the_weights_are_pytorch_s(name: str) -> None:
    checkpoint = read_safetensors(CHECKPOINTS / f"{name}.safetensors")
    ours = small(name).state_dict()
    assert set(ours) == set(checkpoint)
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in checkpoint.items()}


def test_tracing_twelve_layers_takes_less_than_a_second() -> None:
    model = example().GPT2(vocabulary=64, positions=64, width=48, layers=12, heads=12).eval()
    spec = nn.TensorSpec([None, None], "i64")

    def seconds() -> float:
        start = time.process_time()
        flambeau.trace(model, spec)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 1
