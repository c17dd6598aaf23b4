"""Convolutions in three dimensions, as products of matrices.

WORKAROUND(iree==3.13): `--iree-global-opt-use-im2col-for-convs` makes products of matrices of convolutions in two
dimensions, and leaves those in three as loops that are not vectorised, 4 times PyTorch's time and more. The windows
are copied into the columns of a matrix, one copy for each element of the kernel. It can go when
bench/engine_bugs.py says so of "a convolution in three dimensions".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.verbs import window_lists
from flambeau.lowering.whole.values import shape_of

_MOST_COPIES = 64


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "linalg.conv_3d_ncdhw_fcdhw":
            kernel = shape_of(op.operands[1])[2:]
            if None not in kernel and 1 < math.prod(kernel) <= _MOST_COPIES:  # type: ignore[arg-type]
                yield op


def _as_product(op: Operation) -> SSAValue:
    b = builder_before(op)
    x, weight, init = (Tensor(v, dtype_of(v)) for v in op.operands)
    strides, dilations = window_lists(op.properties)
    batch, features, *out = b.sizes(init)
    channels, kernel = b.size(x, 1), [k for k in b.sizes(weight)[2:] if isinstance(k, int)]
    count, width = math.prod(kernel), b.product(out)
    columns = b.empty([batch, channels, count, width], x.dtype)
    for number, place in enumerate(itertools.product(*map(range, kernel))):
        starts: list[Size] = [0, 0, *(p * d for p, d in zip(place, dilations, strict=True))]
        part = b.slice(x, starts, [batch, channels, *out], [1, 1, *strides])
        part = b.reshape(part, [batch, channels, 1, width])
        columns = b.insert_slice(part, columns, [0, 0, number, 0], [1] * 4)
    depth = b.mul(channels, count)
    dtype = init.dtype
    result = b.named(
        "batch_matmul",
        [
            b.broadcast_to(b.reshape(weight, [features, depth]), [batch, features, depth]),
            b.reshape(columns, [batch, depth, width]),
        ],
        b.reshape(init, [batch, features, width]),
        lambda x, y, sum_: sum_ + x.to(dtype) * y.to(dtype),
    )
    return b.reshape(result, [batch, features, *out]).value


REWRITE = Rewrite(_found, _as_product)
