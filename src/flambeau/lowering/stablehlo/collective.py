"""Collectives as StableHLO's, among the devices of a process group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import stablehlo
from flambeau.dialects.sdy import ShardingAttr, ShardingConstraintOp, open_sharding
from flambeau.lowering.builder import Tensor, tensor_type
from flambeau.lowering.stablehlo.ops import REDUCERS, StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule
from flambeau.lowering.stablehlo.vocabulary import flipped

REDUCTIONS = {
    "sum": "add", "avg": "add", "product": "mul", "min": "min", "max": "max", "band": "and", "bor": "or", "bxor": "xor",
}  # fmt: skip
"""What `torch.distributed` calls reductions, and their kinds."""


def numbers(rows: Sequence[Sequence[int]]) -> DenseIntOrFPElementsAttr:
    """Make a matrix of numbers of devices."""
    flat = [n for row in rows for n in row]
    return DenseIntOrFPElementsAttr.from_list(TensorType(i64, [len(rows), len(rows[0])]), flat)


def _among(b: StablehloBuilder, groups: Sequence[Sequence[int]]) -> dict[str, Attribute]:
    """Make the properties that say which devices exchange tensors."""
    return {"replica_groups": numbers(groups), "channel_handle": _channel(b)}


def _channel(b: StablehloBuilder) -> Attribute:
    b.target.channels += 1
    return stablehlo.channel(b.target.channels)


def _combined(b: StablehloBuilder, name: str, x: Tensor, reduce_op: str, properties: Any, shape: Any) -> Tensor:
    """Emit a collective that combines the tensors of a group; 'avg' is divided by the caller."""
    kind = REDUCTIONS.get(reduce_op.lower())
    if kind is None:
        raise Unsupported(f"a reduction {reduce_op!r} between devices; there are {', '.join(REDUCTIONS)}")
    if kind in ("and", "or", "xor") and not x.dtype.is_integral:
        raise Unsupported(f"a reduction {reduce_op!r} of {x.dtype}")
    reducer = REDUCERS[kind]
    if x.dtype.is_bool:
        reducer = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(reducer, reducer)
    # Unsigned numbers in the order of signed ones.
    is_turned = kind in ("min", "max") and x.dtype.is_int and not x.dtype.signed
    value: SSAValue = flipped(b.target, x.value) if is_turned else x.value
    type_ = tensor_type(shape, x.dtype.builtin)
    region = b.target.reducer(reducer, x.dtype)
    value = b.target.make(name, (value,), type_, {**properties, "use_global_device_ids": UnitAttr()}, [region])
    return Tensor(flipped(b.target, value) if is_turned else value, x.dtype)


def _averaged(b: StablehloBuilder, x: Tensor, reduce_op: str, size: int) -> Tensor:
    if reduce_op.lower() != "avg":
        return x
    if x.dtype.is_integral:
        raise Unsupported(f"a mean of {x.dtype} between devices", "Convert to a float, or sum up and divide.")
    return b.elementwise([x], lambda e: e / size, x.dtype)


def _static(x: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor; Unsupported if it is not known at compile time."""
    known = tuple(n for n in x.shape if n is not None)
    if len(known) != x.rank:
        raise Unsupported("a tensor of dynamic shape is exchanged between devices", "Compile with static shapes.")
    return known


@stablehlo_rule("_c10d_functional.all_reduce")
def all_reduce(b: StablehloBuilder, x: Tensor, reduce_op: str, group: str) -> Tensor:
    groups = b.target.groups.members(group)
    size = len(groups[0])
    if size > 1:
        x = _combined(b, "all_reduce", x, reduce_op, _among(b, groups), _static(x))
    return _averaged(b, x, reduce_op, size)


@stablehlo_rule("_c10d_functional.all_gather_into_tensor")
def all_gather(b: StablehloBuilder, x: Tensor, group_size: int, group: str) -> Tensor:
    groups = _groups_of_size(b, group, group_size)
    if group_size == 1:
        return x
    rows, *rest = _static(x)
    type_ = tensor_type((rows * group_size, *rest), x.dtype.builtin)
    properties = {
        "all_gather_dim": stablehlo.integer(0), **_among(b, groups), "use_global_device_ids": UnitAttr()
    }  # fmt: skip
    return Tensor(b.target.make("all_gather", (x.value,), type_, properties), x.dtype)


@stablehlo_rule("_c10d_functional.reduce_scatter_tensor")
def reduce_scatter(b: StablehloBuilder, x: Tensor, reduce_op: str, group_size: int, group: str) -> Tensor:
    groups = _groups_of_size(b, group, group_size)
    if group_size > 1:
        rows, *rest = _static(x)
        properties = {"scatter_dimension": stablehlo.integer(0), **_among(b, groups)}
        x = _combined(b, "reduce_scatter", x, reduce_op, properties, (rows // group_size, *rest))
    return _averaged(b, x, reduce_op, group_size)


@stablehlo_rule("_c10d_functional.all_to_all_single")
def all_to_all(b: StablehloBuilder, x: Tensor, outputs: Sequence[int], inputs: Sequence[int], group: str) -> Tensor:
    groups = b.target.groups.members(group)
    if len({*inputs, *outputs}) > 1:
        raise Unsupported(
            f"all_to_all_single with the sizes {list(inputs)} and {list(outputs)}: other devices have other sizes, "
            "and they run the same program",
            "Pad to equal sizes. For permute_tensor give compile() the nn.Module itself: an ExportedProgram has "
            "recorded what one rank does.",
        )
    if len(groups[0]) == 1:
        return x
    properties = {
        "split_dimension": stablehlo.integer(0), "concat_dimension": stablehlo.integer(0),
        "split_count": stablehlo.integer(len(groups[0])), **_among(b, groups),
    }  # fmt: skip
    _static(x)
    return Tensor(b.target.make("all_to_all", (x.value,), x.value.type, properties), x.dtype)


@stablehlo_rule("_c10d_functional.broadcast")
def broadcast(b: StablehloBuilder, x: Tensor, source: int, group: str) -> Tensor:
    groups = b.target.groups.members(group)
    if not 0 <= source < len(groups[0]):
        raise Unsupported(f"a broadcast from rank {source} of a group of {len(groups[0])}")
    if len(groups[0]) == 1:
        return x
    # The first of a group is the source.
    turned = [[*g[source:], *g[:source]] for g in groups]
    return Tensor(b.target.make("collective_broadcast", (x.value,), x.value.type, _among(b, turned)), x.dtype)


@stablehlo_rule("flambeau.permute_tensor")
def permute(b: StablehloBuilder, x: Tensor, targets: Sequence[int], group: str) -> Tensor:
    groups = b.target.groups.members(group)
    if sorted(targets) != list(range(len(groups[0]))):
        raise Unsupported(f"permute_tensor with {list(targets)}, which is no permutation of {len(groups[0])} ranks")
    pairs = [(g[i], g[target]) for g in groups for i, target in enumerate(targets)]
    properties = {"source_target_pairs": numbers(pairs), "channel_handle": _channel(b)}
    return Tensor(b.target.make("collective_permute", (x.value,), x.value.type, properties), x.dtype)


@stablehlo_rule("flambeau.constrain")
def constrain(b: StablehloBuilder, x: Tensor, axis: str, dim: int | None) -> Tensor:
    if axis not in b.target.groups.mesh:
        raise Unsupported(f"a tensor is laid out along {axis!r}, and the program has no such axis")
    properties = {"sharding": ShardingAttr(open_sharding(x.rank, axis, dim))}
    return Tensor(b.value(ShardingConstraintOp, (x.value,), x.value.type, properties), x.dtype, b.sizes(x))


def _groups_of_size(b: StablehloBuilder, group: str, size: int) -> list[list[int]]:
    groups = b.target.groups.members(group)
    if len(groups[0]) != size:
        raise Unsupported(
            f"it is among {size} devices, and the process group {group!r} has {len(groups[0])} on this mesh",
            "Trace the model with a process group of the mesh's size.",
        )
    return groups
