"""Attention of 16-bit floats as one kernel of cuDNN's, on GPUs.

`aten.scaled_dot_product_attention` reaches this engine as a composite, and becomes the call that XLA knows cuDNN's
attention by:

    %out, %scratch = stablehlo.custom_call @__cudnn$fmhaScaleBiasSoftmax(%query, %key, %value, %bias)
        {backend_config = "{... fmha_scale: 0.125, mask_type: NO_MASK ...}", api_version = 2, ...}

with the heads in the third dim, as a projection leaves them. A mask is a bias there, finite since cuDNN subtracts:
a row of which nothing is to be seen, which PyTorch has as zeros, is set to them afterwards. What cuDNN does not take
stays a composite, which XLA lowers by its decomposition.
"""

from __future__ import annotations

import json
import math
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    Signedness,
    StringAttr,
    TensorType,
    bf16,
    f16,
    i1,
    i32,
)
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.xla.values import before, broadcast, constant, element_of, filled, shape_of
from flambeau.ir.builder import OpBuilder, erase
from flambeau.lowering.builder import i64_array, tensor_type

ATTENTION = "aten.scaled_dot_product_attention"
_NAMES = {bf16: "BF16", f16: "F16"}
_LEAST = {bf16: -(2.0**41), f16: -(2.0**15)}
"""What stands for minus infinity: less than any score, and finite when another is subtracted from it."""
_WIDEST = 128
"""The most elements of a head that cuDNN takes on every GPU with 16-bit matrix units."""
_FEWEST_WEIGHTS = 1 << 20
"""Attention of fewer weights takes longer to start in cuDNN than it takes: other kernels go into one CUDA graph."""
_HEADS_THIRD = (0, 2, 1, 3)


def fuse_attention(module: ModuleOp) -> None:
    """Replace the composites of attention that cuDNN takes by calls of it, in place."""
    for op in list(module.walk()):
        if op.name == "stablehlo.composite" and op.properties["name"] == StringAttr(ATTENTION) and _is_taken(op):
            _fuse(op)


def _is_taken(op: Operation) -> bool:
    """Tell whether cuDNN takes an attention: four dims, 16 bits, no dropout, heads that are multiples of 8."""
    query, key, value = (shape_of(operand) for operand in op.operands[:3])
    attributes = _attributes(op)
    return (
        all(len(shape) == 4 and 0 not in shape for shape in (query, key, value))
        and element_of(op.operands[0]) in _NAMES
        and query[3] == value[3]
        and query[3] % 8 == 0
        and query[3] <= _WIDEST
        and query[0] * query[1] * query[2] * key[2] >= _FEWEST_WEIGHTS
        and query[2] > 1
        and query[0] == key[0] == value[0]
        and query[1] % key[1] == 0
        and key[1] == value[1]
        and _number(attributes.get("dropout_p"), 0.0) == 0
        and not (_number(attributes.get("is_causal"), 0) and (len(op.operands) > 3 or query[2] != key[2]))
        and all(len(shape_of(mask)) <= 4 for mask in op.operands[3:])
    )


def _fuse(op: Operation) -> None:
    b = before(op)
    query, key, value = op.operands[:3]
    shape, element = shape_of(query), element_of(query)
    attributes = _attributes(op)
    scale = _number(attributes.get("scale"), 1 / math.sqrt(shape[3]))
    is_causal = bool(_number(attributes.get("is_causal"), 0))
    operands = [_transposed(b, x) for x in (query, key, value)]
    seen = None
    if len(op.operands) > 3:
        bias, seen = _bias(b, op.operands[3], (*shape[:3], shape_of(key)[2]), element)
        operands.append(bias)
    results = [tensor_type(shape, element), tensor_type((0,), IntegerType(8, Signedness.UNSIGNED))]
    name = "__cudnn$fmhaScaleBiasSoftmax" if seen is not None else "__cudnn$fmhaSoftmax"
    properties = {
        "call_target_name": StringAttr(name),
        "api_version": IntegerAttr(2, i32),
        "backend_config": StringAttr(_config(shape, shape_of(key)[2], element, scale, is_causal)),
        "operand_layouts": ArrayAttr([_layout(range(len(shape_of(x)) - 1, -1, -1)) for x in operands]),
        "result_layouts": ArrayAttr([_layout((3, 1, 2, 0)), _layout((0,))]),
    }
    out: SSAValue = b.emit(stablehlo.op("custom_call"), operands, results, properties).results[0]
    if seen is not None:
        operands = [broadcast(b, seen, range(3), shape), out, filled(b, 0.0, shape, element)]
        out = b.value(stablehlo.op("select"), operands, out.type)
    op.results[0].replace_all_uses_with(out)
    erase(op)


def _transposed(b: OpBuilder, x: SSAValue) -> SSAValue:
    """Bring the heads from the second dim to the third; XLA cancels that with what brought them there."""
    shape = tuple(shape_of(x)[d] for d in _HEADS_THIRD)
    properties = {"permutation": i64_array(_HEADS_THIRD)}
    return b.value(stablehlo.op("transpose"), (x,), tensor_type(shape, element_of(x)), properties)


def _bias(b: OpBuilder, mask: SSAValue, scores: tuple[int, ...], element: Any) -> tuple[SSAValue, SSAValue]:
    """Make a bias of a mask, and tell for each row of scores (batch, head, query) whether any of it is to be seen."""
    own = (1,) * (4 - len(shape_of(mask))) + shape_of(mask)
    shape = (*own[:2], *scores[2:])
    mask = b.value(stablehlo.op("reshape"), (mask,), tensor_type(own, element_of(mask)))
    mask = broadcast(b, mask, range(4), shape)
    least = filled(b, _LEAST[element], shape, element)
    if element_of(mask) == i1:
        visible = mask
        zero = filled(b, 0.0, shape, element)
        bias = b.value(stablehlo.op("select"), (mask, zero, least), tensor_type(shape, element))
    else:
        nothing = filled(b, -math.inf, shape, element_of(mask))
        differs = stablehlo.comparison("NE", "FLOAT")
        visible = b.value(stablehlo.op("compare"), (mask, nothing), tensor_type(shape, i1), differs)
        half = b.value(stablehlo.op("convert"), (mask,), tensor_type(shape, element))
        bias = b.value(stablehlo.op("maximum"), (half, least), tensor_type(shape, element))
    seen = _any_of_row(b, visible, shape)
    return bias, broadcast(b, seen, range(3), scores[:3])


def _any_of_row(b: OpBuilder, visible: SSAValue, shape: tuple[int, ...]) -> SSAValue:
    """Tell of each row along the last dim whether any of it is true."""
    truth = tensor_type((), i1)
    block = Block(arg_types=[truth, truth])
    inner = OpBuilder(block)
    inner.emit(stablehlo.op("return"), (inner.value(stablehlo.op("or"), tuple(block.args), truth),))
    start = constant(b, 0, truth)
    properties = {"dimensions": i64_array((3,))}
    reduced = (tensor_type(shape[:3], i1),)
    return b.emit(stablehlo.op("reduce"), (visible, start), reduced, properties, regions=[Region(block)]).results[0]


def _config(shape: tuple[int, ...], keys: int, element: Any, scale: float, is_causal: bool) -> str:
    """Describe an attention to XLA: JSON of its message `CudnnfMHABackendConfig`.

    The first product is of queries and keys, both with their heads in dim 2; the second of its result, with heads in
    dim 1, and values.
    """
    batch, heads, queries, _ = shape
    described = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": scale,
        "intermediate_tensor_shape": {
            "element_type": _NAMES[element],
            "dimensions": [str(n) for n in (batch, heads, queries, keys)],
            "tuple_shapes": [],
            "layout": {"minor_to_major": ["3", "2", "1", "0"]},
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if is_causal else "NO_MASK",
        "bmm1_dot_dimension_numbers": _dims(3, 3, (0, 2), (0, 2)),
        "bmm2_dot_dimension_numbers": _dims(3, 1, (0, 1), (0, 2)),
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": described})


def _dims(left: int, right: int, left_batch: tuple[int, int], right_batch: tuple[int, int]) -> dict[str, list[str]]:
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": [str(d) for d in left_batch],
        "rhs_batch_dimensions": [str(d) for d in right_batch],
    }


def _layout(order: Any) -> DenseIntOrFPElementsAttr:
    numbers = list(order)
    return DenseIntOrFPElementsAttr.from_list(TensorType(IndexType(), [len(numbers)]), numbers)


def _attributes(op: Operation) -> dict[str, Any]:
    attributes: Any = op.properties.get("composite_attributes")
    return dict(attributes.data) if attributes is not None else {}


def _number(attribute: Any, otherwise: float) -> float:
    if isinstance(attribute, FloatAttr):
        return float(attribute.value.data)
    return float(attribute.value.data) if isinstance(attribute, IntegerAttr) else otherwise
