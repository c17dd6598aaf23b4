"""Random products of tensors whose sizes are 1, known or open, between random producers and consumers.

An engine pads what it multiplies to whole tiles and has shortcuts for rows and columns; what is summed, or passed on,
behind such a product shows whether the padding was cut off again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.testing.cases import Call, Sample

COUNT = 1000
"""How many there are."""
SIZES = (2, 3, 5, 7, 8, 13, 16, 17, 33)

Step = Callable[[Tensor], Tensor]
BEFORE: dict[str, Step] = {
    "as it is": lambda x: x,
    "softmax": lambda x: x.softmax(-1),
    "exp": torch.exp,
    "centre": lambda x: x - x.mean(0, keepdim=True),
    "one more": lambda x: F.pad(x, (0, 1))[..., :-1] + 1,
    "a half": lambda x: x.to(torch.float16).to(x.dtype),
}
AFTER: dict[str, Step] = {
    "as it is": lambda x: x,
    "sum of exp": lambda x: x.tanh().exp().sum(-1),
    "sum of all": lambda x: (x.tanh() + 2).sum(),
    "softmax": lambda x: x.softmax(-1),
    "softmax of all": lambda x: x.flatten().log_softmax(0),
    "first dim": lambda x: (x.tanh() + 2).sum(0),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=0.1),  # of one element it is rounding and nothing else
    "largest": lambda x: (x.abs() * -1).amax(-1),
    "running sum": lambda x: x.tanh().cumsum(-1),
    "place of the largest": lambda x: (x.abs() * -1).argmax(-1) + 0.0 * x.sum(-1),
    "twice": lambda x: torch.cat([x, x + 1], -1).mean(-1),
}
"""What is said of a row that was not cut to its size: 0, which is the padding, is no neutral element of these."""


class Contraction(nn.Module):
    """An einsum of two tensors, its letters and the order of its dims chosen by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random = Random(seed)
        batch, rows, columns, summed = (
            letters[: random.choice(counts)]
            for letters, counts in (("ab", (0, 0, 1, 2)), ("mn", (0, 1, 1, 2)), ("xy", (0, 1, 1, 2)), ("kl", (1, 1, 2)))
        )
        letters = batch + rows + columns + summed
        kinds = {letter: random.choice(("one", "known", "open", "open")) for letter in letters}
        self.open = sorted(letter for letter, kind in kinds.items() if kind == "open")
        self.known = {letter: 1 if kind == "one" else random.choice(SIZES) for letter, kind in kinds.items()}
        self.left, self.right = self._order(batch + rows + summed), self._order(batch + summed + columns)
        self.result = self._order(batch + rows + columns)
        self.before = random.choice(sorted(BEFORE))
        self.after = random.choice(sorted(AFTER)) if self.result else "as it is"

    def _order(self, letters: str) -> str:
        """Return the dims in the usual order or, half the time, in another."""
        return letters if self.random.random() < 0.5 else "".join(self.random.sample(letters, len(letters)))

    def __str__(self) -> str:
        return f"{self.before}, {self.left},{self.right}->{self.result} open {''.join(self.open)}, {self.after}"

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        product = torch.einsum(f"{self.left},{self.right}->{self.result}", BEFORE[self.before](x), y)
        return AFTER[self.after](product)

    def calls(self, dtype: torch.dtype) -> Iterator[Call]:
        """Yield calls with the sizes that the program is compiled for, and with others if it leaves sizes open."""
        for i in range(8 if self.open else 1):
            others = {letter: self.random.choice(SIZES) for letter in self.open} if i else {}
            sizes = {**self.known, **others}
            shapes = ([sizes[letter] for letter in letters] for letters in (self.left, self.right))
            yield Call(tuple(torch.randn(shape).to(dtype) for shape in shapes))

    def dynamic_shapes(self) -> Any:
        if not self.open:
            return None
        dim = torch.export.Dim.DYNAMIC
        return tuple({i: dim for i, c in enumerate(letters) if c in self.open} for letters in (self.left, self.right))


def contraction(seed: int, dtype: torch.dtype) -> list[Sample]:
    """Make the sample that a seed stands for."""
    module = Contraction(seed)
    return [Sample(module, list(module.calls(dtype)), module.dynamic_shapes(), label=str(module), rounding=True)]
