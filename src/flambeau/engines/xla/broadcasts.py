"""WORKAROUND(jax==0.10.2): broadcasts between devices, for CPUs.

XLA does not compile `collective_broadcast` for CPUs: "HLO opcode `collective-broadcast` is not supported by XLA:CPU
ThunkEmitter". It is an `all_gather` here, of which each device takes what the first of its group has. To go when
`tests/engines/test_xla_collectives.py::test_xla_has_no_broadcast_on_cpus` fails.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType, UnitAttr
from xdsl.ir import Operation

from flambeau.dialects import stablehlo
from flambeau.engines.xla.values import before
from flambeau.ir.builder import erase
from flambeau.lowering.builder import i64_array, tensor_type


def broadcasts_to_gathers(module: ModuleOp) -> None:
    """Replace the broadcasts of a module, in place."""
    for op in list(module.walk()):
        if op.name == "stablehlo.collective_broadcast":
            _replace(op)


def _replace(op: Operation) -> None:
    type_, groups = op.results[0].type, op.properties["replica_groups"]
    assert isinstance(type_, TensorType)
    assert isinstance(groups, DenseIntOrFPElementsAttr)
    shape, element = type_.get_shape(), type_.element_type
    size = groups.type.get_shape()[1]
    b = before(op)
    row = b.value(stablehlo.op("reshape"), (op.operands[0],), tensor_type((1, *shape), element))
    properties: dict[str, Any] = {
        "all_gather_dim": stablehlo.integer(0),
        **op.properties,
        "use_global_device_ids": UnitAttr(),
    }
    rows = b.value(stablehlo.op("all_gather"), (row,), tensor_type((size, *shape), element), properties)
    bounds = {
        "start_indices": i64_array((0,) * (len(shape) + 1)),
        "limit_indices": i64_array((1, *shape)),
        "strides": i64_array((1,) * (len(shape) + 1)),
    }
    first = b.value(stablehlo.op("slice"), (rows,), tensor_type((1, *shape), element), bounds)
    op.results[0].replace_all_uses_with(b.value(stablehlo.op("reshape"), (first,), type_))
    erase(op)
