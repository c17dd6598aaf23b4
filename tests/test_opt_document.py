"""The OPT document: a model with a cache, traced unedited, and each of the four errors that stopped it once.

The code of each error is as the document prints it, from the transformers of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch import Tensor, nn
from transformers import OPTConfig, OPTForCausalLM

import flambeau
from flambeau import torchscript
from flambeau.torchscript import TensorPlaceholder

# --- The offending code ---


def _make_causal_mask(input_ids_shape: torch.Size, dtype: torch.dtype, past_key_values_length: int = 0) -> Tensor:
    bsz, tgt_len = input_ids_shape
    mask = torch.full((tgt_len, tgt_len), torch.tensor(float("-inf")))
    mask_cond = torch.arange(mask.size(-1))
    mask.masked_fill_(mask_cond < (mask_cond + 1).view(mask.size(-1), 1), 0)
    mask = mask.to(dtype)
    if past_key_values_length > 0:
        mask = torch.cat([torch.zeros(tgt_len, past_key_values_length, dtype=dtype), mask], dim=-1)
    return mask[None, None, :, :].expand(bsz, 1, tgt_len, tgt_len + past_key_values_length)


def _expand_mask(mask: Tensor, dtype: torch.dtype, tgt_len: Optional[int] = None) -> Tensor:  # noqa: UP045
    bsz, src_len = mask.size()
    tgt_len = tgt_len if tgt_len is not None else src_len
    expanded_mask = mask[:, None, None, :].expand(bsz, 1, tgt_len, src_len).to(dtype)
    inverted_mask = 1.0 - expanded_mask
    return inverted_mask.masked_fill(inverted_mask.to(torch.bool), torch.finfo(dtype).min)


def _prepare_decoder_attention_mask(
    attention_mask: Tensor, input_shape: torch.Size, inputs_embeds: Tensor, past_key_values_length: int
) -> Tensor:
    combined_attention_mask = _make_causal_mask(
        input_shape, inputs_embeds.dtype, past_key_values_length=past_key_values_length
    ).to(inputs_embeds.device)
    expanded_attn_mask = _expand_mask(attention_mask, inputs_embeds.dtype, tgt_len=input_shape[-1])
    return expanded_attn_mask + combined_attention_mask


class Attention(nn.Module):
    """`_shape` and its caller: sizes that a trace records as tensors."""

    num_heads, head_dim = 2, 3

    def _shape(self, tensor: Tensor, seq_len: int, bsz: int) -> Tensor:
        return tensor.view(bsz, seq_len, self.num_heads, self.head_dim).transpose(1, 2).contiguous()

    def forward(self, hidden_states: Tensor) -> Tensor:
        bsz, tgt_len, _ = hidden_states.size()
        return self._shape(hidden_states, tgt_len, bsz)


def traced(function: Callable[..., Any], *examples: Any, sizes: Any = None) -> None:
    """Trace, compile, run on IREE, and compare with eager; dynamic where the examples are placeholders."""
    module = torchscript.compile(function, examples, "linalg-on-tensors", use_tracing=True)
    executable = flambeau.load(module, profile="quick")
    given = [tuple(e.tensor() if isinstance(e, TensorPlaceholder) else e for e in examples), *(sizes or [])]
    for arguments in given:
        torch.testing.assert_close(executable(*arguments), function(*arguments), rtol=0, atol=0)


def open_like(tensor: Tensor) -> TensorPlaceholder:
    return TensorPlaceholder.like(tensor, dynamic_axes=list(range(tensor.dim())))


# --- The four errors ---


@pytest.mark.engine
def test_error_1_arange_of_a_size() -> None:
    """S1: `arange` of a size that the trace holds as a number of unknown kind."""

    def mask_cond(mask: Tensor) -> Tensor:
        return torch.arange(mask.size(-1))

    traced(mask_cond, torch.zeros(4, 4))
    traced(mask_cond, open_like(torch.zeros(4, 4)), sizes=[(torch.zeros(2, 6),)])


@pytest.mark.engine
def test_error_2_full_of_a_tensor() -> None:
    """S2: the fill value is a tensor, and minus infinity comes out exactly."""

    def mask(x: Tensor) -> Tensor:
        tgt_len = x.size(0)
        return torch.full((tgt_len, tgt_len), torch.tensor(float("-inf")))

    traced(mask, torch.zeros(3))
    traced(mask, open_like(torch.zeros(3)), sizes=[(torch.zeros(5),)])


@pytest.mark.engine
def test_error_3_to_dtype_and_device() -> None:
    """S3, S5: `.to(dtype)` and `.to(device)` of a tensor that is there already fold to nothing."""

    def make(ids: Tensor, embeds: Tensor) -> Tensor:
        return _make_causal_mask(ids.shape, embeds.dtype).to(embeds.device)

    ids, embeds = torch.zeros(1, 7, dtype=torch.long), torch.zeros(1, 7, 4)
    traced(make, ids, embeds)
    module = torchscript.compile(make, (ids, embeds), "torch", use_tracing=True)
    assert "aten.to" not in str(module)


@pytest.mark.engine
def test_error_4_floats_to_bool() -> None:
    """S6: f32 to bool is `x != 0`, and NaN is true."""
    traced(lambda x: x.to(torch.bool), torch.tensor([0.0, -0.0, 1.0, float("nan"), float("inf"), 1e-30]))


@pytest.mark.engine
def test_error_4_sizes_that_are_tensors() -> None:
    """S7, S10: `view` with sizes from an unpacked `size()`, without `map(int, ...)`."""
    traced(Attention(), torch.randn(2, 5, 6))
    traced(Attention(), TensorPlaceholder.like(torch.randn(2, 5, 6), [0, 1]), sizes=[(torch.randn(3, 4, 6),)])


@pytest.mark.engine
def test_masks_whole() -> None:
    """S8, S9: the functions that all four errors are in, unchanged, with open sizes too."""

    def masks(mask: Tensor, ids: Tensor, embeds: Tensor) -> Tensor:
        return _prepare_decoder_attention_mask(mask, ids.shape, embeds, 0)

    def arguments(batch: int, length: int) -> tuple[Tensor, ...]:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, 0] = 0
        return mask, torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch, length, 4)

    traced(masks, *arguments(2, 5))
    mask, ids, embeds = arguments(2, 5)
    opened = (open_like(mask), open_like(ids), TensorPlaceholder.like(embeds, [0, 1]))
    traced(masks, *opened, sizes=[arguments(3, 4)])


# --- The model ---


class WithCache(nn.Module):
    """OPT as it is; the cache that it returns as the nested tuples of views that the document shows."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = OPTConfig(
            vocab_size=40, hidden_size=24, word_embed_proj_dim=24, num_hidden_layers=layers, ffn_dim=32,
            num_attention_heads=12, max_position_embeddings=32, use_cache=True,
        )  # fmt: skip
        self.model = OPTForCausalLM(config).eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        out = self.model(input_ids, attention_mask, use_cache=True)
        return out.logits, tuple((layer.keys, layer.values) for layer in out.past_key_values.layers)


@pytest.fixture(scope="module")
def opt() -> WithCache:
    return WithCache()


IDS, MASK = torch.arange(7).reshape(1, 7), torch.ones(1, 7, dtype=torch.long)


@pytest.mark.engine
@pytest.mark.parametrize("frontend", ["trace", "fx"])
def test_opt_with_cache(opt: WithCache, frontend: str) -> None:
    """S11, S12: to torch, to linalg, and through IREE equal to eager."""
    module = flambeau.compile(opt, (IDS, MASK), output_type="torch", frontend=frontend)
    text = str(module)
    assert "!torch.tensor" not in text
    assert "!torch.tuple" not in text
    lowered = flambeau.compile(module, output_type="linalg-on-tensors")
    with torch.no_grad():
        expected = opt(IDS, MASK)
    got = flambeau.load(lowered, profile="quick")(IDS, MASK)
    assert len(got[1]) == 2
    assert len(got[1][0]) == 2
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_documents_call(opt: WithCache) -> None:
    module = torchscript.compile(opt, (IDS, MASK), output_type=flambeau.OutputType.TORCH, use_tracing=True)
    assert "torch.aten.embedding" in str(module)


@pytest.mark.engine
def test_writes_behind_the_cache_do_not_reach_it() -> None:
    """Views in the returned tuples are of what was, or of what is, as PyTorch has it."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            key = x.view(2, 6).transpose(0, 1)
            value = x[1:]
            cache = ((key, value),)
            cache += ((value.clone(), key),)
            x.mul_(3)
            return cache

    model, x = Model(), torch.randn(3, 4)
    module = torchscript.compile(model, (x,), "linalg-on-tensors", use_tracing=True)
    got = flambeau.load(module, profile="quick")(x.clone())
    torch.testing.assert_close(got, model(x.clone()))


# --- What an error looks like ---


class Planted(nn.Module):
    def inner(self, x: Tensor) -> Tensor:
        return torch.poisson(x.to(torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("tracing", [True, False])
def test_errors_name_the_line_and_its_callers(tracing: bool) -> None:
    """S4, S19: file and line of the very call, the callers behind it, and the op with its types, in the text itself."""
    with pytest.raises(flambeau.CompileError) as caught:
        torchscript.compile(Planted(), (torch.rand(2, 2),), "linalg-on-tensors", use_tracing=tracing)
    (problem,) = caught.value.diagnostics
    source = Path(__file__).read_text().splitlines()
    assert problem.file == __file__
    assert "torch.poisson(x" in source[(problem.line or 0) - 1]
    callers = [line for line in problem.stack if line.startswith(__file__)]
    assert any("self.inner(x)" in source[int(c.rsplit(":", 1)[1]) - 1] for c in callers)
    text = str(caught.value)
    assert "aten.poisson" in text
    assert "vtensor<[2,2],f32>" in text
    assert "torch.poisson(x" in text
