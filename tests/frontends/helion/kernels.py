"""Helion kernels of the usual kinds: what the tests compile, bind and run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import helion
import helion.language as hl
import torch


def kernel(*block_sizes: int, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a Helion kernel with these block sizes, in the order of its tiles."""
    options.setdefault("ignore_warnings", [helion.exc.TensorOperationInWrapper])
    return helion.kernel(config=helion.Config(block_sizes=list(block_sizes)), **{"static_shapes": True, **options})


@kernel(16, 8)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@kernel(16, 16, 32)
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@kernel(2, 16, 16, 16)
def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    batch, m, k = a.size()
    n = b.size(2)
    out = torch.empty([batch, m, n], device=a.device, dtype=a.dtype)
    for tile_b, tile_m, tile_n in hl.tile([batch, m, n]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.baddbmm(acc, a[tile_b, tile_m, tile_k], b[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc.to(out.dtype)
    return out


@kernel(16, 16, 32, 8)
def matmul_split_k(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.zeros([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n, outer_k in hl.tile([m, n, k]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for inner_k in hl.tile(outer_k.begin, outer_k.end):
            acc = torch.addmm(acc, x[tile_m, inner_k], y[inner_k, tile_n])
        hl.atomic_add(out, [tile_m, tile_n], acc)
    return out


@kernel(4)
def softmax(x: torch.Tensor) -> torch.Tensor:
    n, _ = x.size()
    out = torch.empty_like(x)
    for tile_n in hl.tile(n):
        values = x[tile_n, :]
        amax = torch.amax(values, dim=1, keepdim=True)
        exp = torch.exp(values - amax)
        out[tile_n, :] = exp / torch.sum(exp, dim=1, keepdim=True)
    return out


@kernel(4, 16)
def softmax_two_pass(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    block_size_m = hl.register_block_size(m)
    block_size_n = hl.register_block_size(n)
    for tile_m in hl.tile(m, block_size=block_size_m):
        mi = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        di = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=block_size_n):
            values = x[tile_m, tile_n]
            local_amax = torch.amax(values, dim=1)
            mi_next = torch.maximum(mi, local_amax)
            di = di * torch.exp(mi - mi_next) + torch.exp(values - mi_next[:, None]).sum(dim=1)
            mi = mi_next
        for tile_n in hl.tile(n, block_size=block_size_n):
            values = x[tile_m, tile_n]
            out[tile_m, tile_n] = torch.exp(values - mi[:, None]) / di[:, None]
    return out


@kernel(4)
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = x.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    mean = torch.empty([m], dtype=torch.float32, device=x.device)
    rstd = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = x[tile_m, :].to(torch.float32)
        mean_val = torch.sum(acc, dim=-1) / n
        centered = acc - mean_val[:, None]
        var_val = torch.sum(centered * centered, dim=-1) / n
        rstd_val = torch.rsqrt(var_val + eps)
        normalized = centered * rstd_val[:, None]
        out[tile_m, :] = (normalized * weight[:].to(torch.float32) + bias[:].to(torch.float32)).to(x.dtype)
        mean[tile_m] = mean_val
        rstd[tile_m] = rstd_val
    return out, mean, rstd


@kernel(4)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> tuple[torch.Tensor, torch.Tensor]:
    m, _ = x.size()
    out = torch.empty_like(x)
    inv_rms = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        x_tile = x[tile_m, :].to(torch.float32)
        mean_x_squared = torch.mean(x_tile * x_tile, dim=-1)
        inv_rms_tile = torch.rsqrt(mean_x_squared + eps)
        out[tile_m, :] = ((x_tile * inv_rms_tile[:, None]) * weight[:].to(torch.float32)).to(out.dtype)
        inv_rms[tile_m] = inv_rms_tile.to(out.dtype)
    return out, inv_rms.reshape(-1, 1)


@kernel(4)
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    n, v = logits.shape
    losses = torch.zeros([n], dtype=logits.dtype, device=logits.device)
    logits_flat = logits.view(-1)
    for tile_n in hl.tile(n):
        labels_tile = labels[tile_n]
        flat_indices = tile_n.index * v + labels_tile
        logits_at_target = hl.load(logits_flat, [flat_indices])
        logits_rows = logits[tile_n, :]
        max_logits = torch.amax(logits_rows, dim=-1, keepdim=True)
        shifted = logits_rows - max_logits
        log_sum_exp = max_logits.squeeze(-1) + torch.log(torch.sum(torch.exp(shifted), dim=-1))
        losses[tile_n] = log_sum_exp - logits_at_target
    return losses.mean()


@kernel(4)
def long_sum(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


@kernel(4, 16)
def long_sum_looped(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    block_size_n = hl.register_block_size(n)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, block_size_n], dtype=x.dtype)
        for tile_n in hl.tile(n, block_size=block_size_n):
            acc += x[tile_m, tile_n]
        out[tile_m] = acc.sum(-1)
    return out


@kernel(1, 16, 16)
def attention(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    m_dim = q_in.size(-2)
    n_dim = k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    q_view = q_in.reshape([-1, m_dim, head_dim])
    v_view = v_in.reshape([-1, n_dim, head_dim])
    k_view = k_in.reshape([-1, n_dim, head_dim]).transpose(1, 2)
    out = torch.empty_like(q_view)
    qk_scale = 1.44269504 / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q_view.size(0), m_dim]):
        m_i = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        l_i = torch.full_like(m_i, 1.0)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        q = q_view[tile_b, tile_m, :]
        for tile_n in hl.tile(v_view.size(1)):
            k = k_view[tile_b, :, tile_n]
            qk = torch.bmm(q, k)
            m_ij = torch.maximum(m_i, torch.amax(qk, -1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, :, None]
            p = torch.exp2(qk)
            l_ij = torch.sum(p, -1)
            alpha = torch.exp2(m_i - m_ij)
            l_i = l_i * alpha + l_ij
            acc = acc * alpha[:, :, None]
            v = v_view[tile_b, tile_n, :]
            acc = torch.baddbmm(acc, p.to(v.dtype), v)
            m_i = m_ij
        m_i += torch.log2(l_i)
        acc = acc / l_i[:, :, None]
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out.view(q_in.size())


@kernel(8, 8, 8)
def mamba_chunk_scan(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    decay: torch.Tensor,
    c: torch.Tensor,
    states: torch.Tensor,
    d: torch.Tensor,
) -> torch.Tensor:
    """Compute the output of a chunk from the state before it, its own inputs up to here, and a skip."""
    batch, chunks, groups, length, _ = cb.shape
    _, _, heads, width = x.shape
    state = c.shape[-1]
    block_m = hl.register_block_size(length)
    block_n = hl.register_block_size(width)
    block_k = hl.register_block_size(length)
    state = hl.specialize(state)
    out = torch.empty_like(x)
    for tile_h, tile_m, tile_n, tile_b, tile_c in hl.tile(
        [heads, length, width, batch, chunks], block_size=[1, block_m, block_n, 1, 1]
    ):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        decay_m = decay[tile_b.begin, tile_h.begin, tile_c.begin, tile_m]
        rows = tile_c.begin * length
        group = tile_h.begin // (heads // groups)
        c_local = c[tile_b.begin, tile_m.index + rows, group, :]
        states_local = states[tile_b.begin, tile_c.begin, tile_h.begin, tile_n, :]
        acc = hl.dot(c_local, states_local.T, acc=acc)
        acc = acc * torch.exp(decay_m)[:, None]
        for tile_k in hl.tile((tile_m.id + 1) * block_m, block_size=block_k):
            cb_local = cb[tile_b.begin, tile_c.begin, group, tile_m, tile_k]
            decay_k = decay[tile_b.begin, tile_h.begin, tile_c.begin, tile_k]
            scaled = cb_local * torch.exp(decay_m[:, None] - decay_k[None, :])
            scaled = scaled * dt[tile_b.begin, tile_h.begin, tile_c.begin, tile_k][None, :]
            causal = (tile_m.index + 0)[:, None] >= (tile_k.index + 0)[None, :]
            scaled = torch.where(causal, scaled, 0.0)
            x_local = x[tile_b.begin, rows + tile_k.index, tile_h.begin, tile_n]
            acc = hl.dot(scaled, x_local, acc=acc)
        skip = d[tile_h.begin]
        x_residual = x[tile_b.begin, tile_m.index + rows, tile_h.begin, tile_n]
        acc = acc + x_residual * skip
        out[tile_b.begin, tile_m.index + rows, tile_h.begin, tile_n] = acc
    return out


# --- What single features need ---


@kernel(8)
def grid(x: torch.Tensor) -> torch.Tensor:
    b, n = x.size()
    out = torch.empty_like(x)
    for i in hl.grid(b):
        for tile in hl.tile(n):
            out[i, tile] = x[i, tile] * 2 + tile.begin + i
    return out


@kernel(8)
def looking_ahead(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(0, x.size(0) - 3):
        out[tile] = x[tile + 3] + x[tile.index + 2]
    return out


@kernel(8)
def from_three(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(3, x.size(0)):
        out[tile] = x[tile] + tile.id + tile.begin
    return out


@kernel(8)
def branch(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        if tile.begin > 8:
            v = v * 2
        else:
            v = v + 1
        hl.store(out, [tile], v, extra_mask=tile.index != 5)
    return out


@kernel(8)
def branch_on_one_side(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        if tile.begin > 8:
            v = v * 2
            out[tile] = v
    return out


@kernel(8)
def doubling(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        n = hl.zeros([], dtype=torch.int32)
        while n < 3:
            v = v * 2
            n = n + 1
        out[tile] = v
    return out


@kernel(8, 8, 16)
def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc
    return out


@kernel(8)
def double_in_place(x: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] * 2


@kernel(8)
def old_and_new(x: torch.Tensor) -> torch.Tensor:
    old = x.clone()
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] * 2
    return old + x


@kernel(8, 16)
def with_one_column(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(y)
    for tile_m, tile_n in hl.tile(y.size()):
        out[tile_m, tile_n] = x[tile_m, tile_n] + y[tile_m, tile_n]
    return out


@kernel(4)
def sorted_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values, _ = torch.sort(x[tile, :], dim=1)
        out[tile, :] = values
    return out


@kernel(4, 8)
def flat_gather(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    flat = x.view(-1)
    for tile_m, tile_n in hl.tile([m, n]):
        places = (tile_m.index * n)[:, None] + (n - 1 - tile_n.index)[None, :]
        out[tile_m, tile_n] = hl.load(flat, [places])
    return out


@kernel(4, 8)
def joint_gather(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([m, n]):
        rows = (m - 1 - tile_m.index)[:, None]
        columns = (n - 1 - tile_n.index)[None, :]
        out[tile_m, tile_n] = hl.load(x, [rows, columns], extra_mask=rows != columns)
    return out


@kernel(8)
def greatest(x: torch.Tensor) -> torch.Tensor:
    out = torch.full([1], float("-inf"), dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_max(out, [0], torch.amax(x[tile]))
    return out


@kernel(4)
def halves(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    n = hl.specialize(x.size(1))
    for tile in hl.tile(x.size(0)):
        out[tile, n // 2 :] = x[tile, : n // 2] * 2
    return out


@kernel(4)
def variance(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.var(x[tile, :], dim=-1)
    return out


@kernel(8)
def through_a_view(x: torch.Tensor) -> torch.Tensor:
    flat = x.view(-1)
    for tile in hl.tile(flat.size(0)):
        flat[tile] = flat[tile] + 1
    return x


@kernel(8)
def through_two_names(x: torch.Tensor) -> torch.Tensor:
    flat = x.view(-1)
    for tile in hl.tile(flat.size(0)):
        flat[tile] = flat[tile] + x[0, 0]
    return x


@kernel(4, 8)
def index_add(x: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    out = torch.zeros([count, x.size(1)], dtype=x.dtype, device=x.device)
    for tile, tile_d in hl.tile([x.size(0), x.size(1)]):
        hl.atomic_add(out, [rows[tile], tile_d], x[tile, tile_d])
    return out


@kernel(4, 8)
def embedding(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty([rows.size(0), weight.size(1)], dtype=weight.dtype, device=weight.device)
    for tile, tile_d in hl.tile([rows.size(0), weight.size(1)]):
        out[tile, tile_d] = weight[rows[tile], tile_d]
    return out


@kernel(4)
def permute_rows(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        out[places[tile], :] = x[tile, :]
    return out


@kernel(8, 8)
def two_phases(x: torch.Tensor) -> torch.Tensor:
    middle = torch.empty_like(x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        middle[tile] = x[tile] + 1
    hl.barrier()
    for tile in hl.tile(x.size(0)):
        out[tile] = middle[tile] * middle[tile]
    return out


@kernel(8)
def argmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.argmax(x[tile, :], dim=-1)
    return out


@kernel(8, 16)
def lower_triangle_sum(x: torch.Tensor) -> torch.Tensor:
    n, _ = x.size()
    out = torch.empty([n], dtype=x.dtype, device=x.device)
    for tile in hl.tile(n):
        acc = hl.zeros([tile])
        for inner in hl.tile(0, tile.end):
            v = x[tile, inner]
            v = torch.where(tile.index[:, None] >= inner.index[None, :], v, 0.0)
            acc = acc + v.sum(-1)
        out[tile] = acc
    return out


@kernel(4)
def cumsum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.cumsum(x[tile, :], dim=1)
    return out


def _then(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a * b, b * x + y


@kernel(4)
def linear_recurrence(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        _, result = hl.associative_scan(_then, (a[tile, :], x[tile, :]), dim=1)
        out[tile, :] = result
    return out


@kernel(4, 8)
def reduce_with_a_function(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.zeros([m], dtype=x.dtype, device=x.device)
    for tile in hl.tile(m):
        acc = hl.zeros([tile])
        for inner in hl.tile(n):
            acc = acc + hl.reduce(torch.add, x[tile, inner], dim=1)
        out[tile] = acc
    return out


@kernel(4)
def jagged_sum(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    n = offsets.size(0) - 1
    out = torch.zeros([n], dtype=values.dtype, device=values.device)
    for i in hl.grid(n):
        acc = hl.zeros([], dtype=torch.float32)
        for tile in hl.tile(offsets[i], offsets[i + 1]):
            acc = acc + values[tile].sum()
        out[i] = acc
    return out


@kernel(8, 16, static_shapes=False)
def with_dynamic_shapes(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_m, tile_n] = x[tile_m, tile_n] * x.size(1) + m
    return out


FACTOR = 2.5


@kernel(8)
def with_a_global(x: torch.Tensor, n: int, s: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * FACTOR + n * s
    return out


@helion.kernel(static_shapes=True)
def without_config(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].relu()
    return out


@kernel(8)
def sorted_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values, _ = torch.sort(x[tile], dim=0)
        out[tile] = values
    return out


@kernel(8)
def with_random_numbers(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.rand([tile], seed=42)
    return out
