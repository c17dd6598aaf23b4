"""Shapes and dtypes of activations and their gradients."""

from __future__ import annotations

from flambeau.infer.rules import Meta, infer_rule, normal_dim, of_tensors, replaced, same
from flambeau.infer.view import divided

infer_rule(
    "aten.relu", "aten.relu6", "aten.leaky_relu", "aten.elu", "aten.celu", "aten.selu", "aten.gelu", "aten.silu",
    "aten.mish", "aten.softplus", "aten.log_sigmoid", "aten.hardtanh", "aten.hardsigmoid", "aten.hardswish",
    "aten.hardshrink", "aten.softshrink", "aten.threshold", "aten.rrelu", "aten.rrelu_with_noise", "aten.prelu",
)(same)  # fmt: skip

infer_rule(
    "aten.sigmoid_backward", "aten.tanh_backward", "aten.gelu_backward", "aten.threshold_backward",
    "aten.leaky_relu_backward", "aten.elu_backward", "aten.hardtanh_backward", "aten.softplus_backward",
    "aten._prelu_kernel", "aten.hardshrink_backward", "aten.softshrink_backward",
)(of_tensors)  # fmt: skip


infer_rule("aten.log_sigmoid_backward")(lambda gradient, x, buffer: of_tensors(gradient, x))


@infer_rule("aten.log_sigmoid_forward")
def log_sigmoid_forward(x: Meta) -> tuple[Meta, Meta]:
    return x, x


@infer_rule("aten.glu")
def glu(x: Meta, dim: int) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, divided(x.shape[at], 2)), x.dtype)
