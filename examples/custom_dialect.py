"""A dialect of your own, and a custom op that lowers to it.

`mylib::fused_gate` computes x * sigmoid(y) on an accelerator that has an instruction for it. Here it becomes the op
`accel.gate`, inside a program of linalg: what is around it is compiled as ever. Run it with
`python examples/custom_dialect.py`, or use its rule from the command line:

    flambeau compile --plugin examples/custom_dialect.py examples/custom_dialect.py:Block --input 4x8xf32
"""

import torch
from torch import Tensor, nn
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def

import flambeau
from flambeau.lowering import builder


@torch.library.custom_op("mylib::fused_gate", mutates_args=())
def fused_gate(x: Tensor, y: Tensor) -> Tensor:
    return x * torch.sigmoid(y)


@fused_gate.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


@irdl_op_definition
class GateOp(IRDLOperation):
    name = "accel.gate"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format = "$x `,` $y attr-dict `:` type($x) `,` type($y) `->` type($result)"


ACCEL = flambeau.register_dialect(Dialect("accel", [GateOp]))


@flambeau.lower("mylib::fused_gate", target="linalg-on-tensors")
def lower_gate(b: builder.LoweringBuilder, x: builder.Tensor, y: builder.Tensor) -> builder.Tensor:
    return builder.Tensor(b.value(GateOp, (x.value, y.value), x.value.type), x.dtype)


class Block(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return fused_gate(x, x.exp()) + 1


if __name__ == "__main__":
    print(flambeau.compile(Block(), (torch.randn(4, 8),)))
