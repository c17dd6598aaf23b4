"""What a program asks of a tensor besides its contents: device, dtype, layout, sizes, and the like.

What the compiled program cannot know (the strides of its arguments, and so of what is made of them; whether memory is
pinned) has no rule here: the op stays, and a lowering refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp
from flambeau.dialects.torch.types import INT, TensorType
from flambeau.infer.rules import product
from flambeau.ir.dtypes import DType
from flambeau.passes.evaluate.operands import materialize
from flambeau.passes.evaluate.state import Evaluation, NotKnown, new_list, rule
from flambeau.passes.evaluate.values import Known, View


def _tensor_type(value: Any) -> TensorType:
    """Return the type of a tensor; raises `NotKnown` for everything else."""
    type_ = getattr(value, "type", None)
    if not isinstance(type_, TensorType):
        raise NotKnown
    return type_


def _dtype(value: Any) -> DType:
    found = _tensor_type(value).dtype
    if found is None:
        raise NotKnown
    return found


# --- Devices: programs are compiled for tensors of one, which is the CPU to PyTorch ---


def _always(answer: Any, *names: str) -> None:
    """Add a rule for ops that give the same for all tensors."""
    rule(*names)(lambda e, op, *values: Known(answer))


_always(Device("cpu"), "prim.device")
_always(-1, "aten.get_device")
_always(True, "prim.is_cpu")
# Tensors of other devices and layouts, and quantised ones, have no type in the torch dialect.
_always(
    False, "prim.is_cuda", "prim.is_ipu", "prim.is_maia", "prim.is_meta", "prim.is_mkldnn", "prim.is_mps",
    "prim.is_mtia", "prim.is_nested", "prim.is_quantized", "prim.is_sparse", "prim.is_sparse_csr", "prim.is_vulkan",
    "prim.is_xla", "prim.is_xpu",
)  # fmt: skip
_always(0, "prim.layout")
# A compiled program computes no gradients, as under torch.no_grad().
_always(False, "aten.is_grad_enabled")


@rule("prim.type")
def device_type(e: Evaluation, op: Operation, value: Any) -> Any:
    return Known(_device(value).partition(":")[0])


@rule("prim.index")
def device_index(e: Evaluation, op: Operation, value: Any) -> Any:
    _, colon, index = _device(value).partition(":")
    return Known(int(index) if colon else None)


@rule("aten.eq.device")
def same_device(e: Evaluation, op: Operation, a: Any, b: Any) -> Any:
    return Known(_device(a) == _device(b))


@rule("aten.ne.device")
def other_device(e: Evaluation, op: Operation, a: Any, b: Any) -> Any:
    return Known(_device(a) != _device(b))


def _device(value: Any) -> str:
    if not isinstance(value, Known) or not isinstance(value.value, Device):
        raise NotKnown
    return str(value.value)


# --- Dtypes ---


def _of_dtype(property_: Callable[[DType], Any], *names: str) -> None:
    """Add a rule for ops that ask for a property of a tensor's dtype."""
    rule(*names)(lambda e, op, value: Known(property_(_dtype(value))))


_of_dtype(attrgetter("code"), "prim.dtype")
_of_dtype(attrgetter("is_float"), "aten.is_floating_point")
_of_dtype(attrgetter("is_complex"), "aten.is_complex")
_of_dtype(attrgetter("signed"), "aten.is_signed")
_of_dtype(attrgetter("size"), "aten.element_size", "prim.itemsize")


@rule("aten.is_conj")
def is_conj(e: Evaluation, op: Operation, value: Any) -> Any:
    """Fold to False for dtypes that are not complex: PyTorch conjugates complex tensors lazily, and tells."""
    if _dtype(value).is_complex:
        raise NotKnown
    return Known(False)


@rule("prim.nbytes")
def nbytes(e: Evaluation, op: Operation, value: Any) -> Any:
    shape = _tensor_type(value).shape
    count = product(shape) if shape is not None else None
    if count is None:
        raise NotKnown
    return Known(count * _dtype(value).size)


@rule("prim.requires_grad")
def requires_grad(e: Evaluation, op: Operation, value: Any) -> Any:
    """Fold to False: arguments that require a gradient are refused at the call. A weight may require one."""
    content = value.storage.content if isinstance(value, View) else value
    if isinstance(content, SSAValue) and isinstance(content.owner, LiteralOp | GlobalSlotGetOp):
        raise Unsupported("whether a weight requires a gradient is not known to a compiled program")
    return Known(False)


# --- Sizes ---


@rule("aten.size")
def size(e: Evaluation, op: Operation, value: Any) -> Any:
    shape = _tensor_type(value).shape
    if shape is None:
        raise NotKnown
    whole: SSAValue | None = None
    sizes: list[Any] = []
    for i, d in enumerate(shape):
        if d is not None:
            sizes.append(Known(d))
            continue
        whole = whole or materialize(e, value)
        sizes.append(e.t.op("aten.size.int", (whole, e.t.constant(i)), (INT,))[0])
    return new_list(e, sizes, op.results[0].type)
