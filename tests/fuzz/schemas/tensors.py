"""Random tensors: shapes, dtypes, layouts and contents, each of which can be written as one line of Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*FLOATS, *INTS, torch.bool, *COMPLEX)

SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e4, -1e4)


@dataclass(frozen=True)
class TensorArgument:
    """A tensor to be made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: str = "plain"
    """`plain`; `special`, with NaN, infinities and limits; `distinct`; `positive`; `unit`, between 0 and 1; `small`,
    integers from 0 to 4; `index`, up to `limit`; `rows`, each a permutation of what is below `limit`."""
    limit: int = 0
    layout: str = "contiguous"
    """`contiguous`, `transposed`, `strided`, `channels_last`, `expanded` (which overlaps)."""
    seed: int = 0

    def make(self) -> torch.Tensor:
        """Make the tensor, the same one each time."""
        base = self._contents()
        return base if self.layout == "contiguous" else _laid_out(base, self.layout)

    def _contents(self) -> torch.Tensor:
        rng = Random(self.seed)
        count = math.prod(self.shape)
        if self.values == "rows":
            return self._rows(rng)
        numbers = [self._number(rng) for _ in range(count)]
        if self.values == "distinct":
            low = 0 if self.dtype in (torch.uint8, torch.bool) else -(count // 2)
            numbers = [n + low for n in range(count)]
            if self.dtype in (torch.uint8, torch.int8):  # As distinct as there are numbers.
                numbers = [n % 128 for n in numbers]
            rng.shuffle(numbers)
        return torch.tensor(numbers, dtype=self.dtype).reshape(self.shape)

    def _rows(self, rng: Random) -> torch.Tensor:
        """Make indices that differ along every dim."""
        count = math.prod(self.shape)
        if not self.shape or max(self.shape) > self.limit:
            return torch.tensor([rng.randrange(max(self.limit, 1)) for _ in range(count)]).reshape(self.shape)
        if self.limit == 0:
            return torch.zeros(self.shape, dtype=self.dtype)
        start = rng.randrange(self.limit)
        grid = torch.zeros(self.shape, dtype=torch.int64)
        for d, n in enumerate(self.shape):
            grid = grid + torch.arange(n).reshape([n if i == d else 1 for i in range(len(self.shape))])
        return ((grid + start) % self.limit).to(self.dtype)

    def _number(self, rng: Random) -> Any:
        dtype, kind = self.dtype, self.values
        if kind == "index":
            return (
                rng.randrange(-self.limit, self.limit)
                if self.limit and rng.random() < 0.1
                else rng.randrange(max(self.limit, 1))
            )
        if dtype is torch.bool:
            return rng.random() < 0.5
        if kind == "small":
            return rng.randrange(5)
        if dtype.is_complex:
            return complex(round(rng.gauss(0, 2), 2), round(rng.gauss(0, 2), 2))
        if dtype.is_floating_point:
            if kind == "special" and rng.random() < 0.35:
                return rng.choice(SPECIAL)
            number = rng.gauss(0, 2)
            if kind == "positive":
                number = abs(number) + 0.1
            elif kind == "unit":
                number = rng.random()
            elif rng.random() < 0.15:
                number = float(round(number))
            return round(number, 3)
        low = 0 if dtype is torch.uint8 or kind == "positive" else -6
        if kind == "special" and rng.random() < 0.3:
            limits = torch.iinfo(dtype)
            return rng.choice([limits.min, limits.max, limits.max - 1, 0])
        return rng.randint(low + (kind == "positive"), 7)

    def __str__(self) -> str:
        base = self._contents()
        dtype = str(self.dtype)
        if base.numel() == 0:
            text = f"torch.zeros({tuple(self.shape)}, dtype={dtype})"
        else:
            text = f"torch.tensor({_listed(base.tolist())}, dtype={dtype})"
        if self.layout == "expanded" and self.shape and self.shape[0] > 0:
            return f"{text}[:1].expand({self.shape})"
        return text + (_AS_TEXT.get(self.layout, "") if _fits(self.layout, len(self.shape)) else "")


def _listed(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_listed, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if value != value else "math.inf" if value > 0 else "-math.inf"
    return repr(value)


_AS_TEXT = {
    "transposed": ".mT.contiguous().mT",
    "strided": ".repeat_interleave(2, -1)[..., ::2]",
    "channels_last": ".contiguous(memory_format=torch.channels_last)",
}


def _fits(layout: str, rank: int) -> bool:
    """Whether tensors of a rank can have a layout."""
    return {"transposed": rank >= 2, "strided": rank >= 1, "channels_last": rank == 4}.get(layout, False)


def _laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "transposed" and x.dim() >= 2:
        return x.mT.contiguous().mT
    if layout == "strided" and x.dim() >= 1:
        return x.repeat_interleave(2, -1)[..., ::2]
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "expanded" and x.dim() >= 1 and x.shape[0] > 0:
        return x[:1].expand(x.shape)
    return x


class Chooser:
    """Random choices that arguments are made of."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def size(self) -> int:
        return self.rng.choices((0, 1, 2, 3, 4, 5), (2, 6, 12, 12, 5, 3))[0]

    def shape(self, low: int = 0, high: int = 5) -> tuple[int, ...]:
        ranks = range(low, high + 1)
        rank = self.rng.choices(ranks, [(2, 4, 6, 4, 3, 1)[r] for r in ranks])[0]
        return tuple(self.size() for _ in range(rank))

    def dtype(self, pool: Sequence[torch.dtype] = ALL) -> torch.dtype:
        if torch.float32 in pool and self.chance(0.35):
            return torch.float32
        return self.rng.choice(pool)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
        values: str | None = None,
        limit: int = 0,
        pool: Sequence[torch.dtype] = ALL,
        contiguous: bool = False,
    ) -> TensorArgument:
        if values is None:
            values = self.rng.choices(("plain", "special", "small", "positive"), (70, 18, 7, 5))[0]
        layout = "contiguous"
        if self.chance(0.2) and not contiguous:
            layout = self.rng.choice(("transposed", "strided", "channels_last", "expanded"))
            if layout == "expanded" and values in ("distinct", "rows", "index"):
                layout = "contiguous"
        found = TensorArgument(
            tuple(shape), dtype or self.dtype(pool), values, limit, layout, self.rng.randrange(1 << 30)
        )
        return replace(found, values="plain") if found.dtype.is_complex else found

    def like(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Choose a shape that, mostly, broadcasts with another one."""
        draw = self.rng.random()
        new = list(shape)
        if draw < 0.6:
            return tuple(new)
        if draw < 0.75 and new:
            new = new[self.rng.randrange(len(new) + 1) :]
        if draw < 0.95:
            return tuple(1 if self.chance(0.4) else d for d in new)
        return self.shape()

    def dim(self, rank: int) -> int:
        bound = max(rank, 1)
        if self.chance(0.03):
            return self.rng.choice((bound, -bound - 1))
        return self.rng.randrange(-bound, bound)

    def dims(self, rank: int) -> list[int]:
        if self.chance(0.03):
            return [self.dim(rank) for _ in range(self.rng.randrange(3))]
        chosen = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return [d - rank if self.chance(0.3) else d for d in chosen]

    def number(self) -> Any:
        """Choose a Python scalar."""
        return self.rng.choice(
            (0, 1, 2, 3, -1, -2, 7, 0.0, 0.5, 1.0, -1.5, 2.0, 2.5, 1e-3, True, False, self.rng.randint(-9, 9))
        )
