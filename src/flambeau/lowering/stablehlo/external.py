"""Ops that are left to the engine, in StableHLO: custom calls, whose numbers are attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i32
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import stablehlo
from flambeau.lowering.builder import Tensor
from flambeau.lowering.external import External, constant_attribute, result_types, tensors_in
from flambeau.lowering.stablehlo.ops import StablehloBuilder

TYPED_FFI = IntegerAttr(4, i32)
"""The version of XLA's interface for custom calls whose attributes are a dictionary."""


def emit_custom_call(b: StablehloBuilder, external: External, args: Sequence[Any]) -> list[Tensor]:
    """Build `stablehlo.custom_call @symbol(%x) {backend_config = {scale = 2.0 : f64}, ...}`; None is left out."""
    operands: list[SSAValue] = []
    attributes: dict[str, Attribute] = {}
    for position, value in enumerate(args):
        if found := tensors_in(value):
            operands += [x.value for x in found]
        elif isinstance(value, SSAValue):
            operands.append(b.target.from_scalar(value, b.dtype_of(value.type)))
        elif (attribute := constant_attribute(value)) is not None:
            attributes[external.name(position)] = attribute
        elif value is not None:
            raise Unsupported(f"a custom call does not take the argument '{external.name(position)}'")
    call = b.emit(
        stablehlo.op("custom_call"),
        operands,
        result_types(b),
        {
            "call_target_name": StringAttr(external.symbol),
            "backend_config": DictionaryAttr(attributes),
            "api_version": TYPED_FFI,
        },
    )
    return [Tensor(value, dtype) for value, (_, dtype) in zip(call.results, b.context.results, strict=True)]
