"""The types at a program's border, from those of the IR."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute

from flambeau.dialects.torch.types import BOOL, FLOAT, TensorType
from flambeau.ir import dtypes
from flambeau.ir.module import ScalarSpec, TensorSpec


def spec_of(type_: Attribute) -> TensorSpec | ScalarSpec:
    """Describe what a caller passes for an argument of this type, torch or builtin."""
    if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype is not None:
        return TensorSpec(type_.shape, type_.dtype)
    if isinstance(type_, BuiltinTensorType):
        element = type_.element_type
        # Signed elements stand in literals of the torch dialect; elsewhere builtin tensors are signless.
        dtype = dtypes.BY_TORCH_TYPE.get(element) or next((d for d in dtypes.DTYPES if d.builtin == element), None)
        if dtype is not None:
            return TensorSpec(tuple(None if d < 0 else d for d in type_.get_shape()), dtype)
    if type_ in (BOOL, dtypes.bool_.builtin):
        return ScalarSpec("bool")
    return ScalarSpec("float" if type_ in (FLOAT, dtypes.float64.builtin) else "int")
