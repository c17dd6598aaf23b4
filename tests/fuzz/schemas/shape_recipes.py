"""Arguments of ops that rearrange and of those that make tensors."""

from __future__ import annotations

import torch
from fuzz.schemas.recipes import Given, recipe
from fuzz.schemas.tensors import Chooser

# --- Shapes ---


@recipe("view", "reshape", "view_copy", "_reshape_copy")
def reshape(c: Chooser, name: str) -> Given:
    shape = c.shape()
    if name.endswith(".dtype"):
        return {"self": c.tensor(shape, values="plain")}
    factors = [n for n in shape if n != 1]
    c.rng.shuffle(factors)
    new: list[int] = []
    for n in factors:
        if new and c.chance(0.4):
            new[-1] *= n
        else:
            new.append(n)
    if c.chance(0.3):
        new.insert(c.rng.randint(0, len(new)), 1)
    if new and c.chance(0.3):
        new[c.rng.randrange(len(new))] = -1
    return {"self": c.tensor(shape), "size": new, "shape": new}


@recipe("expand", "expand_copy", "broadcast_to")
def expand(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 3)
    x = tuple(1 if c.chance(0.5) else n for n in shape)
    lead = [c.size()] if c.chance(0.3) else []
    size = [*lead, *(-1 if c.chance(0.2) else n for n in shape)]
    return {"self": c.tensor(x), "size": size, "implicit": False}


@recipe("permute", "permute_copy", "movedim", "moveaxis", "flip", "roll", "rot90")
def permuted(c: Chooser, name: str) -> Given:
    shape = c.shape(0 if "rot90" not in name else 2)
    rank = len(shape)
    order = c.rng.sample(range(rank), rank)
    if "movedim.intlist" in name or ("movedim" in name and "int" not in name):
        count = c.rng.randint(0, rank)
        return {"self": c.tensor(shape), "source": order[:count], "destination": c.rng.sample(range(rank), count)}
    given: Given = {"self": c.tensor(shape), "dims": order}
    if "flip" in name:
        given["dims"] = c.dims(rank)
    if "roll" in name:
        given["dims"] = c.dims(rank)
        given["shifts"] = [c.rng.randint(-3, 3) for _ in given["dims"]]
    if "rot90" in name:
        given |= {"dims": order[:2], "k": c.rng.randint(-3, 5)}
    return given


@recipe("repeat", "tile")
def repeat(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 3)
    counts = [c.rng.randint(0, 3) for _ in range(len(shape) + c.rng.randint(0, 1))]
    return {"self": c.tensor(shape), "repeats": counts, "dims": counts}


@recipe("split", "split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes", "split_copy", "unsafe_split",
        "chunk", "unsafe_chunk", "tensor_split")  # fmt: skip
def split(c: Chooser, name: str) -> Given:
    shape = c.shape(1, 3)
    dim = c.rng.randrange(-len(shape), len(shape))
    left, sizes = shape[dim], []
    while left:
        sizes.append(c.rng.randint(1, left))
        left -= sizes[-1]
    sizes = sizes or [0]
    each = c.rng.randint(1, 4)
    return {
        "self": c.tensor(shape), "dim": dim, "split_size": sizes if name.endswith("sizes") else each,
        "split_sizes": sizes, "chunks": each, "sections": each,
        "indices": sorted(c.rng.randint(-4, 5) for _ in range(c.rng.randint(0, 3))),
    }  # fmt: skip


@recipe("cat", "concat", "concatenate", "stack", "hstack", "vstack", "column_stack", "meshgrid", "broadcast_tensors")
def joined(c: Chooser, name: str) -> Given:
    base = name.split(".")[1]
    count = c.rng.randint(1, 3)
    d = c.dtype()
    if base == "meshgrid":
        tensors = [c.tensor(c.shape(0, 1), d) for _ in range(count)]
        return {"tensors": tensors, "indexing": c.rng.choice(("ij", "xy"))}
    shape = c.shape(0 if base not in ("cat", "concat", "concatenate") else 1, 3)
    dim = c.dim(len(shape) + (base == "stack"))
    at = dim % max(len(shape), 1)
    tensors = []
    for _ in range(count):
        new = shape
        if base in ("cat", "concat", "concatenate"):
            new = tuple(c.size() if i == at else n for i, n in enumerate(shape)) if c.chance(0.92) else (0,)
        elif base == "broadcast_tensors":
            new = c.like(shape)
        tensors.append(c.tensor(new, d if c.chance(0.8) else c.dtype()))
    return {"tensors": tensors, "dim": dim}


@recipe("as_strided", "as_strided_copy", "as_strided_scatter")
def strided(c: Chooser, name: str) -> Given:
    n = c.rng.randint(1, 3)
    size = [c.rng.randint(0, 3) for _ in range(n)]
    stride = [c.rng.randint(0, 3) for _ in range(n)]
    x = c.tensor((c.rng.randint(2, 5), 6))
    x = type(x)(x.shape, x.dtype, x.values, x.limit, "contiguous", x.seed)
    if "scatter" in name:
        size, stride = [2, 3], [6, 1]
    return {"self": x, "src": c.tensor(size, x.dtype), "size": size, "stride": stride, "storage_offset": None}


@recipe("slice_scatter", "select_scatter", "diagonal_scatter")
def written(c: Chooser, name: str) -> Given:
    shape = tuple(c.rng.randint(1, 4) for _ in range(c.rng.randint(1 if "diag" not in name else 2, 3)))
    d = c.dtype()
    x = torch.empty(shape, device="meta")
    rank = len(shape)
    dim = c.rng.randrange(rank)
    if "slice" in name:
        start, end, step = c.rng.choice((None, 0, 1, -2)), c.rng.choice((None, 2, -1, 9)), c.rng.choice((1, 1, 2))
        part = torch.ops.aten.slice(x, dim, start, end, step)
        return {
            "self": c.tensor(shape, d),
            "src": c.tensor(part.shape, d),
            "dim": dim,
            "start": start,
            "end": end,
            "step": step,
        }
    if "select" in name:
        at = c.rng.randrange(-shape[dim], shape[dim])
        return {"self": c.tensor(shape, d), "src": c.tensor(x.select(dim, at).shape, d), "dim": dim, "index": at}
    offset = c.rng.randint(-1, 1)
    part = x.diagonal(offset, 0, 1)
    return {"self": c.tensor(shape, d), "src": c.tensor(part.shape, d), "offset": offset, "dim1": 0, "dim2": 1}


@recipe("unfold", "unfold_copy")
def unfold(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 3)
    dim = c.rng.randrange(-max(len(shape), 1), max(len(shape), 1))
    limit = shape[dim] if shape else 1
    return {"self": c.tensor(shape), "dimension": dim, "size": c.rng.randint(0, limit), "step": c.rng.randint(1, 3)}


@recipe("unflatten")
def unflatten(c: Chooser, name: str) -> Given:
    a, b = c.rng.randint(1, 3), c.rng.randint(1, 3)
    return {"self": c.tensor((2, a * b, 3)), "dim": c.rng.choice((1, -2)), "sizes": c.rng.choice(([a, b], [-1, b]))}


@recipe("eye", "tril_indices", "triu_indices")
def made(c: Chooser, name: str) -> Given:
    return {"n": c.size(), "m": c.size(), "row": c.size(), "col": c.size(), "offset": c.rng.randint(-3, 3)}


@recipe("arange", "linspace", "logspace")
def counted(c: Chooser, name: str) -> Given:
    start, end = c.rng.choice((0, 1, -2, 0.5)), c.rng.choice((0, 3, 5.5, -4, 7))
    step = c.rng.choice((1, 2, 0.5)) * (1 if end >= start else -1)
    tensors = name.split(".")[-1].split("_") if "Tensor" in name else ("", "")
    given: Given = {"start": start, "end": end, "step": step, "steps": c.size(), "base": 10.0}
    for key, kind in zip(("start", "end"), tensors, strict=False):
        if kind == "Tensor":
            given[key] = c.tensor((), torch.float32, "plain")
    if "arange" in name:
        given["end"] = abs(end) if name == "aten.arange" else end
    return given


@recipe("one_hot")
def one_hot(c: Chooser, name: str) -> Given:
    return {"self": c.tensor(c.shape(0, 2), torch.int64, "small"), "num_classes": c.rng.choice((5, 6, 3))}
