"""Rules for Helion's scans and reductions with a function of the user's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from flambeau.diagnostics import Unsupported
from flambeau.frontends.helion.rules import device_rule

if TYPE_CHECKING:
    from flambeau.frontends.helion.kernel import KernelImporter
    from flambeau.lowering.builder import Size, Tensor


@device_rule("_associative_scan")
def associative_scan(k: KernelImporter, node: Node) -> Any:
    number, x, dim, reverse, is_tuple = (*k.resolve(node.args), False, False)[:5]
    parts = list(x) if is_tuple else [x]
    dim %= parts[0].rank
    if reverse and dim in _counts(k, node.args[1]):
        raise Unsupported("a scan from the end of a tile that lies over the edge")
    parts = scan(k, k.program.graph(number), parts, dim, reverse)
    return parts if is_tuple else parts[0]


@device_rule("_reduce")
def reduce(k: KernelImporter, node: Node) -> Any:
    """Reduce by scanning and taking the last element inside the tensor."""
    number, x, dim, keep, is_tuple = (*k.resolve(node.args), None, False, False)[: max(5, len(node.args))]
    parts = list(x) if is_tuple else [x]
    counts = _counts(k, node.args[1])
    if dim is None:
        if counts:
            raise Unsupported("a reduction over all dims of a tile that lies over the edge")
        parts, dim, keep = [k.b.reshape(p, [math.prod(d or 0 for d in p.shape)]) for p in parts], 0, False
    dim %= parts[0].rank
    results = []
    for part in scan(k, k.program.graph(number), parts, dim, reverse=False):
        sizes = k.b.sizes(part)
        starts: list[Size] = [0] * part.rank
        starts[dim] = k.b.sub(counts.get(dim, sizes[dim]), 1)
        sizes[dim] = 1
        last = k.b.slice(part, starts, sizes, [1] * part.rank)
        results.append(last if keep else k.tiles.without(last, [dim]))
    return results if is_tuple else results[0]


def scan(k: KernelImporter, combine: Graph, parts: list[Tensor], dim: int, reverse: bool) -> list[Tensor]:
    """Scan inclusively by doubling: y[i] = x[0] . x[1] ... x[i], in log2(n) combinations of shifted slices."""
    aten = torch.ops.aten
    if reverse:
        parts = [k.aten(aten.flip.default, p, [dim]) for p in parts]
    length, done = parts[0].shape[dim] or 0, 1
    while done < length:
        earlier = [k.aten(aten.slice.Tensor, p, dim, 0, length - done) for p in parts]
        later = [k.aten(aten.slice.Tensor, p, dim, done, length) for p in parts]
        joined = k.graph(combine, [*earlier, *later])
        joined = joined if isinstance(joined, list) else [joined]
        heads = [k.aten(aten.slice.Tensor, p, dim, 0, done) for p in parts]
        parts = [k.aten(aten.cat.default, [h, j], dim) for h, j in zip(heads, joined, strict=True)]
        done *= 2
    return [k.aten(aten.flip.default, p, [dim]) for p in parts] if reverse else parts


def _counts(k: KernelImporter, argument: Any) -> dict[int, Size]:
    first = argument[0] if isinstance(argument, (list, tuple)) else argument
    return k.counts(first.meta["val"].shape)
