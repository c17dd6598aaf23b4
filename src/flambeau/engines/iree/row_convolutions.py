"""Convolutions in one dimension, as convolutions of images of one row.

WORKAROUND(iree==3.13): `--iree-global-opt-use-im2col-for-convs` makes products of matrices of convolutions in two
dimensions, and leaves those in one as loops on the input in PyTorch's layout, which are not vectorised: 10 to 20 times
PyTorch's time. It can go when bench/engine_bugs.py says so of "a convolution in one dimension".
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.lowering.builder import Tensor
from flambeau.lowering.verbs import window_lists, window_properties

_WITH_ROW = [[0], [1], [2, 3]]
"""The dims of a tensor of three, each with those that it becomes."""


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name == "linalg.conv_1d_ncw_fcw")


def _as_image(op: Operation) -> SSAValue:
    b = builder_before(op)
    x, weight, init = (
        b.expand(tensor, _WITH_ROW, [*sizes[:2], 1, sizes[2]])
        for tensor in (Tensor(v, dtype_of(v)) for v in op.operands)
        for sizes in (b.sizes(tensor),)
    )
    dtype = init.dtype
    (stride,), (dilation,) = window_lists(op.properties)
    out = b.named(
        "conv_2d_nchw_fchw",
        [x, weight],
        init,
        lambda x, y, sum_: sum_ + x.to(dtype) * y.to(dtype),
        window_properties([1, stride], [1, dilation]),
    )
    return b.collapse(out, _WITH_ROW).value


REWRITE = Rewrite(_found, _as_image)
