"""Dilated convolutions in groups, one convolution for each group.

WORKAROUND(iree==3.13): the compiler dilates the kernel of such a `stablehlo.convolution` by writing zeros into it, and
zero times infinity is NaN. It can go when `test_a_dilated_convolution_in_groups` in tests/engines/test_iree_bugs.py
passes. Depthwise convolutions, which may have many groups, are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, stablehlo_before
from flambeau.lowering.builder import i64_array
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "stablehlo.convolution" and _groups(op) > 1:
            dilation: Any = op.properties.get("rhs_dilation")
            _, kernel, _ = _layouts(op)
            is_static = not any(None in shape_of(v) for v in (*op.operands, op.results[0]))
            is_depthwise = shape_of(op.operands[1])[kernel.feature] == 1
            if is_static and not is_depthwise and dilation is not None and max(dilation.get_values()) > 1:
                yield op


def _groups(op: Operation) -> int:
    count: Any = op.properties["feature_group_count"]
    return int(count.value.data)


def _layouts(op: Operation) -> Any:
    numbers: Any = op.properties["dimension_numbers"]
    return numbers.data


def _split(op: Operation) -> SSAValue:
    groups, (lhs, kernel, out) = _groups(op), _layouts(op)
    x, weight = op.operands
    properties = {**op.properties, "feature_group_count": IntegerAttr(1, i64)}
    type_ = _part_type(op.results[0], out.feature, groups)
    results = []
    for g in range(groups):
        parts = _part(op, x, lhs.feature, g, groups), _part(op, weight, kernel.first, g, groups)
        results.append(stablehlo_before(op, "convolution", parts, type_, properties))
    dim = {"dimension": IntegerAttr(out.feature, i64)}
    return stablehlo_before(op, "concatenate", results, op.results[0].type, dim)


def _part(op: Operation, value: SSAValue, dim: int, index: int, groups: int) -> SSAValue:
    """Slice one of the equal parts of a tensor along a dim."""
    shape = [n for n in shape_of(value) if n is not None]
    size = shape[dim] // groups
    starts, limits = [0] * len(shape), list(shape)
    starts[dim], limits[dim] = index * size, (index + 1) * size
    bounds = {
        "start_indices": i64_array(tuple(starts)),
        "limit_indices": i64_array(tuple(limits)),
        "strides": i64_array((1,) * len(shape)),
    }
    return stablehlo_before(op, "slice", (value,), _part_type(value, dim, groups), bounds)


def _part_type(value: SSAValue, dim: int, groups: int) -> Attribute:
    assert isinstance(value.type, TensorType)
    shape = list(value.type.get_shape())
    shape[dim] //= groups
    return TensorType(value.type.element_type, shape)


REWRITE = Rewrite(_found, _split)
