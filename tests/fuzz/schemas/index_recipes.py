"""Arguments of ops that read and write at indices."""

from __future__ import annotations

from typing import Any

import torch
from fuzz.schemas.recipes import Given, recipe
from fuzz.schemas.tensors import FLOATS, INTS, Chooser

# --- Indices ---


@recipe("embedding", "embedding_dense_backward")
def embedding(c: Chooser, name: str) -> Given:
    rows, width = c.rng.randint(1, 5), c.size()
    index = c.tensor(c.shape(0, 3), c.rng.choice((torch.int64, torch.int32)), "small", 0)
    if name == "aten.embedding_dense_backward":
        index = c.tensor(c.shape(1, 2), torch.int64, "small")
        return {
            "grad_output": c.tensor((*index.shape, width), c.dtype(FLOATS), "plain"), "indices": index,
            "num_weights": 5, "padding_idx": c.rng.choice((-1, 2)), "scale_grad_by_freq": c.chance(0.3),
        }  # fmt: skip
    return {"weight": c.tensor((max(rows, 5 if c.chance(0.9) else 1), width)), "indices": index}


@recipe("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(c: Chooser, name: str) -> Given:
    count = c.rng.randint(1, 6)
    cuts = sorted(c.rng.randint(0, count) for _ in range(c.rng.randint(0, 3)))
    last = c.chance(0.4)
    mode = c.rng.choice((0, 1, 2))
    d = c.dtype((torch.float32, torch.float64, torch.float16))
    offsets = _exactly([0, *cuts, *([count] if last else [])])
    return {
        "weight": c.tensor((5, c.rng.randint(1, 3)), d, "distinct", contiguous=True),
        "indices": c.tensor((count,), torch.int64, "small", contiguous=True),
        "offsets": offsets, "mode": mode, "scale_grad_by_freq": False, "sparse": False,
        "per_sample_weights": c.tensor((count,), d, "plain", contiguous=True) if mode == 0 and c.chance(0.4) else None,
        "include_last_offset": last, "padding_idx": c.rng.choice((-1, 2)),
    }  # fmt: skip


class Exactly(list[int]):
    """A 1-d int64 tensor with these numbers."""

    shape: tuple[int, ...]
    dtype = torch.int64

    def make(self) -> torch.Tensor:
        return torch.tensor(list(self), dtype=torch.int64)

    def __str__(self) -> str:
        return f"torch.tensor({list(self)})"

    __hash__ = object.__hash__


def _exactly(numbers: list[int]) -> Exactly:
    found = Exactly(numbers)
    found.shape = (len(numbers),)
    return found


_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@recipe("gather", "take_along_dim", "scatter", "scatter_add", "scatter_reduce")
def along(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 4)
    rank = len(shape)
    dim = c.dim(rank)
    d = c.dtype()
    at = dim % rank if rank and -rank <= dim < rank else 0
    index = tuple(c.size() if i == at else c.rng.randint(0, n) if c.chance(0.3) else n for i, n in enumerate(shape))
    limit = shape[at] if shape else 1
    base = name.split(".")[1]
    kind = "rows" if base == "scatter" and "reduce" not in name else "index"
    if base != "take_along_dim" and kind == "index" and c.chance(0.9):
        kind = "rows"
    given: Given = {
        "self": c.tensor(shape, d), "dim": dim, "include_self": c.chance(0.5),
        "index": c.tensor(index, torch.int64, kind, limit),
        "src": c.tensor(tuple(n + c.chance(0.1) for n in index), d), "value": c.number(),
        "reduce": c.rng.choice(_REDUCTIONS if base == "scatter_reduce" else ("add", "multiply")),
    }  # fmt: skip
    if base == "take_along_dim":
        given["indices"] = given["index"]
    return given


@recipe("index_select", "index_add", "index_copy", "index_fill", "index_reduce")
def rows(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 4)
    rank = len(shape)
    dim = c.dim(rank)
    at = dim % rank if rank and -rank <= dim < rank else 0
    limit = shape[at] if shape else 1
    base = name.split(".")[1]
    unique = base in ("index_copy",)
    count = c.rng.randint(0, limit) if unique else c.size()
    index = c.tensor(
        (count,), c.rng.choice((torch.int64, torch.int64, torch.int32)), "rows" if unique else "index", limit
    )
    if c.chance(0.9):
        index = c.tensor((count,), index.dtype, "rows", limit)
    d = c.dtype()
    source = tuple(count if i == at else n for i, n in enumerate(shape)) if shape else ()
    return {
        "self": c.tensor(shape, d), "dim": dim, "index": index, "source": c.tensor(source, d),
        "reduce": c.rng.choice(("prod", "mean", "amax", "amin")), "include_self": c.chance(0.5),
        "value": c.number() if "Tensor" not in name else c.tensor((), d), "alpha": c.rng.choice((1, 1, 2)),
    }  # fmt: skip


@recipe("index", "_unsafe_index", "index_put", "_unsafe_index_put")
def index(c: Chooser, name: str) -> Given:
    # The unsafe ones do not look where nothing can be read.
    shape = tuple(max(n, int("unsafe" in name)) for n in c.shape(1, 4))
    where = c.shape(0, 2)
    count = c.rng.randint(1, len(shape))
    writes = "put" in name
    unsafe = "unsafe" in name
    tensors: list[Any] = []
    for n in shape[:count]:
        if c.chance(0.25):
            tensors.append(None)
        elif c.chance(0.15) and not unsafe:
            tensors.append(c.tensor((n,), torch.bool, "plain"))
        else:
            dtype = c.rng.choice((torch.int64, torch.int64, torch.int32))
            kind = "rows" if writes or unsafe or c.chance(0.85) else "index"
            tensors.append(c.tensor(where if writes else c.like(where), dtype, kind, n))
    d = c.dtype()
    return {
        "self": c.tensor(shape, d), "indices": tensors, "values": c.tensor((), d), "accumulate": c.chance(0.3),
    }  # fmt: skip


@recipe("take", "put")
def take(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 3)
    total = 1
    for n in shape:
        total *= n
    d = c.dtype()
    count = c.rng.randint(0, total)
    if name == "aten.put":
        return {
            "self": c.tensor(shape, d), "index": c.tensor((count,), torch.int64, "rows", total),
            "source": c.tensor((count,), d), "accumulate": c.chance(0.4),
        }  # fmt: skip
    return {"self": c.tensor(shape, d), "index": c.tensor(c.shape(0, 2), torch.int64, "index", total)}


@recipe("masked_scatter", "masked_select", "masked_fill")
def masked(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 4)
    d = c.dtype()
    total = 1
    for n in shape:
        total *= n
    return {
        "self": c.tensor(shape, d), "mask": c.tensor(c.like(shape), torch.bool, "plain"),
        "source": c.tensor((total + 1,), d), "value": c.tensor((), d) if "Tensor" in name else c.number(),
    }  # fmt: skip


@recipe("searchsorted", "bucketize")
def search(c: Chooser, name: str) -> Given:
    d = c.dtype((*FLOATS[:2], *INTS))
    n = c.rng.randint(0, 5)
    given: Given = {"out_int32": c.chance(0.3), "right": c.chance(0.5), "side": None, "sorter": None}
    ordered = Sorted((n,), d, c.rng.randrange(1 << 20))
    values: Any = c.tensor(c.shape(0, 2), d, "plain") if "Scalar" not in name else c.rng.choice((0, 1.5, -2, 3))
    if "bucketize" in name:
        return {"self": values, "boundaries": ordered, **given}
    return {"sorted_sequence": ordered, "self": values, **given}


class Sorted:
    """A 1-d tensor in ascending order."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
        self.shape, self.dtype, self.seed = shape, dtype, seed

    def make(self) -> torch.Tensor:
        from fuzz.schemas.tensors import TensorArgument

        return TensorArgument(self.shape, self.dtype, "distinct", seed=self.seed).make().sort()[0]

    def __str__(self) -> str:
        return f"torch.tensor({self.make().tolist()}, dtype={self.dtype})"
