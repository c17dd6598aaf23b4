"""The tensors that a TorchScript program writes between calls."""

from __future__ import annotations

import torch
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, DenseResourceAttr

from flambeau.dialects.torch.constants import LiteralOp
from flambeau.dialects.torch.types import TensorType
from flambeau.ir.module import Weights


def initial_tensor(name: str, literal: LiteralOp, weights: Weights) -> str:
    """Return the name in the weights of a slot's initial value; an inline literal is added to them."""
    value, type_ = literal.value, literal.results[0].type
    if isinstance(value, DenseResourceAttr):
        return str(value.resource_handle.data)
    assert isinstance(type_, TensorType)
    assert type_.dtype is not None
    resource = name
    while resource in weights:
        resource += "_"
    assert isinstance(value, DenseIntOrFPElementsAttr)
    shape = [d or 0 for d in type_.shape or ()]
    weights.tensors[resource] = torch.tensor(list(value.get_values()), dtype=type_.dtype.torch).reshape(shape)
    return resource
