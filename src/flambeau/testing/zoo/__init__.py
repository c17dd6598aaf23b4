"""The model zoo of the compatibility tests: many architectures, each small enough to compile in seconds.

    module, args, kwargs = ZOO["bert"].make()

Importing this imports neither torch nor transformers; making a model does. Nothing is downloaded: configurations are
scaled down to two layers of width 32 or so, and weights are random, from a seed that is the model's name. The nine
models in `flambeau.testing.models` are there in their published sizes as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from flambeau.testing.zoo.model import Example, ZooModel, seeded
from flambeau.testing.zoo.transformers import models as transformers_models

__all__ = ["Example", "ZooModel", "ZOO"]

HANDWRITTEN: Mapping[str, Mapping[str, str]] = {
    "vision": {
        "lenet": "LeNet",
        "resnet18": "ResNet18",
        "unet": "UNet",
        "mobilenet": "MobileNet",
        "autoencoder": "Autoencoder",
        "mlp-mixer": "MlpMixer",
        "spatial-transformer": "SpatialTransformer",
        "capsule-net": "CapsuleNet",
        "diffusion-block": "DiffusionBlock",
        "siamese": "Siamese",
    },
    "text-encoder": {"nn-transformer-encoder": "TransformerTagger"},
    "encoder-decoder": {"nn-transformer": "Translator"},
    "recurrent": {
        "lstm-tagger": "LstmTagger",
        "gru-tagger": "GruTagger",
        "selective-scan": "SelectiveScan",
        "linear-attention": "LinearAttention",
    },
    "moe": {"mixture-of-experts": "MixtureOfExperts"},
    "time-series": {"temporal-conv-net": "TemporalConvNet", "n-beats": "NBeats"},
    "graph": {"graph-attention": "GraphAttention"},
    "recommendation": {"dlrm": "Dlrm"},
    "points": {"pointnet": "PointNet"},
}
"""Names of the classes in `flambeau.testing.zoo.handwritten`, by family and name of the model."""


def _make_handwritten(name: str, cls: str) -> Example:
    from flambeau.testing.zoo import handwritten

    def build() -> Example:
        module = getattr(handwritten, cls)()
        return module, module.example(), {}

    return seeded(name, build)


def _models() -> Iterator[ZooModel]:
    for family, classes in HANDWRITTEN.items():
        for name, cls in classes.items():
            yield ZooModel(name, family, functools.partial(_make_handwritten, name, cls), frozenset({"handwritten"}))
    yield from transformers_models()


ZOO: Mapping[str, ZooModel] = {model.name: model for model in _models()}
"""Every model by its name."""
