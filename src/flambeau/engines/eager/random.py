"""Random words for the eager engine: Philox 4x32-10, on PyTorch's integers of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def _product(word: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply words without signs; give the upper and the lower word of the products, by halves of the factor."""
    low, high = word * (factor & 0xFFFF), word * (factor >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle << 16) | (low & 0xFFFF)) & _WORD


def philox(state: torch.Tensor, delta: int, size: Sequence[int]) -> list[torch.Tensor]:
    """Give the four words, as signed integers of 32 bits, for each element of a tensor of this size."""
    seed_low, seed_high, low, high, stream = (int(word) & _WORD for word in state)
    counter = (low | high << 32) + delta
    number = torch.arange(torch.Size(size).numel()).reshape(tuple(size))
    words = [torch.full_like(number, counter & _WORD), torch.full_like(number, counter >> 32 & _WORD), number & _WORD]
    words.append(torch.full_like(number, stream))
    return [word.to(torch.int32) for word in encrypted(words, [seed_low, seed_high])]


def encrypted(words: Sequence[torch.Tensor], keys: Sequence[int]) -> list[torch.Tensor]:
    """Encrypt blocks of four words with a key of two, in ten rounds; words are integers of 64 bits without a sign."""
    words, keys = list(words), list(keys)
    for _ in range(10):
        (first_high, first_low), (second_high, second_low) = (
            _product(w, m) for w, m in zip(words[::2], MULTIPLIERS, strict=True)
        )
        words = [second_high ^ words[1] ^ keys[0], second_low, first_high ^ words[3] ^ keys[1], first_low]
        keys = [k + step & _WORD for k, step in zip(keys, KEY_STEPS, strict=True)]
    return words
