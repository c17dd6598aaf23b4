"""What a quantised program must know while it is compiled: scales, zero points, biases."""

from __future__ import annotations

from torch.fx import Node

from flambeau.frontends.fx.aliasing import op_name
from flambeau.frontends.tensors import INLINE_BYTES, PARAMETER_BYTES

_BIASES = {
    "aten.linear": (1, 2), "aten.addmm": (2, 0), "aten.convolution": (1, 2), "aten.conv1d": (1, 2),
    "aten.conv2d": (1, 2), "aten.conv3d": (1, 2),
}  # fmt: skip
"""Where these ops have their weight and their bias."""


def inline_bytes(node: Node, otherwise: int = INLINE_BYTES) -> int:
    """Return how many bytes a tensor may have to stand in the program's text instead of among the weights."""
    return PARAMETER_BYTES if any(_decides_integers(node, user) for user in node.users) else otherwise


def _decides_integers(node: Node, user: Node) -> bool:
    name = op_name(user.target) if hasattr(user.target, "_schema") else ""
    if name.startswith("quantized_decomposed."):
        return node is not user.args[0]
    if name not in _BIASES:
        return False
    weight, bias = (user.args[i] if i < len(user.args) else None for i in _BIASES[name])
    return bias is node and _is_from_integers(weight)


def _is_from_integers(weight: object) -> bool:
    """Tell whether a weight is dequantised from integers, perhaps transposed on the way."""
    while isinstance(weight, Node) and hasattr(weight.target, "_schema"):
        name = op_name(weight.target)
        if name.startswith("quantized_decomposed.dequantize"):
            return True
        weight = weight.args[0] if name in ("aten.t", "aten.permute", "aten.transpose.int") else None
    return False
