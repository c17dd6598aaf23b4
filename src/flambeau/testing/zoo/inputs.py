"""Example inputs by kind: what the models of the zoo are called with.

Each function here makes a maker, which takes a model's configuration and gives the keyword arguments of `forward`. They
draw from PyTorch's generator, which `seeded` has set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Inputs: TypeAlias = dict[str, Any]
Maker: TypeAlias = Callable[[Any], Inputs]

BATCH = 2
FIRST_ID, LAST_ID = 4, 100
"""Below are padding and other special tokens, which some models treat apart."""


def _ids(*shape: int) -> Tensor:
    import torch

    return torch.randint(FIRST_ID, LAST_ID, shape)


def _mask(batch: int, length: int) -> Tensor:
    """Make an attention mask: all rows but the first end in one padding token."""
    import torch

    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1:, -1] = 0
    return mask


def ids(length: int = 8) -> Maker:
    return lambda config: {"input_ids": _ids(BATCH, length)}


def tokens(length: int = 8) -> Maker:
    """Make ids with a mask."""
    return lambda config: {"input_ids": _ids(BATCH, length), "attention_mask": _mask(BATCH, length)}


def boxed_tokens(length: int = 8) -> Maker:
    """Make tokens of a page, each with its bounding box."""

    def make(config: Any) -> Inputs:
        import torch

        corner = torch.randint(0, 40, (BATCH, length, 2))
        box = torch.cat([corner, corner + torch.randint(1, 20, (BATCH, length, 2))], -1)
        return tokens(length)(config) | {"bbox": box}

    return make


def seq2seq(length: int = 8, decoded: int = 6) -> Maker:
    return lambda config: tokens(length)(config) | {"decoder_input_ids": _ids(BATCH, decoded)}


def cached_ids(past: int = 5, length: int = 1) -> Maker:
    """Make the next tokens, and a cache of the ones before."""

    def make(config: Any) -> Inputs:
        import torch
        from transformers import DynamicCache

        cache = DynamicCache(config=config)
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        shape = (BATCH, heads, past, config.hidden_size // config.num_attention_heads)
        for layer in range(config.num_hidden_layers):
            cache.update(torch.randn(shape), torch.randn(shape), layer)
        return {"input_ids": _ids(BATCH, length), "past_key_values": cache}

    return make


def tensors(**shapes: tuple[int, ...]) -> Maker:
    """Draw arguments from the normal distribution, by name; the batch is put in front of the shapes."""

    def make(config: Any) -> Inputs:
        import torch

        return {name: torch.randn(BATCH, *shape) for name, shape in shapes.items()}

    return make


def pixels(side: int = 32) -> Maker:
    return tensors(pixel_values=(3, side, side))


def video(frames: int = 4, side: int = 16) -> Maker:
    return tensors(pixel_values=(frames, 3, side, side))


def audio(samples: int = 400) -> Maker:
    return tensors(input_values=(samples,))


def both(*makers: Maker) -> Maker:
    """Join the arguments of several makers."""

    def make(config: Any) -> Inputs:
        inputs: Inputs = {}
        for maker in makers:
            inputs |= maker(config)
        return inputs

    return make


def decoded(length: int = 6) -> Maker:
    """Make the tokens that the decoder of a speech model has produced so far."""
    return lambda config: {"decoder_input_ids": _ids(BATCH, length)}


def series(length: int = 23, horizon: int = 4) -> Maker:
    """Make a history, all of it observed, and the known future of the clock."""

    def make(config: Any) -> Inputs:
        import torch

        return {
            "past_values": torch.randn(BATCH, length).exp(),
            "past_time_features": torch.randn(BATCH, length, config.num_time_features),
            "past_observed_mask": torch.ones(BATCH, length),
            "future_values": torch.randn(BATCH, horizon).exp(),
            "future_time_features": torch.randn(BATCH, horizon, config.num_time_features),
        }

    return make
