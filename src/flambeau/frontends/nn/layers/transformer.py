"""Attention of several heads, and the layers and stacks of a Transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn import init
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.module import Module, ModuleList, Parameter
from flambeau.frontends.nn.functional.attention import additive
from flambeau.frontends.nn.layers.activation import Dropout
from flambeau.frontends.nn.layers.linear import Linear, float_array
from flambeau.frontends.nn.layers.normalization import LayerNorm

__all__ = [
    "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


class MultiheadAttention(Module):
    """Attention of several heads, of queries to keys and values that may have sizes of their own."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim} must be a positive multiple of num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim == self.vdim

        def weight(*shape: int) -> Parameter:
            return init.xavier_uniform_(Parameter(float_array(np.zeros(shape), dtype)))

        apart = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = weight(3 * embed_dim, embed_dim)
            for name in apart:
                self.register_parameter(name, None)
        else:
            for name, size in apart.items():
                self.register_parameter(name, weight(embed_dim, size))
            self.register_parameter("in_proj_weight", None)
        zeros = float_array(np.zeros(3 * embed_dim), dtype)
        self.register_parameter("in_proj_bias", Parameter(zeros) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        if bias:
            init.zeros_(self.out_proj.bias)
        for name in ("bias_k", "bias_v"):
            added = Parameter(float_array(np.zeros((1, 1, embed_dim)), dtype)) if add_bias_kv else None
            self.register_parameter(name, added if added is None else init.xavier_normal_(added))

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the result and, if they are needed, the weights: of all heads, or their mean."""
        key_padding_mask, attn_mask = _masks(query, key_padding_mask, attn_mask)
        turned = self.batch_first and query.ndim == 3
        if turned:
            # What is one tensor stays one: it is projected once.
            made: dict[int, Any] = {}
            query, key, value = (
                made[id(x)] if id(x) in made else made.setdefault(id(x), x.transpose(1, 0)) for x in (query, key, value)
            )
        found, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, None, None, average_attn_weights, is_causal,
        )  # fmt: skip
        return (found.transpose(1, 0) if turned else found), weights


def _activation(activation: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else ops.gelu


class _Block(Module):
    """Parts of the layers of encoder and decoder: attention, a network of two linear layers, norms around them."""

    ATTENTIONS: tuple[str, ...] = ()
    """The names of the attentions."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name in self.ATTENTIONS:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
            self.register_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        for i in range(len(self.ATTENTIONS) + 1):
            self.register_module(f"norm{i + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for i in range(len(self.ATTENTIONS) + 1):
            self.register_module(f"dropout{i + 1}", Dropout(dropout))
        self.activation = _activation(activation)

    def _residual(self, x: Any, number: int, part: Callable[[Any], Any]) -> Any:
        """Add a part's result to its input, x + part(norm(x)), or norm(x + part(x)) without `norm_first`."""
        norm, dropout = self._modules[f"norm{number}"], self._modules[f"dropout{number}"]
        assert norm is not None
        assert dropout is not None
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))

    def _network(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _attend(self, name: str, x: Any, y: Any, mask: Any, padding: Any, is_causal: bool) -> Any:
        """Attend from x to y, or to x itself where y is None."""
        y = x if y is None else y
        attention = self._modules[name]
        assert attention is not None
        return attention(x, y, y, padding, False, mask, is_causal=is_causal)[0]


class TransformerEncoderLayer(_Block):
    """Attention of a sequence to itself, and a network at each place."""

    ATTENTIONS = ("self_attn",)

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        padding, mask = _masks(src, src_key_padding_mask, src_mask)
        x = self._residual(src, 1, lambda x: self._attend("self_attn", x, None, mask, padding, is_causal))
        return self._residual(x, 2, self._network)


class TransformerDecoderLayer(_Block):
    """Attention of a sequence to itself and to another one, and a network at each place."""

    ATTENTIONS = ("self_attn", "multihead_attn")

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        x = self._residual(
            tgt, 1, lambda x: self._attend("self_attn", x, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        )
        x = self._residual(
            x, 2,
            lambda x: self._attend(
                "multihead_attn", x, memory, memory_mask, memory_key_padding_mask, memory_is_causal
            ),
        )  # fmt: skip
        return self._residual(x, 3, self._network)


def _masks(x: Any, padding: Any, mask: Any) -> tuple[Any, Any]:
    """Convert both masks to ones that are added to scores."""
    return additive(padding, x.dtype), additive(mask, x.dtype)


class _Stack(Module):
    """Copies of a layer, one on top of the other, and a norm."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def _run(self, x: Any, call: Callable[[Module, Any], Any]) -> Any:
        for layer in self.layers:
            x = call(layer, x)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """A stack of encoder layers."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Any:
        """Run the layers. `is_causal` is a hint: a mask's contents are known only at run time, so None is False."""
        padding, mask = _masks(src, src_key_padding_mask, mask)
        return self._run(src, lambda layer, x: layer(x, mask, padding, is_causal=bool(is_causal)))


class TransformerDecoder(_Stack):
    """A stack of decoder layers."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        return self._run(
            tgt,
            lambda layer, x: layer(
                x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, bool(tgt_is_causal),
                memory_is_causal,
            ),
        )  # fmt: skip


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[[Any], Any] = F.relu,
        custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> Module:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shape, dtype=dtype), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shape, dtype=dtype), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None,
        src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """Make a mask with which no position attends to a later one."""
        return ops.triu(ops.full((sz, sz), float("-inf"), dtype=dtype), diagonal=1)
