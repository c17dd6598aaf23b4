"""Architectures as people write them by hand, with nothing but `torch.nn`.

Each class has a `forward`, and `example`, which makes the arguments of a call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 2
VOCABULARY = 64


def _ids(*shape: int) -> Tensor:
    return torch.randint(0, VOCABULARY, shape)


def _image(channels: int = 3, side: int = 16) -> Tensor:
    return torch.randn(BATCH, channels, side, side)


class Handwritten(nn.Module):
    """A model that knows what it may be called with."""

    def example(self) -> tuple[Tensor, ...]:
        return (_image(),)


# Images


class LeNet(Handwritten):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.convolutions(x))

    def example(self) -> tuple[Tensor, ...]:
        return (_image(1, 28),)


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width != out:
            self.shortcut = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet18(Handwritten):
    """Eight blocks in four stages, a quarter as wide as published."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        for stage in range(4):
            out = width * 2**stage
            blocks += [BasicBlock(out // 2 if stage else out, out, 2 if stage else 1), BasicBlock(out, out, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.head(torch.flatten(x, 1))

    def example(self) -> tuple[Tensor, ...]:
        return (_image(side=32),)


def _double_conv(width: int, out: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, out, 3, padding=1),
        nn.BatchNorm2d(out),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1),
        nn.ReLU(),
    )


class UNet(Handwritten):
    """Down and up again; one step up is a transposed convolution, the other an interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = _double_conv(3, 8), _double_conv(8, 16), _double_conv(16, 32)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.merge2 = _double_conv(32, 16)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.merge1 = _double_conv(24, 8)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.bottom(F.max_pool2d(b, 2))
        x = self.merge2(torch.cat([b, self.up2(x)], 1))
        x = self.merge1(torch.cat([a, self.up1(x)], 1))
        return self.head(x)


class MobileNet(Handwritten):
    """Depthwise convolutions, each followed by one of size 1."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()]
        for width, out, stride in ((8, 16, 1), (16, 32, 2), (32, 32, 1)):
            layers += [nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width)]
            layers += [nn.ReLU6(), nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out), nn.Hardswish()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Autoencoder(Handwritten):
    """Strided convolutions to a code, transposed ones back; variational, and the mean is decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()
        )
        self.mean, self.log_variance = nn.Linear(256, 8), nn.Linear(256, 8)
        self.spread = nn.Linear(8, 256)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(8, affine=True),
            nn.ELU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return self.decoder(self.spread(mean).view(-1, 16, 4, 4)), divergence


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MlpMixer(Handwritten):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(16, 32), MixerBlock(16, 32), nn.LayerNorm(32))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class SpatialTransformer(Handwritten):
    """Learns how to turn the image before it looks: `affine_grid` and `grid_sample`."""

    def __init__(self) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.Conv2d(1, 8, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(288, 16),
            nn.ReLU(),
            nn.Linear(16, 6),
        )
        self.classify = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten())
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        identity = torch.tensor([1.0, 0, 0, 0, 1, 0])
        theta = (self.localise(x) + identity).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
        return F.log_softmax(self.head(self.classify(x)), 1)

    def example(self) -> tuple[Tensor, ...]:
        return (_image(1),)


def _squash(x: Tensor) -> Tensor:
    square = x.square().sum(-1, keepdim=True)
    return x * square / (1 + square) / (square + 1e-8).sqrt()


class CapsuleNet(Handwritten):
    """Capsules that route to those of the next layer by agreement, in three rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.primary = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 16, 5, 2)
        self.weight = nn.Parameter(torch.randn(64, 5, 8, 4) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.primary(F.relu(self.stem(x)))
        capsules = _squash(x.view(x.shape[0], 2, 8, -1).permute(0, 1, 3, 2).reshape(x.shape[0], -1, 4))
        votes = torch.einsum("npi,pcki->npck", capsules, self.weight)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            output = _squash(torch.einsum("npc,npck->nck", logits.softmax(2), votes))
            logits = logits + torch.einsum("npck,nck->npc", votes, output)
        return output.norm(dim=-1)

    def example(self) -> tuple[Tensor, ...]:
        return (_image(1),)


class DiffusionBlock(Handwritten):
    """One step of a denoiser: a sinusoidal embedding of the time scales and shifts what the convolutions see."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 2 * width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Conv2d(width, 3, 3, padding=1, padding_mode="circular")

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(self.width // 2) / (self.width // 2))
        angles = t[:, None].float() * frequencies
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None].chunk(2, 1)
        x = self.stem(x)
        hidden = self.conv1(F.silu(self.norm1(x))) * (1 + scale) + shift
        x = x + self.conv2(F.silu(self.norm2(hidden)))
        pixels = x.flatten(2).transpose(1, 2)
        attended, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        return self.head(x + attended.transpose(1, 2).reshape(x.shape))

    def example(self) -> tuple[Tensor, ...]:
        return _image(side=8), torch.tensor([3, 250])


class Siamese(Handwritten):
    """Two images through one network, and how alike they are."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.PReLU(8), nn.Flatten(), nn.Linear(392, 16))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.trunk(a), self.trunk(b)
        return F.cosine_similarity(a, b), F.pairwise_distance(F.normalize(a), F.normalize(b))

    def example(self) -> tuple[Tensor, ...]:
        return _image(), _image()


# Sequences


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
        return (_ids(BATCH, 6),)


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
        return (_ids(BATCH, 6),)


def _positions(length: int, width: int) -> Tensor:
    """The sinusoids of the first transformers."""
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
        return _ids(BATCH, 8), padding


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
        return _ids(BATCH, 8), _ids(BATCH, 6)


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
        return (_ids(BATCH, 6),)


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
        return (_ids(BATCH, 6),)


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


# Graphs, tables, points


class GraphAttention(Handwritten):
    """Attention along the edges of a graph: scores by `scatter_reduce`, messages by `index_add`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project, self.source, self.target = nn.Linear(8, width), nn.Linear(width, 1), nn.Linear(width, 1)
        self.head = nn.Linear(width, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.project(nodes)
        score = F.leaky_relu(self.source(x)[source] + self.target(x)[target], 0.2).squeeze(-1)
        count = nodes.shape[0]
        highest = score.new_full((count,), -math.inf).scatter_reduce(0, target, score, "amax")
        weight = torch.exp(score - highest[target])
        total = weight.new_zeros(count).scatter_add(0, target, weight)
        message = x[source] * (weight / total[target])[:, None]
        return self.head(torch.zeros_like(x).index_add(0, target, message))

    def example(self) -> tuple[Tensor, ...]:
        loops = torch.arange(10).expand(2, 10)  # So that each node has a neighbour.
        return torch.randn(10, 8), torch.cat([torch.randint(0, 10, (2, 20)), loops], 1)


class Dlrm(Handwritten):
    """Clicks: dense features, bags of categories, and the products of all pairs of them."""

    def __init__(self, sizes: Sequence[int] = (20, 30, 40)) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum") for n in sizes)
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(bag(ids) for bag, ids in zip(self.bags, (a, b, c)))], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([x, products[:, rows, columns]], 1))

    def example(self) -> tuple[Tensor, ...]:
        return torch.randn(BATCH, 4), *(torch.randint(0, n, (BATCH, 3)) for n in (20, 30, 40))


class PointNet(Handwritten):
    """A cloud of points: turned by a matrix that it predicts, then the maximum over its points."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.points = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)
        )
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.matrix(torch.max(self.turn(x), 2).values).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), matrix).transpose(2, 1)
        return F.log_softmax(self.head(self.points(x).amax(2)), -1)

    def example(self) -> tuple[Tensor, ...]:
        return (torch.randn(BATCH, 3, 32),)
