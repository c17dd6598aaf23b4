"""What a program asks of a tensor besides its contents: device, dtype, layout, sizes, and the like.

What the compiled program cannot know (the strides of its arguments, and so of what is made of them; whether memory is
pinned) has no rule here: the op stays, and a lowering refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp
from flambeau.dialects.torch.types import INT, TensorType
from flambeau.infer.rules import product
from flambeau.ir.dtypes import DType
from flambeau.passes.evaluate.rules import RULES, NotKnown, new_list, rule
from flambeau.passes.evaluate.values import Known, View

if TYPE_CHECKING:
    from flambeau.passes.evaluate.evaluator import Evaluator

__all__ = ["RULES"]


def _tensor_type(e: Evaluator, value: Any) -> TensorType:
    type_ = e.view_type(value) if isinstance(value, View) else getattr(value, "type", None)
    if not isinstance(type_, TensorType):
        raise NotKnown
    return type_


def _dtype(e: Evaluator, value: Any) -> DType:
    found = _tensor_type(e, value).dtype
    if found is None:
        raise NotKnown
    return found


# --- Devices: programs are compiled for tensors of one, which is the CPU to PyTorch ---


@rule("prim.device")
def device(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(Device("cpu"))


@rule("aten.get_device")
def get_device(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(-1)


@rule("prim.type")
def device_type(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_device(value).partition(":")[0])


@rule("prim.index")
def device_index(e: Evaluator, op: Operation, value: Any) -> Any:
    _, colon, index = _device(value).partition(":")
    return Known(int(index) if colon else None)


@rule("aten.eq.device")
def same_device(e: Evaluator, op: Operation, a: Any, b: Any) -> Any:
    return Known(_device(a) == _device(b))


@rule("aten.ne.device")
def other_device(e: Evaluator, op: Operation, a: Any, b: Any) -> Any:
    return Known(_device(a) != _device(b))


def _device(value: Any) -> str:
    if not isinstance(value, Known) or not isinstance(value.value, Device):
        raise NotKnown
    return str(value.value)


@rule("prim.is_cpu")
def is_cpu(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(True)


@rule(
    "prim.is_cuda", "prim.is_ipu", "prim.is_maia", "prim.is_meta", "prim.is_mkldnn", "prim.is_mps", "prim.is_mtia",
    "prim.is_nested", "prim.is_quantized", "prim.is_sparse", "prim.is_sparse_csr", "prim.is_vulkan", "prim.is_xla",
    "prim.is_xpu",
)  # fmt: skip
def is_elsewhere(e: Evaluator, op: Operation, value: Any) -> Any:
    """Tensors of other devices and layouts, and quantised ones, have no type in the torch dialect."""
    return Known(False)


# --- Dtypes and layouts ---


@rule("prim.dtype")
def dtype(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_dtype(e, value).code)


@rule("prim.layout")
def layout(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(0)


@rule("aten.is_floating_point")
def is_floating_point(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_dtype(e, value).is_float)


@rule("aten.is_complex")
def is_complex(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_dtype(e, value).is_complex)


@rule("aten.is_signed")
def is_signed(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_dtype(e, value).signed)


@rule("aten.is_conj")
def is_conj(e: Evaluator, op: Operation, value: Any) -> Any:
    """PyTorch conjugates complex tensors lazily, and tells; other tensors never are."""
    if _dtype(e, value).is_complex:
        raise NotKnown
    return Known(False)


@rule("aten.element_size", "prim.itemsize")
def element_size(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(_dtype(e, value).size)


@rule("prim.nbytes")
def nbytes(e: Evaluator, op: Operation, value: Any) -> Any:
    shape = _tensor_type(e, value).shape
    count = product(shape) if shape is not None else None
    if count is None:
        raise NotKnown
    return Known(count * _dtype(e, value).size)


# --- Gradients: a compiled program computes none, as under torch.no_grad() ---


@rule("aten.is_grad_enabled")
def is_grad_enabled(e: Evaluator, op: Operation) -> Any:
    return Known(False)


@rule("prim.requires_grad")
def requires_grad(e: Evaluator, op: Operation, value: Any) -> Any:
    """Arguments that require a gradient are refused when the program is called; a weight may require one."""
    content = value.storage.content if isinstance(value, View) else value
    if isinstance(content, SSAValue) and isinstance(content.owner, LiteralOp | GlobalSlotGetOp):
        raise Unsupported("whether a weight requires a gradient is not known to a compiled program")
    return Known(False)


# --- Sizes ---


@rule("aten.size")
def size(e: Evaluator, op: Operation, value: Any) -> Any:
    shape = _tensor_type(e, value).shape
    if shape is None:
        raise NotKnown
    whole: SSAValue | None = None
    sizes: list[Any] = []
    for i, d in enumerate(shape):
        if d is not None:
            sizes.append(Known(d))
            continue
        whole = whole or e.materialize(value)
        sizes.append(e.t.op("aten.size.int", (whole, e.t.constant(i)), (INT,))[0])
    return new_list(e, sizes, op.results[0].type)
