"""Ops that are left to the engine, in TOSA: `tosa.custom`, whose numbers are JSON in an attribute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.lowering.builder import Tensor
from flambeau.lowering.external import External, constant_attribute, result_types, tensors_in
from flambeau.lowering.tosa.ops import TosaBuilder


def emit_custom(b: TosaBuilder, external: External, args: Sequence[Any]) -> list[Tensor]:
    """Build `tosa.custom %x {domain_name = "mylib", operator_name = "gate", implementation_attrs = "{...}"}`."""
    operands: list[SSAValue] = []
    numbers: dict[str, Any] = {}
    for position, value in enumerate(args):
        if found := tensors_in(value):
            operands += [b.target.released(x).value for x in found]
        elif isinstance(value, SSAValue):
            operands.append(b.target.from_scalar(value, b.dtype_of(value.type)))
        elif constant_attribute(value) is not None:
            numbers[external.name(position)] = value
        elif value is not None:
            raise Unsupported(f"tosa.custom does not take the argument '{external.name(position)}'")
    domain, _, name = external.symbol.rpartition(".")
    properties = {"operator_name": name, "domain_name": domain, "implementation_attrs": json.dumps(numbers)}
    call = b.emit(
        tosa.op("custom"), operands, result_types(b), {name: StringAttr(text) for name, text in properties.items()}
    )
    results = [Tensor(value, dtype) for value, (_, dtype) in zip(call.results, b.context.results, strict=True)]
    return [b.target.holds(x) for x in results]
