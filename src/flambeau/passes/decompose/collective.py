"""Collectives on lists of tensors, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition, listed


@decomposition("_c10d_functional.all_reduce_coalesced")
def all_reduce(t: TorchBuilder, xs: Sequence[SSAValue], reduce_op: str, group: str) -> SSAValue:
    return listed(t, [t.call("_c10d_functional.all_reduce", x, reduce_op, group) for x in xs])


@decomposition("_c10d_functional.all_gather_into_tensor_coalesced")
def all_gather(t: TorchBuilder, xs: Sequence[SSAValue], group_size: int, group: str) -> SSAValue:
    return listed(t, [t.call("_c10d_functional.all_gather_into_tensor", x, group_size, group) for x in xs])


@decomposition("_c10d_functional.reduce_scatter_tensor_coalesced")
def reduce_scatter(t: TorchBuilder, xs: Sequence[SSAValue], reduce_op: str, group_size: int, group: str) -> SSAValue:
    return listed(t, [t.call("_c10d_functional.reduce_scatter_tensor", x, reduce_op, group_size, group) for x in xs])
