"""Attention in `nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau.frontends.nn.core import ops


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    _no_dropout(dropout_p)
    return ops.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _no_dropout(p: float) -> None:
    if p > 0:
        from flambeau.frontends.nn.functional import refuse_random

        refuse_random("dropout in attention")


def additive(mask: Any, dtype: Any) -> Any:
    """Convert a mask of bools to one that is added to scores: -inf where it is true. Return others as they are."""
    if mask is None or not mask.dtype.is_bool:
        return mask
    return ops.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def multi_head_attention_forward(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Attend with several heads, sequence first; return the result and the weights, None if they are not needed."""
    _no_dropout(dropout_p if training else 0.0)
    if is_causal and attn_mask is None:
        raise RuntimeError("is_causal is a hint about attn_mask, which is not given")
    batched = query.ndim == 3
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check or width % num_heads:
        raise ValueError(f"attention over {embed_dim_to_check} features and {num_heads} heads does not fit {width}")
    heads, size = batch * num_heads, width // num_heads
    key_padding_mask = additive(key_padding_mask, query.dtype)
    hinted = is_causal and key_padding_mask is None and not need_weights
    masks = [None if hinted else additive(attn_mask, query.dtype), key_padding_mask]

    if use_separate_proj_weight:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (ops.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    else:
        q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias)
    if masks[0] is not None and masks[0].ndim == 2:
        masks[0] = masks[0].unsqueeze(0)
    if bias_k is not None:
        k, v = ops.cat([k, bias_k.repeat(1, batch, 1)]), ops.cat([v, bias_v.repeat(1, batch, 1)])
        masks = _longer(masks)
    q = q.view(length, heads, size).transpose(0, 1)
    k = k.view(k.shape[0], heads, size).transpose(0, 1) if static_k is None else static_k
    v = v.view(v.shape[0], heads, size).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        k, v = (ops.cat([x, ops.zeros([heads, 1, size], dtype=x.dtype)], dim=1) for x in (k, v))
        masks = _longer(masks)
    mask = _joined(masks, batch, num_heads, k.shape[1])
    attend = _attend_with_weights if need_weights else _attend
    found, shares = attend(q, k, v, mask, batch, num_heads, hinted)
    found = ops.linear(found, out_proj_weight, out_proj_bias)
    found = found.view(length, batch, found.shape[1])
    if need_weights:
        shares = shares.view(batch, num_heads, length, k.shape[1])
        shares = shares.mean(dim=1) if average_attn_weights else shares
    if batched:
        return found, shares
    return found.squeeze(1), shares.squeeze(0) if need_weights else None


def _longer(masks: Sequence[Any]) -> list[Any]:
    """Extend the masks by one key, which all may attend to."""
    return [None if mask is None else ops.pad(mask, [0, 1]) for mask in masks]


def _joined(masks: Sequence[Any], batch: Any, num_heads: int, source: Any) -> Any:
    """Add the masks of scores and keys to one, for each head of each example; None where there is neither."""
    scores, keys = masks
    if keys is None:
        return scores
    padding = keys.view(batch, 1, 1, source).expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, source)
    return padding if scores is None else scores + padding


def _attend(q: Any, k: Any, v: Any, mask: Any, batch: Any, num_heads: int, is_causal: bool) -> tuple[Any, Any]:
    """Attend by one op; return a row of all heads for each position of each sequence, and None for the weights."""
    length, source, size = q.shape[1], k.shape[1], q.shape[2]
    if mask is not None:
        whole = mask.meta.shape[0] == 1
        mask = mask.unsqueeze(0) if whole else mask.view(batch, num_heads, -1, source)
    q, k, v = (x.view(batch, num_heads, n, size) for x, n in ((q, length), (k, source), (v, source)))
    found = ops.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal)
    return found.permute(2, 0, 1, 3).reshape(batch * length, num_heads * size), None


def _attend_with_weights(
    q: Any, k: Any, v: Any, mask: Any, batch: Any, num_heads: int, is_causal: bool
) -> tuple[Any, Any]:
    """Attend by softmax(q k^T / sqrt(d) + mask) v, written out; return also the weights of all heads."""
    length, size = q.shape[1], q.shape[2]
    scaled, turned = q * math.sqrt(1.0 / size), k.transpose(-2, -1)
    scores = ops.bmm(scaled, turned) if mask is None else ops.baddbmm(mask, scaled, turned)
    shares = scores.softmax(-1)
    found = ops.bmm(shares, v).transpose(0, 1).reshape(length * batch, num_heads * size)
    return found, shares


def _projected(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    """Project queries, keys and values by one packed weight; equal tensors are projected in one product."""
    width = query.shape[-1]

    def parts(x: Any, count: int, weight: Any, bias: Any) -> Any:
        found = ops.linear(x, weight, bias).unflatten(-1, (count, width)).unsqueeze(0)
        return found.transpose(0, -2).squeeze(-2).contiguous()

    if query is key and key is value:
        found = parts(query, 3, weight, bias)
        return found[0], found[1], found[2]
    if key is value:
        first, rest = weight.split([width, width * 2])
        bias_first, bias_rest = (None, None) if bias is None else bias.split([width, width * 2])
        q, found = ops.linear(query, first, bias_first), parts(key, 2, rest, bias_rest)
        return q, found[0], found[1]
    weights = weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(ops.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
