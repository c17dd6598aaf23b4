"""Several functions in one module that share weights and state; what becomes of state."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau import CompileError
from flambeau.api import globalized


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("rows", torch.zeros(3, 4))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.rows.index_copy_(0, at, self.linear(x))
        return self.rows.sum()


class Reader(nn.Module):
    def __init__(self, cache: Cache) -> None:
        super().__init__()
        self.cache = cache

    def forward(self, x: Tensor) -> Tensor:
        return self.cache.linear(x) + self.cache.rows


ROW, AT = torch.ones(1, 4), torch.tensor([1])


def entries(cache: Cache) -> dict[str, Any]:
    return {"write": (cache, (ROW, AT)), "read": (Reader(cache), (), {"x": torch.ones(3, 4)})}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("engine", "target"), [("eager", "torch"), ("iree", "linalg-on-tensors"), ("xla", "stablehlo")]
)
def test_functions_share_weights_and_state(engine: str, target: str) -> None:
    cache = Cache()
    reference = copy.deepcopy(cache)
    module = flambeau.compile(entries(cache), output_type=target)
    assert sorted(module.weights) == ["linear.bias", "linear.weight", "rows"]
    assert module.weights["rows"] is cache.rows
    assert [a.state for a in module.signatures["read"].arguments] == ["rows", None]  # though it only reads it
    run = flambeau.load(module, engine=engine)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for i in range(3):
            row, at = torch.randn(1, 4), torch.tensor([i])
            torch.testing.assert_close(run.function("write")(row, at), reference(row, at))
            torch.testing.assert_close(run.function("read")(x=x), Reader(reference)(x))
    torch.testing.assert_close(cache.rows, reference.rows)


def test_weights_of_one_name_and_of_two_models_stay_apart() -> None:
    models = [nn.Linear(20, 20) for _ in range(2)]
    module = flambeau.compile({f"f{i}": (m, (torch.ones(1, 20),)) for i, m in enumerate(models)}, output_type="torch")
    assert sorted(module.weights) == ["bias", "bias_1", "weight", "weight_1"]
    run, x = flambeau.load(module, engine="eager"), torch.randn(1, 20)
    for i, model in enumerate(models):
        with torch.no_grad():
            torch.testing.assert_close(run.function(f"f{i}")(x), model(x))


def test_shapes_are_by_function() -> None:
    dynamic = {"read": ({0: torch.export.Dim.DYNAMIC},)}
    module = flambeau.compile(
        {"read": (nn.Linear(4, 2), (torch.ones(3, 4),)), "other": torch.export.export(nn.ReLU(), (torch.ones(2),))},
        dynamic_shapes=dynamic, output_type="raw",
    )  # fmt: skip
    assert str(module.signatures["read"].arguments[0].spec) == "?x4xfloat32"
    assert str(module.signatures["other"].arguments[0].spec) == "2xfloat32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "functions of a module have names"),
        (({"a b": (nn.ReLU(), (ROW,))},), "functions of a module have names"),
        (({"f": (nn.ReLU(), (ROW,))}, (ROW,)), "example inputs of their own"),
        (({"f": (nn.ReLU(),)},), "needs example inputs"),
    ],
)
def test_mistakes(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        flambeau.compile(*arguments)


def test_a_view_of_what_another_function_writes_is_refused() -> None:
    cache = Cache()
    part = nn.Module()
    part.register_buffer("row", cache.rows[1])
    part.forward = lambda x: x + part.row
    with pytest.raises(CompileError, match="share"):
        flambeau.compile({"write": (cache, (ROW, AT)), "read": (part, (ROW,))})


def test_frozen_state_is_not_written() -> None:
    with pytest.raises(CompileError, match=r"writes state 'rows', and state is 'frozen'"):
        flambeau.compile(Cache(), (ROW, AT), state="frozen")
    with pytest.raises(CompileError, match="writes its argument"):
        flambeau.compile(lambda x: x.add_(1), (ROW,), state="frozen")
    with pytest.raises(CompileError, match="writes state 'random_state'"):
        flambeau.compile(nn.Dropout(), (ROW,), state="frozen")
    with pytest.raises(ValueError, match="'functional', 'globals' or 'frozen'"):
        flambeau.compile(nn.ReLU(), (ROW,), state="thawed")
    flambeau.compile(nn.Dropout().eval(), (ROW,), state="frozen")


SIZES = {
    "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 80, "head_dim": 16,
}  # fmt: skip
PROMPT, TOKENS = 8, 64


def decoder(family: str) -> Any:
    import transformers

    torch.manual_seed(0)
    if family == "GPT2":
        config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=80)
    else:
        config = getattr(transformers, f"{family}Config")(**SIZES)
    config._attn_implementation = "eager"
    kind = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    return getattr(transformers, kind)(config).eval()


@pytest.mark.long
@pytest.mark.engine
@pytest.mark.parametrize("family", ["GPT2", "Llama", "Qwen2"])
def test_prefill_and_decode_generate_the_tokens_of_eager(family: str) -> None:
    """S35: one module with a static cache, 64 tokens, greedily; the cache in tensors of ours and in variables."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model = decoder(family)
    ids = torch.randint(0, 64, (1, PROMPT))
    expected = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None)
    model.generation_config.cache_implementation = "static"
    recipe = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=PROMPT + TOKENS)
    with torch.no_grad():
        module = flambeau.compile({
            "prefill": (recipe, (), {"input_ids": ids, "cache_position": torch.arange(PROMPT)}),
            "decode": (recipe, (), {"input_ids": ids[:, :1], "cache_position": torch.tensor([0])}),
        })  # fmt: skip
    assert len(module.weights) == len({id(t) for t in module.weights.values()})
    for kept in (module, globalized(module)):
        run = flambeau.load(kept, profile="quick", device="local-sync")
        logits = run.function("prefill")(input_ids=ids, cache_position=torch.arange(PROMPT))
        tokens = [int(logits[0, -1].argmax())]
        for position in range(PROMPT, PROMPT + TOKENS - 1):
            at = torch.tensor([position])
            logits = run.function("decode")(input_ids=torch.tensor([tokens[-1:]]), cache_position=at)
            tokens.append(int(logits[0, -1].argmax()))
        assert tokens == expected[0, PROMPT:].tolist()
