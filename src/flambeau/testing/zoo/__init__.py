"""The model zoo of the compatibility tests: many architectures, each small enough to compile in seconds.

    module, args, kwargs = ZOO["bert"].make()

Importing this imports neither torch nor transformers; making a model does. Nothing is downloaded: configurations are
scaled down to two layers of width 32 or so, and weights are random, from a seed that is the model's name. The nine
models in `flambeau.testing.models` are there in their published sizes as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib import import_module

from flambeau.testing.zoo.model import Example, ZooModel, seeded
from flambeau.testing.zoo.transformers import models as transformers_models

__all__ = ["Example", "ZooModel", "ZOO"]

HANDWRITTEN: Mapping[str, Mapping[str, str]] = {
    "vision": {
        "lenet": "images.LeNet", "resnet18": "images.ResNet18", "unet": "images.UNet", "mobilenet": "images.MobileNet",
        "autoencoder": "images.Autoencoder", "mlp-mixer": "images.MlpMixer",
        "spatial-transformer": "images.SpatialTransformer", "capsule-net": "images.CapsuleNet",
        "diffusion-block": "images.DiffusionBlock", "siamese": "images.Siamese",
    },
    "text-encoder": {"nn-transformer-encoder": "sequences.TransformerTagger"},
    "encoder-decoder": {"nn-transformer": "sequences.Translator"},
    "recurrent": {
        "lstm-tagger": "sequences.LstmTagger", "gru-tagger": "sequences.GruTagger",
        "selective-scan": "sequences.SelectiveScan", "linear-attention": "sequences.LinearAttention",
    },
    "moe": {"mixture-of-experts": "sequences.MixtureOfExperts"},
    "time-series": {"temporal-conv-net": "sequences.TemporalConvNet", "n-beats": "sequences.NBeats"},
    "graph": {"graph-attention": "structures.GraphAttention"},
    "recommendation": {"dlrm": "structures.Dlrm"},
    "points": {"pointnet": "structures.PointNet"},
}  # fmt: skip
"""The modules of this folder and the classes in them, by family and name of the model."""


def _make_handwritten(name: str, cls: str) -> Example:
    home, _, class_name = cls.partition(".")

    def build() -> Example:
        module = getattr(import_module(f"flambeau.testing.zoo.{home}"), class_name)()
        return module, module.example(), {}

    return seeded(name, build)


def _models() -> Iterator[ZooModel]:
    for family, classes in HANDWRITTEN.items():
        for name, cls in classes.items():
            yield ZooModel(name, family, functools.partial(_make_handwritten, name, cls), frozenset({"handwritten"}))
    yield from transformers_models()


ZOO: Mapping[str, ZooModel] = {model.name: model for model in _models()}
"""Every model by its name."""
