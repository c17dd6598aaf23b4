"""What the rewrites for IREE are made of: ops that are found and replaced, a builder at an op, a barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, TensorType, UnregisteredOp
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder

_BARRIER = UnregisteredOp.with_name("iree_tensor_ext.compute_barrier.start")


@dataclass(frozen=True)
class Rewrite:
    """A rewrite of what IREE does not take: which ops it is about, and what is to be done with one."""

    find: Callable[[ModuleOp], Iterable[Operation]]
    replace: Callable[[Any], SSAValue | None]
    """Gives what stands for the result of an op, which is erased then; None where it has done all itself."""

    def __call__(self, module: ModuleOp) -> ModuleOp:
        """Rewrite a copy of the module; return the module itself if nothing is found."""
        if next(iter(self.find(module)), None) is None:
            return module
        copy = module.clone()
        for op in dict.fromkeys(self.find(copy)):
            new = self.replace(op)
            if new is not None:
                op.results[0].replace_all_uses_with(new)
                erase(op)
        return copy


def builder_before(op: Operation) -> LinalgBuilder:
    """Make a builder that inserts before an op, with its location."""
    assert op.parent is not None
    b = LinalgBuilder(op.parent)
    b.before, b.location = op, op.location
    return b


def dtype_of(value: SSAValue) -> DType:
    element = value.type.element_type  # type: ignore[attr-defined]
    return dtypes.BY_BUILTIN[element]


def element_type(type_: Attribute) -> Attribute:
    """Take the type of a tensor's elements; a type that is no tensor's stands for itself."""
    return type_.element_type if isinstance(type_, TensorType) else type_


VIEWS = frozenset(
    {
        "tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice",
        "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose", "stablehlo.slice",
        "tosa.reshape", "tosa.transpose", "tosa.tile", "tosa.slice",
    }
)  # fmt: skip
"""Ops whose result has the elements of their first operand."""


def origin(value: SSAValue) -> SSAValue:
    """Follow a value back through views, and from the element that a loop nest reads to the tensor that it is of."""
    while True:
        around = value.block.parent_op() if isinstance(value, BlockArgument) else value.owner
        if isinstance(value, BlockArgument):
            if not isinstance(around, GenericOp) or value.index >= len(around.inputs):
                return value
            value = around.inputs[value.index]
        elif isinstance(around, Operation) and around.name in VIEWS:
            value = around.operands[0]
        else:
            return value


def mixed(static: DenseArrayBase[Any], dynamic: Sequence[SSAValue]) -> list[Size]:
    """Merge numbers that an attribute knows with operands for the others, in their order."""
    following = iter(dynamic)
    return [n if n >= 0 else next(following) for n in static.get_values()]


def stablehlo_before(
    op: Operation,
    name: str,
    operands: Sequence[SSAValue],
    type_: Attribute,
    properties: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Insert an op of StableHLO before another op, with its location; return its result."""
    new = stablehlo.op(name).create(operands=operands, result_types=[type_], properties=dict(properties or {}))
    new.location = op.location
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    return new.results[0]


def computed_once(b: LinalgBuilder, x: Tensor) -> Tensor:
    """Put a barrier behind a tensor, so that IREE does not compute it again inside of the loops that read it."""
    sizes = b.sizes(x)
    open_sizes = [size for size in sizes if isinstance(size, SSAValue)]
    barrier = _BARRIER.create(operands=[x.value, *open_sizes], result_types=[x.value.type], location=b.location)
    b.insert(barrier)
    return Tensor(barrier.results[0], x.dtype, sizes)


def set_apart(op: Operation, index: int) -> None:
    """Keep IREE from computing an operand of a StableHLO op together with the op."""
    operand = op.operands[index]
    op.operands[index] = stablehlo_before(op, "optimization_barrier", [operand], operand.type)
