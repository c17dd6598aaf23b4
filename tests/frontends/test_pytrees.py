"""Caches and dataclasses as arguments and results of exported programs."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch.export import Dim

from flambeau.frontends.fx.pytrees import register_dataclass_of, register_known_containers
from flambeau.testing.models import MAX_SEQUENCE, MODELS

DECODERS = {"opt-125m": "DynamicCache", "gpt2": "DynamicCache", "llama-4l": "DynamicCache"}
DECODERS |= {"t5-small": "EncoderDecoderCache"}


def build(name: str) -> torch.nn.Module:
    model = MODELS[name].build(small=True)
    register_known_containers()
    return model


def assert_same(got: Any, want: Any) -> None:
    assert pytree.tree_structure(got) == pytree.tree_structure(want)
    for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        torch.testing.assert_close(a, b)


def run(model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**copy.deepcopy(inputs))


@pytest.mark.long(sample=2)
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_exports_with_its_cache(name: str) -> None:
    model = build(name)
    inputs = MODELS[name].inputs(1, 8, small=True)
    program = torch.export.export(model, (), inputs)

    got, want = run(program.module(), inputs), run(model, inputs)

    assert type(got.past_key_values).__name__ == DECODERS[name]
    assert_same(got, want)


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_exports_with_any_batch_and_sequence(name: str) -> None:
    model = build(name)
    zoo = MODELS[name]
    program = torch.export.export(model, (), zoo.inputs(2, 8, small=True), dynamic_shapes=zoo.dynamic_shapes())

    for batch, sequence in ((1, 2), (3, 13), (2, MAX_SEQUENCE)):
        inputs = zoo.inputs(batch, sequence, small=True)
        assert_same(run(program.module(), inputs), run(model, inputs))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if name not in DECODERS])
def test_the_other_models_export_with_any_batch(name: str) -> None:
    model = build(name)
    zoo = MODELS[name]
    program = torch.export.export(model, (), zoo.inputs(2, 8, small=True), dynamic_shapes=zoo.dynamic_shapes())

    inputs = zoo.inputs(3, 11, small=True)
    assert_same(run(program.module(), inputs), run(model, inputs))


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_a_returned_cache_continues_the_sequence(name: str) -> None:
    model = build(name)
    inputs = MODELS[name].inputs(2, 8, small=True)
    cache = run(torch.export.export(model, (), inputs).module(), inputs).past_key_values
    step = dict(inputs, **{key: ids[:, :1] for key, ids in inputs.items() if key in ("input_ids", "decoder_input_ids")})

    got = run(model, step | {"past_key_values": cache})
    want = run(model, step | {"past_key_values": run(model, inputs).past_key_values})

    assert got.past_key_values.get_seq_length() == 9
    assert_same(got, want)


@pytest.mark.long
def test_a_cache_is_an_argument_of_dynamic_length() -> None:
    model = build("llama-4l")
    ids = MODELS["llama-4l"].inputs(2, 8, small=True)["input_ids"]

    def step(length: int) -> dict[str, Any]:
        return {"input_ids": ids[:, :1], "past_key_values": run(model, {"input_ids": ids[:, :length]}).past_key_values}

    past = {0: Dim("batch", min=1, max=64), 2: Dim.AUTO}
    shapes = {"input_ids": {0: past[0]}, "past_key_values": [past] * 4}
    program = torch.export.export(model, (), step(7), dynamic_shapes=shapes)

    names = [spec.arg.name for spec in program.graph_signature.input_specs][-4:]
    assert names == [f"past_key_values_layers_{i}_{part}" for i in (0, 1) for part in ("keys", "values")]
    for length in (3, 8):
        assert_same(run(program.module(), step(length)), run(model, step(length)))


@pytest.mark.long
def test_a_static_cache_is_an_argument() -> None:
    from transformers import StaticCache

    model = build("llama-4l")
    ids = MODELS["llama-4l"].inputs(2, 8, small=True)["input_ids"]
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    inputs = {"input_ids": ids[:, :1], "past_key_values": cache}
    program = torch.export.export(model, (), copy.deepcopy(inputs))

    assert_same(run(program.module(), inputs), run(model, inputs))


def test_a_sliding_window_keeps_its_configuration() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        num_hidden_layers=2,
        hidden_size=32,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=64,
        sliding_window=6,
    )
    model = MistralForCausalLM(config).eval()
    register_known_containers()
    inputs = {"input_ids": torch.arange(18).reshape(2, 9)}
    cache = run(torch.export.export(model, (), inputs).module(), inputs).past_key_values

    assert [layer.sliding_window for layer in cache.layers] == [6, 6]
    assert cache.get_seq_length() == 9
    assert [tuple(layer.keys.shape) for layer in cache.layers] == [(2, 1, 5, 16)] * 2
    for leaf in pytree.tree_leaves(cache):
        assert isinstance(leaf, int) or leaf.ndim == 4


@pytest.mark.parametrize("name", DECODERS)
def test_the_description_of_a_cache_survives_json(name: str) -> None:
    model = build(name)
    cache = run(model, MODELS[name].inputs(1, 4, small=True)).past_key_values
    leaves, spec = pytree.tree_flatten(cache)

    again = pytree.treespec_loads(pytree.treespec_dumps(spec))

    assert again == spec
    assert_same(pytree.tree_unflatten(leaves, again), cache)


def test_a_cache_unflattens_whatever_its_leaves_are() -> None:
    model = build("t5-small")
    cache = run(model, MODELS["t5-small"].inputs(1, 4, small=True)).past_key_values

    shapes = pytree.tree_map(lambda leaf: leaf.shape, cache)

    assert type(shapes) is type(cache)
    assert shapes.self_attention_cache.layers[1].values == (1, 4, 4, 16)


def test_registering_twice_changes_nothing() -> None:
    build("gpt2")
    before = dict(pytree.SUPPORTED_NODES)
    register_known_containers()
    assert before == pytree.SUPPORTED_NODES


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor | None = None


@dataclasses.dataclass
class Segment:
    ends: list[Point]
    width: int = 1


class Midpoint(torch.nn.Module):
    def forward(self, segment: Segment) -> Point:
        first, second = segment.ends
        return Point((first.x + second.x) / 2 * segment.width)


def test_dataclasses_are_found_where_they_are_nested() -> None:
    segment = Segment([Point(torch.ones(3)), Point(torch.zeros(3))], width=4)
    register_dataclass_of({"args": (segment,)})
    register_dataclass_of((segment,))

    got = torch.export.export(Midpoint(), (segment,)).module()(segment)

    assert isinstance(got, Point)
    assert got.y is None
    torch.testing.assert_close(got.x, torch.full((3,), 2.0))
