"""Decoders of transformers with caches of all kinds: compiled once, stepped token by token, as eager does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import flambeau

TOKENS = 32
SIZES = {
    "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 64, "head_dim": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(0, 64, (1, TOKENS), generator=torch.Generator().manual_seed(0))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="eager")).eval()


def gemma() -> Any:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SIZES, sliding_window=8, attn_implementation="eager")).eval()


def load(module: flambeau.Module, engine: str) -> Any:
    if engine == "eager":
        return flambeau.load(module, engine=engine)
    return flambeau.load(module, profile="quick", device="local-sync")


def whole(model: nn.Module, ids: Tensor) -> Tensor:
    """Compute the logits of all tokens at once, without a cache."""
    with torch.no_grad():
        logits: Tensor = model(ids, use_cache=False).logits
    return logits


ENGINES = {"eager": "torch", "iree": "linalg-on-tensors"}
on_engines = pytest.mark.parametrize("engine", ["eager", pytest.param("iree", marks=pytest.mark.engine)])


@pytest.mark.long
@on_engines
def test_a_static_cache_is_stepped_as_in_eager(ids: Tensor, engine: str) -> None:
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model = llama()
    expected = whole(model, ids)
    model.generation_config.cache_implementation = "static"
    recipe = TorchExportableModuleWithStaticCache(copy.deepcopy(model), batch_size=1, max_cache_len=TOKENS)
    run = stepper(recipe, ids, engine)
    for i in range(TOKENS):
        torch.testing.assert_close(run(i), expected[:, i : i + 1], rtol=1e-4, atol=1e-4)
    filled = recipe.static_cache.layers[0].keys.abs().sum((0, 1, 3))
    assert bool((filled > 0).all())


@pytest.mark.long
@on_engines
def test_a_sliding_window_is_stepped_as_in_eager(ids: Tensor, engine: str) -> None:
    """Four windows long: transformers' recipe keeps all tokens, and the mask forgets those behind the window."""
    from transformers.integrations.executorch import TorchExportableModuleWithHybridCache

    model = gemma()
    expected = whole(model, ids)
    recipe = TorchExportableModuleWithHybridCache(copy.deepcopy(model), batch_size=1, max_cache_len=TOKENS)
    run = stepper(recipe, ids, engine)
    for i in range(TOKENS):
        torch.testing.assert_close(run(i), expected[:, i : i + 1], rtol=1e-4, atol=1e-4)


def stepper(recipe: nn.Module, ids: Tensor, engine: str) -> Any:
    example = {"input_ids": ids[:, :1], "cache_position": torch.tensor([0])}
    with torch.no_grad():
        run = load(flambeau.compile(recipe, kwargs=example, output_type=ENGINES[engine]), engine)
    return lambda i: run(input_ids=ids[:, i : i + 1], cache_position=torch.tensor([i]))


@pytest.mark.long
@on_engines
def test_a_quantised_cache_is_stepped_as_in_eager(ids: Tensor, engine: str) -> None:
    """It grows, and PyTorch exports no state that grows: the recipe takes it as an argument and gives it back."""
    from transformers import QuantizedCache

    model = llama()
    prompt = 3

    def prefilled() -> Any:
        cache = QuantizedCache("fp8", config=model.config)
        with torch.no_grad():
            model(ids[:, :prompt], past_key_values=cache)
        return cache

    example = {"input_ids": ids[:, :1], "past_key_values": prefilled()}
    from flambeau.frontends.fx.pytrees import register_known_containers

    register_known_containers()
    leaves = pytree.tree_leaves(example["past_key_values"])
    grows = [{2: Dim.AUTO} if isinstance(t, Tensor) and t.dim() == 4 else Dim.AUTO if isinstance(t, int) else None
             for t in leaves]  # fmt: skip
    shapes = {"input_ids": None, "past_key_values": grows}
    module = flambeau.compile(model, kwargs=example, dynamic_shapes=shapes, output_type=ENGINES[engine])
    run = load(module, engine)
    ours, theirs = prefilled(), prefilled()
    for i in range(prompt, TOKENS):
        token = ids[:, i : i + 1]
        result = run(input_ids=token, past_key_values=ours)
        with torch.no_grad():
            expected = model(token, past_key_values=theirs)
        torch.testing.assert_close(result.logits, expected.logits, rtol=1e-4, atol=1e-4)
        ours, theirs = result.past_key_values, expected.past_key_values
    assert theirs.get_seq_length() == TOKENS
    assert ours.layers[0]._quantized_keys[0].shape == theirs.layers[0]._quantized_keys[0].shape
