"""The tensors of a program as MLIR attributes: small constants in the text, all others by name."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.dialects.builtin import DenseResourceAttr, StringAttr
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.ir.module import Weights

INLINE_BYTES = 256
"""A constant of at most this size stands in the program's text; larger ones are weights."""

PARAMETER_BYTES = 1 << 18
"""The same for scales, zero points and biases, which integers are computed from while compiling."""


class TensorTable:
    """Gives each tensor its attribute; tensors that share their memory share one entry of the weights."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._resources: dict[Any, Attribute] = {}

    def contents(self, tensor: torch.Tensor, name: str, inline: int) -> tuple[Attribute, DType]:
        """Return the contents as `dense<...>` if they have at most `inline` bytes, else as `dense_resource<name>`."""
        dtype = dtypes.from_torch(tensor.dtype)
        if dtype is None or tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unsupported(
                f"tensor {name!r} of dtype {tensor.dtype}, layout {tensor.layout} has no MLIR type",
                "Convert it to a dense tensor of a standard dtype before compiling.",
            )
        if _is_real(tensor) and tensor.nbytes <= inline:
            data = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
            data = data.as_strided(data.shape, (1,))  # of a single element, any stride counts as contiguous
            raw = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
            return dense(raw, dtype, tensor.shape), dtype
        key = identity(tensor)
        if key not in self._resources:
            resource = self.resource_name(name)
            self.weights.tensors[resource] = tensor
            type_: Any = BuiltinTensorType(dtype.torch_type, [int(d) for d in tensor.shape])
            self._resources[key] = DenseResourceAttr(StringAttr(resource), type_)
        return self._resources[key], dtype

    def resource_name(self, name: str) -> str:
        """Make a resource name from `name` that no weight has yet."""
        return self.weights.free_name(name)


def identity(tensor: torch.Tensor) -> Any:
    """Return a key that two tensors share if they view the same memory with the same shape, strides and dtype."""
    if not _is_real(tensor):
        return id(tensor)
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _is_real(tensor: torch.Tensor) -> bool:
    """Tell whether the tensor is dense and its bytes are in this process's memory (no fake, sparse or GPU tensor)."""
    from torch._subclasses.fake_tensor import FakeTensor

    is_dense = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return is_dense and not isinstance(tensor, FakeTensor)
