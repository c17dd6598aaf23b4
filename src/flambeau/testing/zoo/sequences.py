"""Architectures for texts and other sequences, written by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.testing.zoo.handwritten import BATCH, VOCABULARY, Handwritten, ids


class LstmTagger(Handwritten):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        hidden, (last, _) = self.lstm(self.embedding(ids))
        return F.log_softmax(self.head(hidden), -1), last

    def example(self) -> tuple[Tensor, ...]:
        return (ids(BATCH, 6),)


class GruTagger(Handwritten):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.gru = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(32, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.gru(self.embedding(ids))
        state = hidden.new_zeros(ids.shape[0], 8)
        states = []
        for step in hidden.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return self.head(torch.stack(states, 1))

    def example(self) -> tuple[Tensor, ...]:
        return (ids(BATCH, 6),)


def _positions(length: int, width: int) -> Tensor:
    """Compute the sinusoidal position encoding: sin and cos of p / 10000^(2i/width)."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class TransformerTagger(Handwritten):
    """`nn.TransformerEncoder` with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.register_buffer("positions", _positions(16, 32))
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(32) + self.get_buffer("positions")[: ids.shape[1]]
        return self.head(self.encoder(x, src_key_padding_mask=padding))

    def example(self) -> tuple[Tensor, ...]:
        padding = torch.zeros(BATCH, 8, dtype=torch.bool)
        padding[1, -2:] = True
        return ids(BATCH, 8), padding


class Translator(Handwritten):
    """`nn.Transformer`, encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, 32), nn.Embedding(VOCABULARY, 32)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.transformer(self.source(source), self.target(target), tgt_mask=mask, tgt_is_causal=True))

    def example(self) -> tuple[Tensor, ...]:
        return ids(BATCH, 8), ids(BATCH, 6)


class SelectiveScan(Handwritten):
    """A state-space model whose transition depends on the input, as a loop over time."""

    def __init__(self, width: int = 16, state: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.step, self.b, self.c = nn.Linear(width, width), nn.Linear(width, state), nn.Linear(width, state)
        self.log_a = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(width, 1))
        self.d = nn.Parameter(torch.randn(width))
        self.gate, self.head = nn.Linear(width, width), nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        u = F.silu(self.conv(x.transpose(1, 2))[..., : ids.shape[1]].transpose(1, 2))
        step = F.softplus(self.step(u))
        decay = torch.exp(step[..., None] * -self.log_a.exp())
        drive = (step * u)[..., None] * self.b(u)[:, :, None]
        state = torch.zeros_like(drive[:, 0])
        outputs = []
        for t in range(ids.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            outputs.append((state * self.c(u)[:, t, None]).sum(-1))
        y = torch.stack(outputs, 1) + self.d * u
        return self.head(y * F.silu(self.gate(x)))

    def example(self) -> tuple[Tensor, ...]:
        return (ids(BATCH, 6),)


class LinearAttention(Handwritten):
    """Causal attention without a softmax: prefix sums of outer products."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.qkv, self.norm = nn.Linear(width, 3 * width), nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        states = torch.cumsum(k[..., :, None] * v[..., None, :], 1)
        total = torch.cumsum(k, 1)
        y = torch.einsum("btk,btkv->btv", q, states) / (q * total).sum(-1, keepdim=True)
        return self.head(x + y)

    def example(self) -> tuple[Tensor, ...]:
        return (ids(BATCH, 6),)


class TemporalConvNet(Handwritten):
    """Causal dilated convolutions with weight normalisation."""

    def __init__(self) -> None:
        super().__init__()
        convolution = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(convolution(nn.Conv1d(4 if i == 0 else 16, 16, 3, dilation=2**i)) for i in range(3))
        self.head = nn.Conv1d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            y = F.mish(layer(F.pad(x, (2 * 2**i, 0))))
            x = y if i == 0 else x + y
        return self.head(x)

    def example(self) -> tuple[Tensor, ...]:
        return (torch.randn(BATCH, 4, 24),)


class NBeats(Handwritten):
    """Blocks that each explain a part of a series and leave the rest to the next."""

    def __init__(self, history: int = 16, horizon: int = 4) -> None:
        super().__init__()
        self.horizon = horizon
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(history, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 6))
            for _ in range(3)
        )
        time = torch.arange(history + horizon) / history
        self.register_buffer("basis", torch.stack([time**p for p in range(3)]))

    def forward(self, x: Tensor) -> Tensor:
        basis = self.get_buffer("basis")
        forecast = x.new_zeros(x.shape[0], self.horizon)
        for block in self.blocks:
            past, future = block(x).split(3, -1)
            x = x - past @ basis[:, : x.shape[1]]
            forecast += future @ basis[:, x.shape[1] :]
        return forecast

    def example(self) -> tuple[Tensor, ...]:
        return (torch.randn(BATCH, 16),)


class MixtureOfExperts(Handwritten):
    """Each token goes to the two experts that a router scores highest."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 32) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 32, width) * 0.2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        probabilities = self.router(x).softmax(-1)
        weights, chosen = torch.topk(probabilities, 2)
        weights = weights / weights.sum(-1, keepdim=True)
        up, down = self.up[chosen], self.down[chosen]
        hidden = F.gelu(torch.einsum("btw,btkwh->btkh", x, up), approximate="tanh")
        mixed = (torch.einsum("btkh,btkhw->btkw", hidden, down) * weights[..., None]).sum(2)
        load = F.one_hot(chosen, probabilities.shape[-1]).float().mean((0, 1, 2))
        return mixed, load

    def example(self) -> tuple[Tensor, ...]:
        return (torch.randn(BATCH, 6, 16),)
