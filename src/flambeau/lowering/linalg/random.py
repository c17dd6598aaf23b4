"""Random bits: the generator Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.index import linear
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOWEST = -(1 << 31)

MultiplyHigh = Callable[[Element, int], Element]
"""Gives the upper 32 bits of a product of two words without signs."""


def signed(word: int) -> int:
    """Return the signed integer of 32 bits that has the bits of a word."""
    return word - (1 << 32) if word >> 31 else word


def multiply_high(x: Element, factor: int) -> Element:
    """Multiply in 64 bits."""
    return (((x.to(dtypes.int64) & 0xFFFFFFFF) * factor) >> 32).to(dtypes.int32)


def philox_words(
    counter: Sequence[Element], key: Sequence[Element], high: MultiplyHigh = multiply_high
) -> list[Element]:
    """Encrypt a counter of four words with a key of two; all words are signed integers of 32 bits."""
    words, keys = list(counter), list(key)
    for step in range(ROUNDS):
        if step:
            keys = [k + signed(increment) for k, increment in zip(keys, KEY_STEPS, strict=True)]
        upper = [high(w, m) for w, m in zip(words[::2], MULTIPLIERS, strict=True)]
        lower = [w * signed(m) for w, m in zip(words[::2], MULTIPLIERS, strict=True)]
        words = [upper[1] ^ words[1] ^ keys[0], lower[1], upper[0] ^ words[3] ^ keys[1], lower[0]]
    return words


def draw(
    b: RuleBuilder, state: Tensor, delta: Any, sizes: Sequence[Size], chosen: Sequence[int], high: MultiplyHigh
) -> Any:
    """Draw words for each element: some of the four of the block at (counter + delta, element, stream)."""
    parts = [b.reshape(b.slice(state, [i], [1], [1]), []) for i in range(5)]

    def body(*words: Element) -> Any:
        seed_low, seed_high, low, upper, stream = words
        moved = low + b.element(delta, dtypes.int32)
        carry = ((moved ^ _LOWEST) < (low ^ _LOWEST)).to(dtypes.int32)
        position = [b.element(b.loop_index(i), dtypes.int64) for i in range(len(sizes))]
        number = linear(b, position, sizes).to(dtypes.int32)
        found = philox_words((moved, upper + carry, number, stream), (seed_low, seed_high), high)
        return found[chosen[0]] if len(chosen) == 1 else tuple(found[i] for i in chosen)

    results = b.each([(part, ()) for part in parts], sizes, body, [dtypes.int32] * len(chosen))
    return results[0] if len(chosen) == 1 else tuple(results)


@linalg_rule("flambeau.philox")
def philox(b: RuleBuilder, state: Tensor, delta: Any, sizes: Sequence[Size]) -> Any:
    return draw(b, state, delta, sizes, (0,), multiply_high)


@linalg_rule("flambeau.philox.pair")
def philox_pair(b: RuleBuilder, state: Tensor, delta: Any, sizes: Sequence[Size], first: int) -> Any:
    return draw(b, state, delta, sizes, (first, first + 1), multiply_high)


@linalg_rule("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout")
def dropout(b: RuleBuilder, x: Tensor, p: float, train: bool) -> Tensor:
    if train and p > 0:
        raise Unsupported("it draws random numbers", "Lower it by the backend contract: torch-thread-random-state.")
    return x
