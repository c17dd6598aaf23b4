"""Generate text with a decoder of transformers that is compiled once: prefill and decode in one module, with a cache.

    python examples/generate.py --tokens 64 --family Llama

The weights are random, so the text is noise; it is the same noise that eager PyTorch makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import flambeau

FAMILIES = {
    "GPT2": {"n_layer": 4, "n_embd": 64, "n_head": 4, "vocab_size": 256},
    "Llama": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 256},
    "Qwen2": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 256},
}  # fmt: skip


def compile_decoder(model: Any, prompt: int, length: int, state: str = "globals") -> flambeau.Module:
    """Compile a causal language model of transformers with a static cache for `length` tokens.

    `prefill` takes a prompt of `prompt` tokens, `decode` one token; both take the positions that they write to. The
    cache lives in the program (`state="globals"`), or in tensors that the program is given (`"functional"`).
    """
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model.generation_config.cache_implementation = "static"
    recipe = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=length)
    ids = torch.zeros(1, prompt, dtype=torch.long)
    with torch.no_grad():
        return flambeau.compile({
            "prefill": (recipe, (), {"input_ids": ids, "cache_position": torch.arange(prompt)}),
            "decode": (recipe, (), {"input_ids": ids[:, :1], "cache_position": torch.tensor([0])}),
        }, state=state)  # fmt: skip


def generate(run: Any, ids: Tensor, count: int) -> Iterator[int]:
    """Yield the most likely tokens after a prompt, one by one."""
    start = ids.shape[1]
    logits = run.function("prefill")(input_ids=ids, cache_position=torch.arange(start))
    for position in range(start, start + count):
        token = int(logits[0, -1].argmax())
        yield token
        if position < start + count - 1:
            ids, at = torch.tensor([[token]]), torch.tensor([position])
            logits = run.function("decode")(input_ids=ids, cache_position=at)


def main() -> None:
    import transformers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="Llama")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--state", choices=("globals", "functional"), default="globals", help="where the cache is")
    parser.add_argument("--prompt", type=int, default=8, help="how many tokens the prompt has")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = getattr(transformers, f"{options.family}Config")(**FAMILIES[options.family])
    config._attn_implementation = "eager"
    head = "GPT2LMHeadModel" if options.family == "GPT2" else f"{options.family}ForCausalLM"
    model = getattr(transformers, head)(config).eval()
    ids = torch.randint(0, config.vocab_size, (1, options.prompt))
    settings = {"max_new_tokens": options.tokens, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = model.generate(ids, **settings)[0, options.prompt :].tolist()
    run = flambeau.load(compile_decoder(model, options.prompt, options.prompt + options.tokens, options.state))
    tokens = list(generate(run, ids, options.tokens))
    print(*tokens)
    print("the same as eager PyTorch" if tokens == expected else f"eager PyTorch gives {expected}")
    raise SystemExit(tokens != expected)


if __name__ == "__main__":
    main()
