"""Architectures for images, written by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.testing.zoo.handwritten import Handwritten, image


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
        return (image(1, 28),)


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
        return (image(side=32),)


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
        return (image(1),)


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
        return (image(1),)


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
        return image(side=8), torch.tensor([3, 250])


class Siamese(Handwritten):
    """Two images through one network, and how alike they are."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.PReLU(8), nn.Flatten(), nn.Linear(392, 16))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.trunk(a), self.trunk(b)
        return F.cosine_similarity(a, b), F.pairwise_distance(F.normalize(a), F.normalize(b))

    def example(self) -> tuple[Tensor, ...]:
        return image(), image()
