"""What must hold for StableHLO's collectives, which exchange tensors between devices."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute

from flambeau.dialects.declared.ops import DeclaredOp, agree, shape


def group_size(op: DeclaredOp) -> int:
    """Return how many devices are in each of the groups that exchange tensors."""
    groups = op.properties["replica_groups"]
    sizes = groups.type.get_shape() if isinstance(groups, DenseIntOrFPElementsAttr) else ()
    if len(sizes) != 2:
        op.wrong(f"'replica_groups' has a row for each group, got {groups}")
    return int(sizes[1])


def one_result_per_operand(op: DeclaredOp) -> None:
    if len(op.results) != len(op.operands) or not op.results:
        op.wrong(f"has a result for each of its {len(op.operands)} operands, got {len(op.results)}")


def combines(op: DeclaredOp) -> None:
    """Check that the region combines two scalars."""
    scalar: Attribute = TensorType(op.tensor(0).element_type, [])
    op.expect_arguments(0, [scalar, scalar])
    op.expect_terminator(0, [scalar])


def all_reduce(op: DeclaredOp) -> None:
    group_size(op)
    one_result_per_operand(op)
    for i in range(len(op.results)):
        if not agree(op.tensor(i), op.result_tensor(i)):
            op.wrong(f"result {i} has the type of its operand {op.tensor(i)}, got {op.result_tensor(i)}")
    combines(op)


def all_gather(op: DeclaredOp) -> None:
    one_result_per_operand(op)
    for i in range(len(op.results)):
        op.expect_shape(_scaled(op, i, "all_gather_dim", group_size(op), 1), i)
        op.expect_element(op.tensor(i).element_type, i)


def reduce_scatter(op: DeclaredOp) -> None:
    op.expect_shape(_scaled(op, 0, "scatter_dimension", 1, group_size(op)))
    op.expect_element(op.tensor(0).element_type)
    combines(op)


def all_to_all(op: DeclaredOp) -> None:
    one_result_per_operand(op)
    count = op.integer("split_count")
    if count != group_size(op):
        op.wrong(f"splits into as many parts as a group has devices, {group_size(op)}, got {count}")
    for i in range(len(op.results)):
        split = list(_scaled(op, i, "split_dimension", 1, count))
        at = op.integer("concat_dimension")
        op.expect_dimension(at, len(split))
        split[at] = None if split[at] is None else split[at] * count  # type: ignore[operator]
        op.expect_shape(split, i)


def collective_permute(op: DeclaredOp) -> None:
    pairs = op.properties["source_target_pairs"]
    if not isinstance(pairs, DenseIntOrFPElementsAttr) or list(pairs.type.get_shape())[1:] != [2]:
        op.wrong(f"'source_target_pairs' has two numbers in each row, got {pairs}")
    values = [int(v) for v in pairs.get_values()]
    for kind, devices in (("source", values[::2]), ("target", values[1::2])):
        if len(set(devices)) != len(devices):
            op.wrong(f"a device is the {kind} of one pair at most, got {devices}")


def _scaled(op: DeclaredOp, index: int, name: str, times: int, over: int) -> tuple[int | None, ...]:
    """Return the shape of an operand, with the size of the dim that a property names times one number over another."""
    sizes = shape(op.tensor(index))
    if sizes is None:
        op.wrong(f"operand {index} has a rank, got {op.tensor(index)}")
    at = op.integer(name)
    op.expect_dimension(at, len(sizes))
    size = sizes[at]
    if size is not None and size % over:
        op.wrong(f"dimension {at} of {op.tensor(index)} has no {over} equal parts")
    return (*sizes[:at], None if size is None else size * times // over, *sizes[at + 1 :])
