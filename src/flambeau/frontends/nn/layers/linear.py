"""Linear layers, tables of vectors, changes of shape; new parameters for these and for the files beside this one.

What a layer holds is in `__init__`, what it computes is in `forward`. Parameters have PyTorch's names, order and
defaults. `device` is taken for PyTorch's sake: programs have one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from flambeau.frontends.nn.core import context, ops
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.module import Module, Parameter
from flambeau.frontends.nn.core.values import Tensor
from flambeau.frontends.nn.functional.sparse import embedding_bag, refuse_max_norm
from flambeau.frontends.nn.layers.table import layer

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Flatten", "Identity", "Linear", "Unflatten"]


def float_array(array: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Cast the new contents of a parameter to `dtype`, or else to the default one."""
    name = dtype or context.default_dtype_name()
    if name in ("float32", "float64", "float16"):  # without the table of dtypes, which takes a while to import
        return np.asarray(array).astype(name)
    from flambeau.frontends.nn.core.values import as_dtype
    from flambeau.ir.arrays import numpy_dtype

    found = as_dtype(name)
    if found is None:
        raise TypeError(f"argument 'dtype' must be dtype, not {dtype!r}")
    return np.asarray(array).astype(numpy_dtype(found))


def uniform(shape: Sequence[int], bound: float, dtype: Any = None) -> Parameter:
    """Draw a parameter uniformly between -bound and bound."""
    from flambeau.frontends.nn.core.seed import generator

    return Parameter(float_array(generator().uniform(-bound, bound, tuple(shape)), dtype))


class Linear(Module):
    """`x @ weight.T + bias`."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0
        self.weight = uniform((out_features, in_features), bound, dtype)
        self.register_parameter("bias", uniform((out_features,), bound, dtype) if bias else None)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.linear(input, self.weight, self.bias)
        return found

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """`x1 @ weight @ x2 + bias` for each output."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / math.sqrt(in1_features)
        self.weight = uniform((out_features, in1_features, in2_features), bound, dtype)
        self.register_parameter("bias", uniform((out_features,), bound, dtype) if bias else None)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        found: Tensor = ops.bilinear(input1, input2, self.weight, self.bias)
        return found

    def extra_repr(self) -> str:
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Identity(Module):
    """Its input. It takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


Flatten = layer("Flatten", lambda x, /, start_dim=1, end_dim=-1: x.flatten(start_dim, end_dim))
Unflatten = layer("Unflatten", lambda x, /, dim, unflattened_size: x.unflatten(dim, unflattened_size))


# --- Tables ---


class _Table(Module):
    """A table of vectors. `max_norm` is refused when the layer is made."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
        norm_type: float, scale_grad_by_freq: bool, sparse: bool, weight: Any, dtype: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        refuse_max_norm(max_norm)
        self.max_norm, self.norm_type = None, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError("padding_idx must be within num_embeddings")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if weight is not None:
            self.weight = Parameter(weight)
            if self.weight.data.shape != (num_embeddings, embedding_dim):
                raise ValueError("shape of weight does not match num_embeddings and embedding_dim")
            return
        from flambeau.frontends.nn.core.seed import generator

        self.weight = Parameter(float_array(generator().standard_normal((num_embeddings, embedding_dim)), dtype))
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **kwargs: Any) -> Self:
        """Make a layer over an existing table."""
        weight = Parameter(embeddings)
        make: Any = cls
        found: Self = make(*weight.data.shape, _weight=weight, **kwargs)
        return found

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class Embedding(_Table):
    """The vectors at indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        row = -1 if self.padding_idx is None else self.padding_idx
        found: Tensor = ops.embedding(self.weight, input, row, self.scale_grad_by_freq, self.sparse)
        return found


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the vectors of each bag of indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Any = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, dtype
        )
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return embedding_bag(
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
